//! Whether closing a policy forgets spent units.

use sluicegate_core::Quota;
use sluicegate_core::limiter::ForLayers;

use crate::support::{ALL, answer, limiter, secs, store};

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
fn a_key_that_begins_to_owe_later_keeps_the_policy_open() {
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
