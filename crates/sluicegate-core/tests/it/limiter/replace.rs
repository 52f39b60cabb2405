//! A policy that is replaced while it is in use: keys go on under the new one as the strategy says.
//!
//! Bucket4j's own examples (`cfg-*`) run in `vectors.rs`.

use std::thread;

use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Algorithm, Policy, Quota, RateLimiter};

use crate::support::{ALL, START, answer, limiter, secs, store, us};

const HOW: [Inherit; 4] = [Inherit::Reset, Inherit::AsIs, Inherit::Proportional, Inherit::Additive];

fn policy(algorithm: Algorithm, quota: Quota) -> Policy {
    Policy::builder("p", algorithm, quota).build().expect("the policy is good")
}

fn remaining(limiter: &RateLimiter, key: &str) -> u64 {
    answer(limiter.peek(key)).remaining()
}

#[test]
fn every_algorithm_hands_over_to_every_other() {
    for (old, new) in ALL.into_iter().flat_map(|old| ALL.map(|new| (old, new))) {
        // 4 of 10 are left; the new quota is half as large, or twice.
        for (how, halved, doubled) in [
            (Inherit::Reset, 5, 20),
            (Inherit::AsIs, 4, 4),
            (Inherit::Proportional, 2, 8),
            (Inherit::Additive, 4, 14),
        ] {
            for (limit, left) in [(5, halved), (20, doubled)] {
                let (store, _) = store();
                let limiter = limiter(&store, "p", old, Quota::per_minute(10));
                let _ = answer(limiter.charge("k", 6));
                limiter.replace(policy(new, Quota::per_minute(limit)), how).expect("it fits");
                assert_eq!(remaining(&limiter, "k"), left, "{old} to {new}, {how:?}, {limit}/min");
                assert_eq!(remaining(&limiter, "stranger"), limit, "{old} to {new}: rest is rest");
            }
        }
    }
}

#[test]
fn a_debt_is_inherited_and_a_reset_forgives_it() {
    for algorithm in ALL {
        for how in HOW {
            let (store, _) = store();
            let limiter = limiter(&store, "p", algorithm, Quota::per_minute(10));
            let _ = answer(limiter.charge("k", 15));
            limiter.replace(policy(algorithm, Quota::per_hour(10)), how).expect("it fits");
            let passes = answer(limiter.check("k")).is_allowed();
            assert_eq!(passes, how == Inherit::Reset, "{algorithm}, {how:?}");
        }
    }
}

#[test]
fn reset_all_gives_every_key_of_every_handle_its_burst_back_and_nothing_more() {
    for algorithm in ALL {
        let (store, _) = store();
        let resets = limiter(&store, "p", algorithm, Quota::per_minute(10));
        let other = limiter(&store, "p", algorithm, Quota::per_minute(10));
        let beside = limiter(&store, "q", algorithm, Quota::per_minute(10));
        let mut spent = answer(resets.check("k").cost(4));
        let mut receipt = spent.take_receipt(0).expect("it was spent");
        for (limiter, key) in [(&other, "debtor"), (&beside, "debtor")] {
            let _ = answer(limiter.charge(key, 15));
        }
        resets.reset_all().expect("the store keeps the policy already");
        assert_eq!(["k", "debtor"].map(|key| remaining(&other, key)), [10, 10], "{algorithm}");
        assert_eq!(remaining(&beside, "debtor"), 0, "{algorithm}: another policy");
        // What was spent before is not given back on top of what is spent now.
        assert!(answer(other.check("k").cost(10)).is_allowed(), "{algorithm}");
        let _ = answer(resets.refund("k", 4).of(&mut receipt));
        assert_eq!(remaining(&resets, "k"), 0, "{algorithm}");
    }
}

#[test]
fn a_key_that_slept_through_three_replacements_inherits_through_all_of_them() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_hour(100));
        let _ = answer(limiter.charge("k", 60));
        for limit in [200, 50, 400] {
            clock.advance(us(1));
            limiter
                .replace(policy(algorithm, Quota::per_hour(limit)), Inherit::Proportional)
                .expect("it fits");
        }
        // 40 of 100, 80 of 200, 20 of 50, 160 of 400. A few microseconds give nothing back.
        assert_eq!(remaining(&limiter, "k"), 160, "{algorithm}");
        let _ = answer(limiter.check("k").cost(160));
        assert!(!answer(limiter.check("k")).is_allowed(), "{algorithm}: it was handed over once and for all");
    }
}

#[test]
fn a_key_is_handed_over_once_and_then_lives_under_the_new_policy() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_hour(10));
        let _ = answer(limiter.charge("k", 6));
        limiter.replace(policy(algorithm, Quota::per_hour(20)), Inherit::AsIs).expect("it fits");
        assert_eq!(answer(limiter.check("k").cost(3)).remaining(), 1, "{algorithm}");
        assert_eq!(remaining(&limiter, "k"), 1, "{algorithm}");
        let _ = answer(limiter.reset("k"));
        assert_eq!(remaining(&limiter, "k"), 20, "{algorithm}");
    }
}

#[test]
fn what_was_spent_before_counts_as_long_as_if_it_had_been_spent_under_the_new_policy() {
    for algorithm in ALL {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_minute(10));
        let _ = answer(limiter.check("k").cost(10));
        limiter.replace(policy(algorithm, Quota::per_day(10)), Inherit::AsIs).expect("it fits");
        // Two minutes are as long as any state of the old policy reaches, and two days as any of the new one.
        for (seconds, left) in [(121, 0), (172_921, 10)] {
            clock.set(START + secs(seconds));
            assert_eq!(remaining(&limiter, "k"), left, "{algorithm} after {seconds} s");
        }
    }
}

#[test]
fn quotas_follow_those_with_the_same_id() {
    let (store, _) = store();
    let policy =
        |day: &str| Policy::gcra("p", "5/min").and(day).named("day").and("50/h").named("hour").build();
    let limiter = RateLimiter::new(&store, policy("100/d").expect("good")).expect("it fits");
    let _ = answer(limiter.check("k").cost(4));
    // The order of the named quotas does not matter.
    let next = Policy::gcra("p", "10/min").and("60/h").named("hour").and("200/d").named("day").build();
    limiter.replace(next.expect("good"), Inherit::Additive).expect("it fits");
    let left: Vec<_> = answer(limiter.peek("k")).quotas().iter().map(|s| s.remaining()).collect();
    assert_eq!(left, [6, 56, 196]);
}

#[test]
fn another_name_is_refused_and_the_old_policy_stays() {
    let (store, _) = store();
    let limiter = limiter(&store, "p", Algorithm::Gcra, Quota::per_minute(10));
    let _ = answer(limiter.check("k"));
    let other = Policy::gcra("q", "1/min").build().expect("the policy is good");
    let error = limiter.replace(other, Inherit::AsIs).expect_err("the names differ");
    assert_eq!(error.kind(), ConfigErrorKind::OtherName);
    assert_eq!(error.to_string(), "policy \"q\": it cannot replace \"p\": their names must be equal");
    assert_eq!(remaining(&limiter, "k"), 9);
    let too_long = policy(Algorithm::SlidingLog, Quota::per_minute(100_000));
    let error = limiter.replace(too_long, Inherit::AsIs).expect_err("the store is too small");
    assert!(error.to_string().contains("log_entries(1600000)"), "{error}");
    assert_eq!(remaining(&limiter, "k"), 9);
}

#[test]
fn threads_that_replace_and_spend_admit_no_second_burst() {
    let (store, _) = store();
    let limiter = limiter(&store, "p", Algorithm::Gcra, Quota::per_hour(1_000));
    let spend = || (0..2_000).filter(|_| answer(limiter.check("k")).is_allowed()).count();
    let admitted: usize = thread::scope(|scope| {
        let spenders: Vec<_> = (0..4).map(|_| scope.spawn(spend)).collect();
        scope.spawn(|| {
            for round in 0..30 {
                let algorithm = ALL[round % ALL.len()];
                limiter.replace(policy(algorithm, Quota::per_hour(1_000)), Inherit::AsIs).expect("it fits");
            }
        });
        spenders.into_iter().map(|spender| spender.join().expect("no thread panics")).sum()
    });
    // A decision that is under way is still the old policy's: one for each thread and replacement at most.
    assert!((1_000..=1_000 + 4 * 30).contains(&admitted), "{admitted}");
}

#[test]
fn what_was_spent_before_a_reset_makes_no_room_after_it() {
    for (algorithm, how) in ALL.into_iter().flat_map(|algorithm| HOW.map(|how| (algorithm, how))) {
        let (store, clock) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_hour(100));
        let mut before = answer(limiter.check("k").cost(10)).take_receipt(0).expect("it is allowed");
        // Not in the same microsecond; the second one begins where the first left off.
        for how in [how, Inherit::AsIs] {
            clock.advance(us(1));
            limiter.replace(policy(algorithm, Quota::per_hour(100)), how).expect("it fits");
        }
        clock.advance(us(1));
        let _ = answer(limiter.charge("k", 50));
        let left = remaining(&limiter, "k");
        let _ = answer(limiter.refund("k", 10).of(&mut before));
        if how == Inherit::Reset {
            assert_eq!((left, remaining(&limiter, "k")), (50, 50), "{algorithm}");
        } else {
            assert!((left..=left + 10).contains(&remaining(&limiter, "k")), "{algorithm}, {how:?}");
        }
    }
}

/// Once, 8 of 10 a month under a limit of 3 refused for 33 days.
#[test]
fn units_above_a_lower_limit_end_with_their_window() {
    let windows = ["h by fixed-window", "h by fixed-window-from-first-hit"];
    let calendar: &[_] = if cfg!(feature = "calendar") { &["month", "week in Asia/Seoul"] } else { &[] };
    for window in windows.iter().chain(calendar) {
        let (store, clock) = store();
        let policy = |limit: u64| Policy::gcra("p", format!("{limit}/{window}")).build().unwrap();
        let limiter = RateLimiter::new(&store, policy(10)).unwrap();
        let _ = answer(limiter.charge("k", 8));
        let reset_after = answer(limiter.peek("k")).reset_after();
        limiter.replace(policy(3), Inherit::Spent).unwrap();
        assert_eq!(answer(limiter.peek("k")).retry_after(), Some(reset_after), "{window}");
        // The units still count under a higher limit.
        limiter.replace(policy(9), Inherit::Spent).unwrap();
        assert_eq!(remaining(&limiter, "k"), 1, "{window}");
        limiter.replace(policy(3), Inherit::Spent).unwrap();
        clock.advance(reset_after - us(1));
        assert_eq!(remaining(&limiter, "k"), 0, "{window}");
        clock.advance(us(1));
        assert_eq!(remaining(&limiter, "k"), 3, "{window}");
    }
}
