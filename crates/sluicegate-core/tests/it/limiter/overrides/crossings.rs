//! Overrides that meet what else goes on: requests that wait, receipts, suspensions, threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::limiter::Overrides;
use sluicegate_core::policy::Override;
use sluicegate_core::{Algorithm, Outcome, Policy, RateLimiter};
use sluicegate_tests::around::told;
use sluicegate_tests::memory::paused_store;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::to;
use crate::support::{answer, ms, secs, store};

/// When so many requests go that come now.
async fn go(limiter: RateLimiter, start: Instant, requests: usize) -> Vec<Duration> {
    let mut waiting = JoinSet::new();
    for _ in 0..requests {
        let limiter = limiter.clone();
        waiting.spawn(async move {
            assert!(limiter.check("ada").acquire(secs(600)).await.unwrap().is_allowed());
            start.elapsed()
        });
    }
    let mut went = waiting.join_all().await;
    went.sort_unstable();
    went
}

/// A turn that was given stays what it is, under whichever policy its time comes.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_proceed_at_their_turns_among_those_that_come_under_the_override() {
    let (store, start) = (paused_store(), Instant::now());
    let mail = Policy::gcra("mail", "1/s burst 1").wait_up_to(secs(600)).on(&store).unwrap();
    let before = tokio::spawn(go(mail.clone(), start, 6));
    tokio::time::sleep(ms(1_500)).await;
    Overrides::of(&store).put(to("mail", "2/s burst 1").lasting(secs(10))).await.unwrap();
    let under = tokio::spawn(go(mail.clone(), start, 6));
    tokio::time::sleep(secs(10)).await;
    let after = go(mail.clone(), start, 3).await;
    assert_eq!(mail.policy().to_string(), "mail: 1/s (gcra)");
    // Four and a half units were not drained, at half a second each: the first new turn comes after 3.75 s.
    assert_eq!(before.await.unwrap(), [0, 1_000, 2_000, 3_000, 4_000, 5_000].map(ms));
    assert_eq!(under.await.unwrap(), [3_750, 4_250, 4_750, 5_250, 5_750, 6_250].map(ms));
    assert_eq!(after, [11_500, 12_500, 13_500].map(ms));
}

#[tokio::test]
async fn a_suspended_key_stays_suspended_under_an_override_and_after_it() {
    let (store, clock) = store();
    let limiter = Policy::gcra("p", "1/h").suspend(2, "10min", "30min").on(&store).unwrap();
    let outcome = || answer(limiter.check("k")).outcome();
    assert_eq!([outcome(), outcome(), outcome()], [Outcome::Allowed, Outcome::Denied, Outcome::Suspended]);
    Overrides::of(&store).put(to("p", "1000/h").lasting(secs(60))).await.unwrap();
    assert_eq!(outcome(), Outcome::Suspended);
    assert!(answer(limiter.check("stranger")).is_allowed());
    clock.advance(secs(60));
    assert_eq!((outcome(), limiter.policy().to_string()), (Outcome::Suspended, "p: 1/h (gcra)".to_owned()));
}

/// Requests on four threads, while overrides come, are withdrawn, and end by themselves: each change happens once.
#[test]
fn threads_that_decide_meanwhile_end_each_override_once_and_forget_nothing() {
    let (memory, clock) = store();
    let (store, events) = told(&memory);
    let limiter =
        RateLimiter::new(store.clone(), Policy::fixed_window("p", "100/d").build().unwrap()).unwrap();
    let (stop, passed) = (AtomicBool::new(false), AtomicU64::new(0));
    let ask = || {
        if answer(limiter.check("k")).is_allowed() {
            passed.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    ask();
                }
            });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let overrides = Overrides::of(store);
        for round in 0..200_u64 {
            let change = Override::builder("p", "ada").quota(format!("{}/d", 101 + round));
            let standing = runtime.block_on(overrides.put(change.lasting(Duration::from_millis(5)))).unwrap();
            // A key is followed through 32 replacements between two of its requests.
            ask();
            if round % 2 == 0 {
                runtime.block_on(overrides.withdraw("p", standing.version(), "bob")).unwrap();
            } else {
                clock.advance(ms(5));
                // Whoever is first.
                while limiter.policy() != limiter.own_policy() {}
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(events.lock().unwrap().len(), 400);
    assert_eq!(limiter.policy().to_string(), "p: 100/d (fixed-window)");
    let passed = passed.into_inner();
    // A decision that is under way is still the old policy's: one for each thread and replacement at most.
    assert!((100..=300 + 5 * 400).contains(&passed), "{passed}");
}

/// An override says with how many units keys start, as the quota does that it takes the place of; one that says nothing lets all
/// start full, and forgets whoever is full when it ends.
#[tokio::test]
async fn newcomers_start_as_the_override_says_and_known_keys_keep_what_they_lack() {
    for algorithm in ["gcra", "token-bucket", "leaky-bucket"] {
        let (store, clock) = store();
        let limiter = Policy::builder("p", algorithm.parse::<Algorithm>().unwrap(), "60/min start 10");
        let limiter = limiter.on(&store).unwrap();
        let left = |key: &str| answer(limiter.peek(key)).remaining();
        let overrides = Overrides::of(&store);
        assert!(answer(limiter.check("ada").cost(10)).is_allowed());
        let put = overrides.put(to("p", "120/min start 40").lasting(secs(60))).await.unwrap();
        assert_eq!((left("ada"), left("bob")), (60, 40), "{algorithm}");
        assert!(answer(limiter.check("bob").cost(40)).is_allowed());
        let error = overrides.put(to("p", "120/min start 121").replacing(put.version())).await.unwrap_err();
        assert!(error.to_string().contains("121"), "{error}");
        clock.advance(secs(60));
        // Both were full under it after forty seconds or less, and are known for a while.
        assert_eq!((left("ada"), left("bob"), left("eve")), (60, 60, 10), "{algorithm}");

        overrides.put(to("p", "120/min").lasting(secs(61))).await.unwrap();
        assert!(answer(limiter.check("eve").cost(120)).is_allowed(), "{algorithm}: it starts full");
        assert!(answer(limiter.check("bob").cost(50)).is_allowed());
        clock.advance(secs(60) - ms(1));
        assert!(answer(limiter.check("bob").cost(60)).is_allowed());
        clock.advance(ms(1_001));
        // One is full and forgotten with it, of the other one there is something to know.
        assert_eq!((left("eve"), left("bob")), (10, 2), "{algorithm}");
    }
}
