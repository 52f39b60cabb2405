//! Policies for which forgetting is worse than refusing: a key that makes room leaves its debt to those that come after.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::{Anchor, Drain, Refill};
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::{Inherit, Receipt};
use sluicegate_core::memory::MemoryStats;
use sluicegate_core::policy::{OnFull, PolicyBuilder};
use sluicegate_core::{Algorithm, Decision, MemoryStore, Policy, Quota, RateLimiter};

use crate::support::{ALL, answer, secs, store_for, us};

const VICTIMS: std::ops::Range<u64> = 0..8;

/// Each algorithm, with a second word in memory and without.
fn policies(quota: Quota) -> impl Iterator<Item = (String, PolicyBuilder)> {
    ALL.into_iter().flat_map(move |algorithm| {
        let policy = Policy::builder("p", algorithm, quota).on_full(OnFull::Inherit);
        [(algorithm.to_string(), policy.clone()), (format!("{algorithm}, refunds"), policy.refunds())]
    })
}

/// A store that is far too small, whose first keys have spent all that they may, before and while others came.
fn flooded(policy: PolicyBuilder, keys: u64) -> (MemoryStore, ManualClock, RateLimiter) {
    let (store, clock) = store_for(16, 1_600);
    let limiter = policy.on(&store).expect("it fits");
    let spend = |key| while answer(limiter.check(key)).is_allowed() {};
    VICTIMS.for_each(spend);
    for key in 1_000..1_000 + keys {
        clock.advance(us(1));
        let _ = answer(limiter.check(key).cost(1 + key % 5));
    }
    (store, clock, limiter)
}

fn freed(limiter: &RateLimiter) -> usize {
    VICTIMS.filter(|key| answer(limiter.peek(*key)).is_allowed()).count()
}

/// A flood whose keys spend as much as the debtors gave most of them their bucket back.
#[test]
fn no_flood_frees_a_debtor() {
    for (name, policy) in policies(Quota::per_hour(5)) {
        let (store, _, limiter) = flooded(policy.clone(), 5_000);
        assert_eq!(freed(&limiter), 0, "{name}");
        let MemoryStats { evictions, inherited, .. } = store.stats();
        assert!(evictions == 0 && inherited > 0, "{name}: {inherited} inherited, {evictions} forgotten");
        let (store, _, limiter) = flooded(policy.on_full(OnFull::Forget), 5_000);
        assert!(freed(&limiter) > 0 && store.stats().inherited == 0, "{name}: the default forgets");
    }
}

/// Charges and turns are entered whether there is room or not.
#[test]
fn no_flood_of_charges_or_turns_frees_a_debtor() {
    for (name, policy) in policies(Quota::per_hour(5)) {
        let (_, clock, limiter) = flooded(policy, 0);
        for key in 1_000..3_000_u64 {
            clock.advance(us(1));
            let _ = answer(limiter.charge(key, 7));
            let _ = answer(limiter.check(key + 10_000).reserve(secs(3_600)));
        }
        assert_eq!(freed(&limiter), 0, "{name}");
    }
}

#[test]
fn a_new_key_is_refused_no_longer_than_the_heaviest_debt_drains() {
    for (name, policy) in policies(Quota::per_hour(5)) {
        let (_, clock, limiter) = flooded(policy, 5_000);
        // A counter forgets a window after the next one; all others are at rest after a period.
        let longest = if name.starts_with("sliding-counter") { secs(7_200) } else { secs(3_600) };
        let new = || 1_000_000..1_000_100_u64;
        let refused = new().map(|key| answer(limiter.peek(key))).filter(|decision| !decision.is_allowed());
        let waits: Vec<_> =
            refused.map(|decision| decision.retry_after().expect("it passes later")).collect();
        assert!(!waits.is_empty() && waits.iter().all(|wait| *wait <= longest), "{name}: {waits:?}");
        clock.advance(longest);
        for key in new() {
            let decision = answer(limiter.peek(key).cost(5));
            assert!(decision.is_allowed() && decision.reset_after().is_zero(), "{name}: {decision:?}");
        }
    }
}

#[test]
fn without_a_flood_nobody_is_refused() {
    for (name, policy) in policies(Quota::per_hour(5)) {
        let (store, _) = store_for(10_000, 16_000);
        let limiter = policy.on(&store).expect("it fits");
        for key in 0..20_u64 {
            let decision = answer(limiter.check(key).cost(5));
            assert!(decision.is_allowed(), "{name}");
        }
        assert_eq!(store.stats().inherited, 0, "{name}");
    }
}

/// Where a window begins with a key's first unit, an inherited one begins at another moment than the key's own would.
fn begins_alike(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::FixedWindow(Anchor::FirstHit) | Algorithm::TokenBucket(Refill::Interval))
}

/// One step of a crowd: which key, after which time, how many units, and how.
type Step = (u64, u64, u64, u8);

/// A key never has more than it would have where there is room for all: whatever makes room for whatever. Once in 15,000 cases it
/// had: a turn that had come where there was room, and had not come here, was given up.
#[test]
fn a_full_store_never_admits_what_one_with_room_would_refuse() {
    let steps = prop::collection::vec((0..200_u64, 0..40_000_000_u64, 1..=4_u64, 0..8_u8), 1..400);
    for (algorithm, refunds) in ALL.into_iter().flat_map(|algorithm| [(algorithm, false), (algorithm, true)])
    {
        if !begins_alike(algorithm) {
            continue;
        }
        let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&steps, |steps| {
            let policy = Policy::builder("p", algorithm, Quota::per_hour(5)).on_full(OnFull::Inherit);
            compare(if refunds { policy.refunds() } else { policy }, &steps)
        });
        if let Err(failure) = outcome {
            panic!("{algorithm}, refunds {refunds}: {failure}");
        }
    }
}

fn compare(policy: PolicyBuilder, steps: &[Step]) -> Result<(), TestCaseError> {
    let stores = [(4, 160), (100_000, 160_000)].map(|(keys, entries)| store_for(keys, entries));
    let [full, roomy] = stores.each_ref().map(|(store, _)| policy.clone().on(store).expect("it fits"));
    let mut receipts = Vec::new();
    for &(key, idle, cost, how) in steps {
        stores.iter().for_each(|(_, clock)| clock.advance(us(idle)));
        match how {
            0 => {
                let _ = [&full, &roomy].map(|limiter| answer(limiter.charge(key, cost)));
            }
            1 if !receipts.is_empty() => {
                let (key, mut own): (u64, [Receipt; 2]) = receipts.remove(receipts.len() / 2);
                let has_come = own.each_ref().map(|turn| turn.at_us() <= stores[0].1.now_us());
                if has_come[0] != has_come[1] {
                    // See `a_turn_that_was_put_off_for_what_others_left_can_be_given_up_before_it_comes`.
                    continue;
                }
                let _ = answer(full.refund(key, 1).of(&mut own[0]));
                let _ = answer(roomy.refund(key, 1).of(&mut own[1]));
            }
            _ => {
                let mut admitted = answer(full.check(key).cost(cost));
                if admitted.is_allowed() {
                    let mut other = answer(roomy.check(key).cost(cost));
                    prop_assert!(other.is_allowed(), "{key} has {other:?}, and was admitted: {admitted:?}");
                    prop_assert!(admitted.delay() >= other.delay());
                    receipts.push((
                        key,
                        [&mut admitted, &mut other].map(|it| it.take_receipt(0).expect("it spends")),
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Why [`compare`] leaves such a refund out. What is given back after its turn comes back only while no turn of any key is out; a
/// turn that has not come is given up by itself. So a full store, which puts turns off, may take back what one with room keeps.
#[test]
fn a_turn_that_was_put_off_for_what_others_left_can_be_given_up_before_it_comes() {
    let queue = Algorithm::LeakyBucket(Drain::Queue);
    let policy = Policy::builder("p", queue, Quota::per_hour(5)).on_full(OnFull::Inherit).refunds();
    // One set of four keys, and room for all.
    let stores = [(1, 160), (100_000, 160_000)].map(|(keys, entries)| store_for(keys, entries));
    let limiters = stores.each_ref().map(|(store, _)| policy.clone().on(store).expect("it fits"));
    let check = |key: &str, cost| limiters.each_ref().map(|limiter| answer(limiter.check(key).cost(cost)));
    let advance = |by| stores.iter().for_each(|(_, clock)| clock.advance(by));
    let _ = check("a", 1);
    advance(secs(300));
    for (key, cost) in [("b", 2), ("c", 2), ("e", 2), ("d", 3), ("d", 1)] {
        let _ = check(key, cost);
    }
    // The first key has made room, and left its 420 seconds.
    let turns = check("k", 1);
    assert_eq!(turns.each_ref().map(Decision::delay), [secs(420), secs(0)]);
    advance(secs(100));
    for (limiter, mut turn) in limiters.iter().zip(turns) {
        let mut receipt = turn.take_receipt(0).expect("it spends");
        let _ = answer(limiter.refund("k", 1).of(&mut receipt));
    }
    let standing = limiters.each_ref().map(|limiter| answer(limiter.peek("k")).reset_after());
    assert_eq!(standing, [secs(320), secs(620)], "what was left, and the unit");
}

#[test]
fn the_units_of_a_key_that_made_room_are_not_given_back_to_another_bucket() {
    for algorithm in ALL {
        let policy = Policy::builder("p", algorithm, Quota::per_hour(5)).on_full(OnFull::Inherit);
        let policy = policy.refunds().debt_up_to(10_000);
        let (store, clock) = store_for(1, 1_600);
        let limiter = policy.on(&store).expect("it fits");
        let flood = |cost| {
            for key in 0..200_u64 {
                clock.advance(us(1));
                let _ = answer(limiter.charge(key, cost));
            }
        };
        flood(1);
        // It inherits when it spends, and again when its units come back.
        let mut receipt = answer(limiter.charge("k", 2)).take_receipt(0).expect("it is carried out");
        flood(9);
        let left = || answer(limiter.peek("k")).reset_after();
        let before = left();
        let _ = answer(limiter.refund("k", 2).of(&mut receipt));
        assert_eq!(left(), before, "{algorithm}");
    }
}

#[test]
fn what_was_left_is_handed_over_once_when_the_policy_is_replaced() {
    let quotas = [Quota::per_hour(5), Quota::new(5, secs(1_800))];
    let all = || policies(Quota::per_hour(5));
    let pairs =
        quotas.into_iter().flat_map(|quota| policies(quota).zip(all()).map(move |pair| (quota, pair)));
    for (quota, ((name, policy), (_, before))) in pairs {
        let (_, clock, limiter) = flooded(before, 5_000);
        limiter
            .replace(policy.table_size(200).build().expect("it is good"), Inherit::Spent)
            .expect("it fits");
        assert_eq!(freed(&limiter), 0, "{name}, {quota}");
        let new = 7_777_777;
        let left = || answer(limiter.peek(new)).reset_after();
        let first = left();
        for _ in 0..20 {
            clock.advance(us(1));
            let _ = answer(limiter.peek(new));
        }
        assert!(left() <= first, "{name}, {quota}: what is inherited is not added again");
        clock.advance(secs(7_200));
        assert!(answer(limiter.check(new).cost(5)).is_allowed(), "{name}, {quota}");
    }
}

#[test]
fn the_setting_belongs_to_the_policy() {
    let (store, _) = store_for(16, 1_600);
    let policy = || Policy::gcra("p", "5/min").on_full(OnFull::Inherit);
    let built = policy().build().expect("it is good");
    assert_eq!(built.share("p.part", 1, 5).expect("it is good").on_full(), OnFull::Inherit);
    assert_eq!(Policy::gcra("p", "5/min").build().expect("it is good").on_full(), OnFull::Forget);
    let limiter = policy().on(&store).expect("it fits");
    policy().on(&store).expect("it is open");
    let error = Policy::gcra("p", "5/min").on(&store).expect_err("it would forget");
    assert_eq!(error.kind(), ConfigErrorKind::NameTaken);
    limiter
        .replace(Policy::gcra("p", "5/min").build().expect("it is good"), Inherit::Spent)
        .expect("it fits");
    assert_eq!(limiter.policy().on_full(), OnFull::Forget);
}
