//! Policies that are enforced, only tried out, or off, for all that is asked of a handle.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::check_all;
use sluicegate_core::limiter::{Inherit, change_all};
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Decision, Key, MemoryStore, OnExceeded, OnOutage, Policy, RateLimiter, Store};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::{failing, late};
use sluicegate_tests::memory::paused_store;
use tokio::time::Instant;

use crate::support::{ALL, answer, secs, store};

const MODES: [PolicyMode; 3] = [PolicyMode::Off, PolicyMode::Shadow, PolicyMode::Enforce];

fn put(limiter: &RateLimiter, mode: PolicyMode) {
    limiter.replace(limiter.policy().in_mode(mode), Inherit::Spent).unwrap();
    assert_eq!(limiter.policy().mode(), mode);
}

/// It passed, and nobody counted it.
fn is_off(mut decision: Decision) -> bool {
    let is_off = decision.decided_by() == DecidedBy::Off;
    assert_eq!(is_off, !decision.is_counted());
    if is_off {
        assert!(decision.is_allowed() && decision.delay().is_zero() && decision.take_receipt(0).is_none());
        assert_eq!(decision.remaining(), decision.capacity());
    }
    is_off
}

#[test]
fn a_policy_that_is_off_passes_everything_and_spends_nothing() {
    for algorithm in ALL {
        let (store, _) = store();
        let limiter = Policy::builder("p", algorithm, "5/min").on(&store).unwrap();
        let before = answer(limiter.check("ada").cost(3));
        put(&limiter, PolicyMode::Off);
        for asked in [
            limiter.check("ada").start(),
            limiter.check("ada").cost(5).start(),
            limiter.check("ada").cost(999).start(),
            limiter.peek("ada").start(),
            limiter.peek("ada").cost(999).start(),
            limiter.check("ada").cost(5).reserve(secs(60)).start(),
            limiter.charge("ada", 5).start(),
        ] {
            assert!(is_off(answer(asked)), "{algorithm}");
        }
        put(&limiter, PolicyMode::Enforce);
        let after = answer(limiter.peek("ada"));
        assert_eq!((after.remaining(), after.reset_after()), (before.remaining(), before.reset_after()));
    }
}

#[test]
fn a_key_stays_as_it_was_when_the_mode_changes_from_any_to_any() {
    for (algorithm, from, to) in ALL
        .into_iter()
        .flat_map(|algorithm| MODES.map(|from| MODES.map(|to| (algorithm, from, to))))
        .flatten()
    {
        let (store, clock) = store();
        let limiter = Policy::builder("p", algorithm, "5/min").refunds().on(&store).unwrap();
        let mut spent = answer(limiter.check("ada").cost(4));
        let mut receipt = spent.take_receipt(0).unwrap();
        let stands = answer(limiter.peek("ada"));
        put(&limiter, from);
        put(&limiter, to);
        put(&limiter, PolicyMode::Enforce);
        assert_eq!(answer(limiter.peek("ada")).quotas(), stands.quotas(), "{algorithm} {from} {to}");
        // The receipt is as good as it was, in every mode.
        put(&limiter, to);
        let _ = answer(limiter.refund("ada", 4).of(&mut receipt));
        put(&limiter, PolicyMode::Enforce);
        assert_eq!(answer(limiter.peek("ada")).remaining(), 5, "{algorithm} {from} {to}");
        // In the meantime it drains.
        assert!(answer(limiter.check("ada").cost(5)).is_allowed());
        put(&limiter, to);
        clock.advance(secs(120));
        put(&limiter, from);
        put(&limiter, PolicyMode::Enforce);
        assert_eq!(answer(limiter.peek("ada")).remaining(), 5, "{algorithm} {from} {to}");
    }
}

#[test]
fn what_is_reset_and_given_back_by_hand_reaches_a_policy_that_is_off() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/min").on(&store).unwrap();
    let _ = answer(limiter.check("ada").cost(5));
    let _ = answer(limiter.check("bob").cost(5));
    put(&limiter, PolicyMode::Off);
    let _ = answer(limiter.reset("ada"));
    let _ = answer(limiter.refund("bob", 2));
    put(&limiter, PolicyMode::Enforce);
    assert_eq!(["ada", "bob"].map(|key| answer(limiter.peek(key)).remaining()), [5, 2]);
}

#[test]
fn of_several_limiters_those_that_are_off_have_no_say_and_no_numbers() {
    let (memory, _) = store();
    let resilient = Resilient::builder(&memory).fallback(MemoryStore::new()).build().unwrap();
    for store in [Arc::<dyn Store>::from(&memory), resilient.into()] {
        let policy = |name: &str, quota| Policy::gcra(name, quota).refunds().on(Arc::clone(&store)).unwrap();
        let limiters = [policy("a", "9/min"), policy("b", "1/min"), policy("c", "5/min")];
        let ada = Key::from("ada");
        let all = || check_all(limiters.iter().map(|limiter| limiter.check(&ada).cost(2)));
        assert!(!answer(all()).is_allowed(), "two do not fit into the second");
        put(&limiters[1], PolicyMode::Off);
        let mut decision = answer(all());
        let places: Vec<_> = decision.quotas().iter().map(|status| status.policy_index()).collect();
        assert_eq!((places, decision.remaining(), decision.deciding().policy_index()), (vec![0, 2], 3, 2));
        assert!(decision.is_counted() && decision.take_receipt(1).is_none());

        // A receipt is that of its own ask, and what is off is left out of the changes as well.
        let mut receipt = decision.take_receipt(2).unwrap();
        assert_eq!(receipt.cost(), 2);
        let [one, off, three] = &limiters;
        let changed =
            change_all([one.charge(&ada, 1), off.charge(&ada, 1), three.refund(&ada, 2).of(&mut receipt)]);
        assert_eq!(answer(changed).quotas().len(), 2);
        put(&limiters[1], PolicyMode::Enforce);
        let left = limiters.each_ref().map(|limiter| answer(limiter.peek("ada")).remaining());
        assert_eq!(left, [6, 1, 5]);

        for limiter in &limiters {
            put(limiter, PolicyMode::Off);
        }
        let decision = answer(all());
        assert_eq!(decision.quotas().len(), 3);
        assert!(is_off(decision));
        for limiter in &limiters {
            let _ = answer(limiter.reset("ada"));
        }
    }
}

#[tokio::test]
async fn a_policy_that_is_off_asks_no_store_whatever_has_become_of_it() {
    for at_once in [true, false] {
        let store = failing(StoreErrorKind::Unavailable, at_once);
        let off = Policy::gcra("off", "5/min").on_outage(OnOutage::Deny).mode(PolicyMode::Off);
        let off = off.on(Arc::clone(&store)).unwrap();
        assert!(is_off(answer(off.check("ada"))) && is_off(answer(off.charge("ada", 1))));

        let denies = Policy::gcra("denies", "5/min").on_outage(OnOutage::Deny).on(store).unwrap();
        let ada = Key::from("ada");
        let both = check_all([off.check(&ada), denies.check(&ada)]).await.unwrap();
        assert_eq!((both.is_allowed(), both.decided_by()), (false, DecidedBy::Outage));
        assert_eq!(both.deciding().policy_index(), 1);
    }
}

#[test]
fn handles_answer_for_a_policy_in_shadow_as_for_one_that_is_enforced() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "1/min").shadow().on(&store).unwrap();
    assert!(answer(limiter.check("ada")).is_allowed());
    assert!(!answer(limiter.check("ada")).is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_kept_or_given_back_though_its_policy_is_off_by_then() {
    for store in [Arc::<dyn Store>::from(&paused_store()), late(&paused_store())] {
        let policy = Policy::gcra("p", "1/s burst 1").on_exceeded(OnExceeded::Wait { longest: secs(9) });
        let limiter = policy.on(store).unwrap();
        let start = Instant::now();
        assert!(limiter.check("ada").await.unwrap().is_allowed());
        let waits = |limiter: &RateLimiter| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("ada").acquire(secs(9)).await.unwrap() })
        };
        let (first, second) = (waits(&limiter), waits(&limiter));
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        put(&limiter, PolicyMode::Off);
        assert!(
            is_off(limiter.check("ada").acquire(secs(9)).await.unwrap().into_decision()),
            "the next one does not wait"
        );
        assert_eq!(start.elapsed(), secs(0));
        second.abort();
        assert!(first.await.unwrap().is_counted());
        assert_eq!(start.elapsed(), secs(1));
        put(&limiter, PolicyMode::Enforce);
        assert!(limiter.check("ada").acquire(secs(9)).await.unwrap().is_counted());
        assert_eq!(start.elapsed(), secs(2), "the turn that was left has come back");
    }
}

#[test]
fn a_share_of_a_policy_is_in_its_mode() {
    let whole = Policy::gcra("plan", "100/min").mode(PolicyMode::Off).build().unwrap();
    assert_eq!(whole.share("plan.ai", 1, 10).unwrap().mode(), PolicyMode::Off);
}
