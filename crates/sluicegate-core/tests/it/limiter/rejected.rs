//! Policies that count refused requests: beside others, with waits, turns and refunds, replaced and forgotten.

use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::Mode;
use sluicegate_core::{Algorithm, Key, MemoryStore, Outcome, Policy, RateLimiter};

use crate::support::{ALL, answer, is_queue, secs, store};

fn counting(store: &MemoryStore, algorithm: Algorithm, quota: &str) -> RateLimiter {
    let name = algorithm.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Policy::builder(name, algorithm, quota).count_rejected().on(store).expect("the policy fits the store")
}

#[test]
fn it_counts_what_another_limit_refuses_and_the_others_spend_nothing() {
    for algorithm in ALL {
        let (store, _) = store();
        let counts = counting(&store, algorithm, "9/min");
        let (plain, full) = (Policy::gcra("plain", "9/min"), Policy::gcra("full", "1/min"));
        let [plain, full] = [plain, full].map(|policy| policy.on(&store).expect("it fits"));
        let (key, other) = (Key::from("ada"), Key::from("bob"));
        _ = answer(full.check(&key));
        // In any order, with costs of their own, and two asks of one bucket are two.
        let refused =
            answer(check_all([plain.check(&key).cost(2), full.check(&key), counts.check(&key).cost(3)]));
        assert_eq!(refused.deciding().policy_index(), 1, "{algorithm}");
        let counted = |key, cost| counts.check(key).cost(cost);
        let twice = [counted(&key, 2), full.check(&key), counted(&key, 1), counted(&other, 5)];
        assert!(!answer(check_all(twice)).is_allowed());
        let left = |limiter: &RateLimiter, key: &Key| answer(limiter.peek(key)).remaining();
        assert_eq!(
            (left(&counts, &key), left(&counts, &other), left(&plain, &key)),
            (3, 4, 9),
            "{algorithm}"
        );
    }
}

#[test]
fn all_quotas_of_the_policy_count_each_up_to_its_own_capacity() {
    let (store, clock) = store();
    let policy = Policy::sliding_log("login", "2/10s").and("20/h").count_rejected();
    let limiter = policy.on(&store).expect("it fits");
    for _ in 0..30 {
        _ = answer(limiter.check("ada"));
    }
    clock.advance(secs(11));
    let refused = answer(limiter.check("ada"));
    assert_eq!(refused.deciding().quota_index(), 1, "the hour is used up by refusals");
}

#[test]
fn a_look_and_a_policy_that_is_off_count_nothing() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = counting(&store, algorithm, "4/min");
        assert!(!answer(limiter.peek("ada").cost(5)).is_allowed());
        let put =
            |mode| limiter.replace(limiter.policy().in_mode(mode), Inherit::Spent).expect("it is the same");
        put(PolicyMode::Off);
        _ = answer(limiter.check("ada").cost(5));
        put(PolicyMode::Enforce);
        assert_eq!(answer(limiter.peek("ada")).remaining(), 4, "{algorithm}");
    }
}

#[test]
fn a_policy_that_is_replaced_counts_as_the_new_one_says_and_forgets_nothing() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = counting(&store, algorithm, "4/min");
        let counts = limiter.policy();
        let silent = Policy::builder(counts.name(), algorithm, "4/min").build().expect("it is possible");
        limiter.replace(silent, Inherit::Spent).expect("it fits");
        _ = answer(limiter.check("ada"));
        assert!(!answer(limiter.check("ada").cost(4)).is_allowed());
        assert_eq!(answer(limiter.peek("ada")).remaining(), 3, "{algorithm}");
        limiter.replace((*counts).clone(), Inherit::Spent).expect("it fits");
        assert!(!answer(limiter.check("ada").cost(4)).is_allowed());
        assert_eq!(answer(limiter.peek("ada")).remaining(), 0, "{algorithm}");
        _ = answer(limiter.reset("ada"));
        assert_eq!(answer(limiter.peek("ada")).remaining(), 4, "{algorithm}");
    }
}

#[test]
fn a_refusal_that_counts_has_no_receipt_and_those_before_it_keep_theirs() {
    for algorithm in ALL {
        let (store, _) = store();
        let policy = Policy::builder("budget", algorithm, "4/min").count_rejected().refunds();
        let limiter = policy.on(&store).expect("it fits");
        let mut spent = answer(limiter.check("ada").cost(2));
        let mut refused = answer(limiter.check("ada").cost(3));
        assert_eq!((refused.outcome(), refused.take_receipt(0).is_none()), (Outcome::Denied, true));
        let mut receipt = spent.take_receipt(0).expect("it was allowed");
        _ = answer(limiter.refund("ada", 2).of(&mut receipt));
        let left = answer(limiter.peek("ada")).remaining();
        // A log has let go of the older unit for the refused ones.
        assert!((1..=2).contains(&left), "{algorithm}: {left}");
    }
}

#[test]
fn a_turn_that_would_come_too_late_counts_and_one_that_is_out_still_comes() {
    // A full queue lets nobody wait outside of it.
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (store, clock) = store();
        let limiter = counting(&store, algorithm, "2/min");
        let reserve = |wait| answer(limiter.check("ada").cost(2).reserve(secs(wait)));
        assert!(reserve(0).is_allowed(), "{algorithm}");
        let turn = reserve(120);
        assert!(turn.is_allowed(), "{algorithm}: {turn:?}");
        let before = answer(limiter.peek("ada")).reset_after();
        for _ in 0..5 {
            assert!(!reserve(1).is_allowed(), "{algorithm}");
        }
        // What is given out ahead is more than the capacity: nothing comes on top.
        assert!(answer(limiter.peek("ada")).reset_after() <= before, "{algorithm}");
        clock.advance(secs(600));
        assert!(reserve(0).is_allowed(), "{algorithm}");
    }
}

#[test]
fn as_much_as_there_is_counts_a_unit_where_there_is_none() {
    let (store, clock) = store();
    let limiter = counting(&store, Algorithm::SlidingLog, "4/min");
    assert_eq!(answer(limiter.check("ada").up_to(9)).granted(), Some(4));
    clock.advance(secs(30));
    assert_eq!(answer(limiter.check("ada").up_to(9)).granted(), Some(0));
    clock.advance(secs(30));
    assert_eq!(answer(limiter.check("ada").up_to(9)).granted(), Some(3), "one came later");
}

#[test]
fn a_suspended_key_goes_on_counting() {
    let (store, clock) = store();
    let policy = Policy::gcra("login", "2/min").suspend(1, "10min", "30s").count_rejected();
    let limiter = policy.on(&store).expect("it fits");
    let ask = || answer(limiter.check("ada")).outcome();
    assert_eq!([ask(), ask(), ask()], [Outcome::Allowed, Outcome::Allowed, Outcome::Suspended]);
    clock.advance(secs(29));
    assert_eq!(ask(), Outcome::Suspended);
    clock.advance(secs(2));
    assert_ne!(ask(), Outcome::Allowed, "it asked a moment ago");
}

#[test]
fn reports_beside_a_refusal_are_not_made() {
    let (store, _) = store();
    let (counts, other) = (counting(&store, Algorithm::Gcra, "4/min"), Policy::gcra("other", "4/min"));
    let other = other.on(&store).expect("it fits");
    let key = Key::from("ada");
    let refused = answer(check_all([
        counts.check(&key).cost(5).mode(Mode::Spend),
        other.check(&key).cost(2).mode(Mode::Charge),
    ]));
    assert!(!refused.is_allowed());
    assert_eq!((answer(counts.peek(&key)).remaining(), answer(other.peek(&key)).remaining()), (0, 4));
}
