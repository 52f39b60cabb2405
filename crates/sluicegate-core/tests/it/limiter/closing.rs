//! Whether closing a policy forgets spent units, which is asked while requests spend and give back.

use sluicegate_core::limiter::ForLayers;
use sluicegate_core::{Policy, Quota};

use crate::support::{ALL, START, answer, limiter, secs, store};

#[test]
fn a_policy_may_close_once_none_of_its_keys_owes_nor_would_if_the_clock_were_set_back_a_minute() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(5));
        assert!(limiter.may_close(), "{algorithm}: nothing was spent");
        let _ = answer(limiter.check("ada").cost(5));
        for _ in 0..60 {
            assert!(!limiter.may_close(), "{algorithm}");
            clock.advance(secs(1));
        }
        // A window ends by the wall clock, a counter counts in the window after it.
        clock.advance(secs(2 * 60));
        assert!(limiter.may_close(), "{algorithm}: the debt was over a minute ago");
    }
}

#[test]
fn a_key_that_begins_to_owe_after_another_was_found_to_keeps_the_policy_open() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_second(1));
        let _ = answer(limiter.check("ada"));
        assert!(!limiter.may_close(), "{algorithm}");
        clock.advance(secs(50));
        let _ = answer(limiter.check("bob"));
        clock.advance(secs(50));
        assert!(!limiter.may_close(), "{algorithm}: bob owed less than a minute ago");
        clock.advance(secs(20));
        assert!(limiter.may_close(), "{algorithm}");
    }
}

/// A store whose requests find a policy to close reads its table once a minute, and not with each of them.
#[test]
fn a_key_that_was_found_to_owe_is_not_looked_for_again_for_a_minute() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_hour(1));
        let _ = answer(limiter.check("ada"));
        assert!(!limiter.may_close(), "{algorithm}");
        let _ = answer(limiter.reset("ada"));
        clock.advance(secs(59));
        assert!(!limiter.may_close(), "{algorithm}: nobody has looked since");
        clock.advance(secs(1));
        assert!(limiter.may_close(), "{algorithm}");
    }
}

#[test]
fn a_clock_that_was_far_ahead_keeps_no_policy_open_after_it_is_set_back() {
    let (store, clock) = store();
    let limiter = Policy::gcra("p", "5/min").and("100/h").on(&store).expect("it fits");
    clock.advance(secs(1_000_000));
    let _ = answer(limiter.check("ada"));
    assert!(!limiter.may_close());
    let _ = answer(limiter.reset("ada"));
    clock.set(START);
    assert!(limiter.may_close(), "what was found lies more than a minute ahead");
}
