use super::*;

const SETTINGS: BreakerSettings =
    BreakerSettings::new().pause(Duration::from_secs(1), Duration::from_secs(8)).ramp(Duration::ZERO);

fn fail(breaker: &Breaker, times: u32) -> Option<Transition> {
    (0..times).filter_map(|_| breaker.failed(breaker.admit(&SETTINGS, 0)?, &SETTINGS, 0)).last()
}

fn succeed(breaker: &Breaker, times: u32) {
    for _ in 0..times {
        let pass = breaker.admit(&SETTINGS, 0).unwrap();
        assert_eq!(breaker.succeeded(pass, &SETTINGS, 0), None);
    }
}

#[test]
fn failures_in_a_row_open_it_and_others_do_not() {
    let breaker = Breaker::new();
    for _ in 0..10 {
        assert_eq!(fail(&breaker, 4), None);
        succeed(&breaker, 7);
    }
    assert!(matches!(fail(&breaker, 5), Some(Transition::Opened { .. })));
    assert!(breaker.admit(&SETTINGS, 700_000).is_none());
    assert!(
        breaker.pause(0) >= Duration::from_millis(800) && breaker.pause(0) <= Duration::from_millis(1_200)
    );
}

#[test]
fn without_jitter_every_pause_is_as_long_as_it_was_set() {
    const EXACT: BreakerSettings = SETTINGS.jitter(0);
    let breaker = Breaker::new();
    let fail = || breaker.failed(breaker.admit(&EXACT, 0)?, &EXACT, 0);
    assert!((0..4).all(|_| fail().is_none()));
    assert!(matches!(fail(), Some(Transition::Opened { pause }) if pause == Duration::from_secs(1)));
    assert!(EXACT.check().is_ok());
    let problem = EXACT.jitter(91).check().unwrap_err().to_string();
    assert_eq!(problem, "a breaker with a jitter of 91 percent: use at most 90");
}

#[test]
fn half_of_the_last_calls_open_it_wherever_they_stand() {
    let breaker = Breaker::new();
    succeed(&breaker, 100);
    for round in 0..10 {
        assert_eq!(breaker.state(), BreakerState::Closed, "{round}");
        succeed(&breaker, 1);
        fail(&breaker, 1);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[test]
fn trials_are_few_and_a_failed_one_doubles_the_pause() {
    let breaker = Breaker::new();
    fail(&breaker, 5);
    let mut now = 0;
    for longest in [2_400, 4_800, 9_600, 9_600] {
        now += 10_000_000;
        let trial = breaker.admit(&SETTINGS, now).unwrap();
        assert!(breaker.admit(&SETTINGS, now).is_none(), "one at a time");
        let Some(Transition::Opened { pause }) = breaker.failed(trial, &SETTINGS, now) else { panic!() };
        assert!(pause <= Duration::from_millis(longest) && pause >= Duration::from_millis(longest * 2 / 3));
    }
    now += 10_000_000;
    for last in [None, None, Some(Transition::Closed)] {
        let trial = breaker.admit(&SETTINGS, now).unwrap();
        assert_eq!(breaker.succeeded(trial, &SETTINGS, now), last);
    }
    succeed(&breaker, 3);
}

#[test]
fn a_trial_that_is_dropped_makes_room_and_a_late_result_counts_for_nothing() {
    let breaker = Breaker::new();
    let early = breaker.admit(&SETTINGS, 0).unwrap();
    fail(&breaker, 5);
    let dropped = breaker.admit(&SETTINGS, 2_000_000).unwrap();
    breaker.left(dropped);
    let trial = breaker.admit(&SETTINGS, 2_000_000).unwrap();
    assert_eq!(breaker.failed(early, &SETTINGS, 2_000_000), None);
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    assert_eq!(breaker.succeeded(trial, &SETTINGS, 2_000_000), None, "three are needed");
}

#[test]
fn what_comes_back_is_not_stampeded() {
    let settings = SETTINGS.ramp(Duration::from_secs(1)).successes(1);
    let breaker = Breaker::new();
    fail(&breaker, 5);
    let trial = breaker.admit(&settings, 2_000_000).unwrap();
    assert_eq!(breaker.succeeded(trial, &settings, 2_000_000), Some(Transition::Closed));
    let admitted = |now| (0..1_000).filter(|_| breaker.admit(&settings, now).is_some()).count();
    assert_eq!([admitted(2_000_000), admitted(2_500_000), admitted(3_000_000)], [100, 550, 1_000]);
}
