//! Whether closing a policy forgets spent units.

use sluicegate_core::limiter::{ForLayers, check_all};
use sluicegate_core::{Algorithm, Quota};

use crate::support::{ALL, answer, is_queue, limiter, ms, secs, store, store_for};

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

/// Units that were held count on as a spend, although no request has asked for the key since.
#[test]
fn units_that_were_held_for_requests_keep_the_policy_open_until_they_have_drained() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (store, clock) = store_for(1_000, 16_000);
        let own = limiter(&store, "own", Algorithm::Gcra, Quota::per_minute(1));
        let shared = limiter(&store, "shared", algorithm, Quota::per_hour(100));
        for client in (0..30_u64).chain(0..30) {
            clock.advance(ms(100));
            let longest = secs(100);
            let checks = [own.check(client).reserve(longest), shared.check(u64::MAX).reserve(longest)];
            assert!(answer(check_all(checks)).is_allowed(), "{algorithm}");
        }
        while !shared.may_close() {
            clock.advance(secs(30));
        }
        assert_eq!(
            answer(shared.peek(u64::MAX)).remaining(),
            100,
            "{algorithm}: closing it would forget them"
        );
    }
}
