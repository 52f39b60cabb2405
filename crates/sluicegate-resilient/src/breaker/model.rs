//! Every interleaving of two threads. Run with `RUSTFLAGS="--cfg loom"`.

use loom::sync::Arc;
use loom::thread;

use super::*;

const SETTINGS: BreakerSettings = BreakerSettings::new().consecutive(1).successes(2).ramp(Duration::ZERO);

#[test]
fn never_more_trials_at_once_than_are_allowed_and_none_is_lost() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new());
        let pass = breaker.admit(&SETTINGS, 0).unwrap();
        breaker.failed(pass, &SETTINGS, 0);
        let running = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..2)
            .map(|index| {
                let (breaker, running) = (Arc::clone(&breaker), Arc::clone(&running));
                thread::spawn(move || {
                    let Some(pass) = breaker.admit(&SETTINGS, 10_000_000) else { return };
                    assert_eq!(running.fetch_add(1, Ordering::AcqRel), 0);
                    running.fetch_sub(1, Ordering::AcqRel);
                    if index == 0 {
                        breaker.left(pass);
                    } else {
                        breaker.succeeded(pass, &SETTINGS, 10_000_000);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(breaker.admit(&SETTINGS, 20_000_000).is_some());
    });
}

/// A success that lost against a failure once removed the pause.
#[test]
fn of_a_success_and_a_failure_at_once_the_state_that_wins_has_its_own_time() {
    const SETTINGS: BreakerSettings =
        BreakerSettings::new().consecutive(1).trials(2).successes(1).ramp(Duration::from_secs(60));
    const NOW_US: u64 = 10_000_000;
    loom::model(|| {
        let breaker = Arc::new(Breaker::new());
        breaker.failed(breaker.admit(&SETTINGS, 0).unwrap(), &SETTINGS, 0);
        let threads = [true, false].map(|answers| {
            let (breaker, pass) = (Arc::clone(&breaker), breaker.admit(&SETTINGS, NOW_US).unwrap());
            thread::spawn(move || match answers {
                true => breaker.succeeded(pass, &SETTINGS, NOW_US),
                false => breaker.failed(pass, &SETTINGS, NOW_US),
            })
        });
        let changes = threads.map(|thread| thread.join().unwrap());
        let pause = breaker.pause(NOW_US);
        match breaker.state() {
            BreakerState::Open => assert!(changes.contains(&Some(Transition::Opened { pause }))),
            BreakerState::Closed => assert!(changes.contains(&Some(Transition::Closed)) && pause.is_zero()),
            BreakerState::HalfOpen => panic!("both trials have ended"),
        }
    });
}
