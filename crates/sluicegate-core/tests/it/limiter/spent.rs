//! `Inherit::Spent`: what was spent stays spent, whatever the old and the new algorithm.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Algorithm, Decision, MemoryStore, Policy, Quota, RateLimiter};

use crate::support::{ALL, answer, is_queue, limiter, secs, store, us};

fn policy(algorithm: Algorithm, quota: Quota) -> Policy {
    Policy::builder("p", algorithm, quota).build().expect("the policy is good")
}

fn replace(limiter: &RateLimiter, algorithm: Algorithm, quota: Quota) {
    limiter.replace(policy(algorithm, quota), Inherit::Spent).expect("it fits");
}

fn replace_by(limiter: &RateLimiter, policy: PolicyBuilder, how: Inherit) {
    limiter.replace(policy.build().expect("the policy is good"), how).expect("it fits");
}

fn seen(decision: &Decision) -> (u64, std::time::Duration, bool) {
    (decision.remaining(), decision.reset_after(), decision.is_allowed())
}

/// `AsIs` meant something else in memory than on Redis in all 16 cases: 50 of 100/min replaced by 10/min, 1000/min, another
/// period and another algorithm, under each of four algorithms.
#[test]
fn fifty_of_a_hundred_stay_fifty_of_anything() {
    for (old, new) in ALL.into_iter().flat_map(|old| ALL.map(|new| (old, new))) {
        for quota in [Quota::per_minute(10), Quota::per_minute(1_000), Quota::per_hour(100)] {
            let (store, clock) = store();
            let replaced = limiter(&store, "p", old, Quota::per_minute(100));
            let _ = answer(replaced.charge("k", 50));
            replace(&replaced, new, quota);
            // As if fifty had been spent under the new one.
            let other = limiter(&store, "other", new, quota);
            let _ = answer(other.charge("k", 50));
            for wait in [0, 1, 29, 31, 3_000] {
                clock.advance(secs(wait));
                let (replaced, other) = (answer(replaced.peek("k")), answer(other.peek("k")));
                assert_eq!(seen(&replaced), seen(&other), "{old} to {new} {quota} after {wait} s");
            }
        }
    }
}

/// The arrival time must not be carried: 40 of 250 random pairs were over, by up to 32 units.
#[test]
fn the_level_of_a_bucket_goes_on_by_the_new_rate_to_the_part_of_a_unit() {
    let (store, clock) = store();
    let limiter = limiter(&store, "p", Algorithm::Gcra, Quota::per_minute(60).burst(10));
    let _ = answer(limiter.check("k").cost(10));
    clock.advance(us(2_500_000));
    replace(&limiter, Algorithm::Gcra, Quota::per_minute(6).burst(10));
    // 7.5 units are left of ten, now of ten seconds each.
    let peek = answer(limiter.peek("k"));
    assert_eq!((peek.remaining(), peek.reset_after()), (2, secs(75)));
}

#[test]
fn windows_of_the_same_period_and_counters_and_logs_go_on_where_they_are() {
    for algorithm in [
        Algorithm::FixedWindow(Anchor::Epoch),
        Algorithm::FixedWindow(Anchor::FirstHit),
        Algorithm::SlidingCounter,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket(Refill::AlignedInterval),
        Algorithm::TokenBucket(Refill::Interval),
    ] {
        let (store, clock) = store();
        let [replaced, left] =
            ["p", "left"].map(|name| limiter(&store, name, algorithm, Quota::per_hour(10)));
        for _ in 0..4 {
            clock.advance(secs(1_300));
            let _ = [&replaced, &left].map(|limiter| answer(limiter.check("k").cost(2)));
        }
        replace(&replaced, algorithm, Quota::per_hour(20));
        for _ in 0..8 {
            let [replaced, left] = [&replaced, &left].map(|limiter| answer(limiter.peek("k")));
            let used = |decision: &Decision| decision.capacity() - decision.remaining();
            assert_eq!(used(&replaced), used(&left), "{algorithm}");
            assert_eq!(replaced.reset_after(), left.reset_after(), "{algorithm}");
            clock.advance(secs(700));
        }
    }
}

#[test]
fn a_quota_whose_rule_stays_keeps_its_keys_whatever_becomes_of_the_others() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (store, clock) = store();
        let limiter = Policy::builder("p", algorithm, "10/h").and("100/d").on(&store).expect("it fits");
        let _ = answer(limiter.check("k").cost(7));
        clock.advance(secs(600));
        let [hour, day] = quotas(&limiter)[..] else { panic!("two quotas") };
        // In another order, and with another limit for the day.
        replace_by(&limiter, Policy::builder("p", algorithm, "50/d").and("10/h"), Inherit::Spent);
        let [new_day, new_hour] = quotas(&limiter)[..] else { panic!("two quotas") };
        assert_eq!(new_hour, hour, "{algorithm}");
        assert_eq!(new_day.0, 50 - (100 - day.0), "{algorithm}");
        // Two more, which start from the most spent one.
        replace_by(
            &limiter,
            Policy::builder("p", algorithm, "50/d").and("10/h").and("8/30s"),
            Inherit::Spent,
        );
        let with_new: Vec<_> = quotas(&limiter).iter().map(|status| status.0).collect();
        assert_eq!(with_new[..2], [new_day.0, new_hour.0], "{algorithm}");
        // A log goes on with the times of its entries: they are more than thirty seconds old.
        let is_log = matches!(algorithm, Algorithm::SlidingLog | Algorithm::SlidingLogIn(_));
        let new = if is_log { 8 } else { 1 };
        assert_eq!(with_new[2], new, "{algorithm}: seven of eight");
        // It was handed over once.
        let _ = answer(limiter.reset("k"));
        assert_eq!(quotas(&limiter).iter().map(|s| s.0).collect::<Vec<_>>(), [50, 10, 8], "{algorithm}");
    }
}

fn quotas(limiter: &RateLimiter) -> Vec<(u64, std::time::Duration)> {
    let decision = answer(limiter.peek("k"));
    decision.quotas().iter().map(|status| (status.remaining(), status.reset_after())).collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(u64),
    Spend(u64),
    Charge(u64),
    Turn(u64),
    GiveBack(u64),
    ReplaceByItself(Inherit),
}

/// Identical replacement is a no-op for every key, whatever it has behind it. A window or a log once started anew with each: a client
/// that knocks every ten minutes never passed.
#[test]
fn replaced_by_itself_at_any_moment_a_policy_decides_as_if_it_had_not_been() {
    let keeping = vec![Inherit::Spent, Inherit::AsIs, Inherit::Proportional, Inherit::Additive];
    let step = prop_oneof![
        4 => prop_oneof![0..=3_u64, 0..=400_000_u64, 0..=5_000_000_u64].prop_map(Step::Advance),
        6 => (1..=4_u64).prop_map(Step::Spend),
        1 => (1..=9_u64).prop_map(Step::Charge),
        2 => (1..=3_u64).prop_map(Step::Turn),
        2 => (1..=3_u64).prop_map(Step::GiveBack),
        3 => prop::sample::select(keeping).prop_map(Step::ReplaceByItself),
    ];
    let trace = (1..=9_u64, 1_000..=9_000_000_u64, any::<bool>(), prop::collection::vec(step, 1..60));
    for algorithm in ALL {
        let config = Config { failure_persistence: None, cases: 64, ..Config::default() };
        let outcome = TestRunner::new(config).run(&trace, |(limit, period, keeps, steps)| {
            let (store, clock) = store();
            let policy = |name| {
                let policy = Policy::builder(name, algorithm, Quota::new(limit, us(period)));
                if keeps { policy.refunds() } else { policy }
            };
            let both = ["p", "left"].map(|name| policy(name).on(&store).expect("it fits"));
            let slots = store.stats().slots;
            steps.into_iter().for_each(|step| apply(step, &both, &clock, policy("p")));
            assert!(slots == 0 || store.stats().slots == slots, "{algorithm}: it is the same table");
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{algorithm}: {failure}");
        }
    }
}

fn apply(step: Step, both: &[RateLimiter; 2], clock: &ManualClock, policy: PolicyBuilder) {
    let decisions = both.each_ref().map(|limiter| match step {
        Step::Advance(_) | Step::ReplaceByItself(_) => answer(limiter.peek("k")),
        Step::Spend(cost) => answer(limiter.check("k").cost(cost)),
        Step::Charge(cost) => answer(limiter.charge("k", cost)),
        Step::Turn(cost) => answer(limiter.check("k").cost(cost).reserve(secs(9))),
        Step::GiveBack(cost) => answer(limiter.refund("k", cost)),
    });
    assert_eq!(decisions[0].quotas(), decisions[1].quotas(), "{step:?}");
    assert_eq!(decisions[0].delay(), decisions[1].delay(), "{step:?}");
    match step {
        Step::Advance(span) => clock.advance(us(span)),
        Step::ReplaceByItself(how) => replace_by(&both[0], policy, how),
        _ => {}
    }
}

#[test]
fn a_replaced_capacity_moves_the_keys_to_the_new_table() {
    for algorithm in ALL {
        let (store, _): (MemoryStore, _) = store();
        let limiter = limiter(&store, "p", algorithm, Quota::per_hour(10));
        let _ = answer(limiter.check("k").cost(6));
        replace_by(&limiter, Policy::builder("p", algorithm, "10/h").table_size(1_000), Inherit::AsIs);
        assert_eq!(answer(limiter.peek("k")).remaining(), 4, "{algorithm}");
    }
}
