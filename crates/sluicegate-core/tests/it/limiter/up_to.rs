//! Spending as much as there is.

use proptest::prelude::*;
use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::{Ask, Mode, Store};
use sluicegate_core::{Algorithm, Key, OnOutage, Outcome, Policy, Quota, RateLimiter};
use sluicegate_tests::outages::{FAILS, Scene, WORKS, now};
use sluicegate_tests::random::Random;

use crate::support::{ALL, answer, is_queue, ms, secs, store, us};

/// All of these quotas, or one where the algorithm has one.
fn limited(algorithm: Algorithm, store: &sluicegate_core::MemoryStore) -> RateLimiter {
    let builder = Policy::builder("p", algorithm, "20/10s");
    if is_queue(algorithm) { builder } else { builder.and("7/s") }.on(store).expect("the policy fits")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// It spends what a look has said is left, as a spend of just that would, and is refused as a spend of one is.
    #[test]
    fn it_spends_what_is_left_up_to_what_is_asked_for(
        which in 0..ALL.len(),
        steps in prop::collection::vec((0..3_000_000_u64, 0..12_u64), 1..40),
    ) {
        let algorithm = ALL[which];
        let ((parts, clock), (whole, same)) = (store(), store());
        let (parts, whole) = (limited(algorithm, &parts), limited(algorithm, &whole));
        for (idle, most) in steps {
            clock.advance(us(idle));
            same.set(us(clock.now_us()));
            let left = answer(whole.peek("k")).quotas().iter().map(|quota| quota.remaining()).min().unwrap_or(0);
            let taken = answer(parts.check("k").up_to(most));
            let spent = answer(whole.check("k").cost(most.min(left.max(1))));
            prop_assert_eq!(taken.outcome(), spent.outcome());
            let units = if spent.is_allowed() { most.min(left.max(1)) } else { 0 };
            prop_assert_eq!(taken.granted(), Some(units), "{} {:?}", algorithm, taken);
            prop_assert_eq!(format!("{:?}", taken.quotas()), format!("{:?}", spent.quotas()));
        }
    }
}

#[test]
fn what_is_held_and_what_was_spent_before_in_the_same_call_is_not_granted_again() {
    let (store, _) = store();
    let store: std::sync::Arc<dyn Store> = store.into();
    let open = |name: &str, quota: &str| {
        store.open(std::sync::Arc::new(Policy::gcra(name, quota).build().unwrap()), None).unwrap()
    };
    let (policy, other) = (open("p", "10/min"), open("other", "4/min"));
    let key = Key::from("k");
    let ask = |policy, cost, mode| Ask::new(policy, key.as_ref(), cost, mode);
    let asks = [ask(&policy, 3, Mode::Spend), ask(&policy, 9, Mode::Take), ask(&other, 9, Mode::Take)];
    let decision = answer(store.decide(&asks));
    let spent: Vec<_> = decision.quotas().iter().map(|quota| quota.spent()).collect();
    // Each ask by itself: the least over the quotas of its own policy.
    assert_eq!((decision.outcome(), spent), (Outcome::Allowed, vec![3, 7, 4]));
    let refused = answer(store.decide(&asks[1..]));
    assert_eq!((refused.outcome(), refused.granted()), (Outcome::Denied, Some(0)));
}

#[test]
fn what_was_taken_is_given_back_by_its_receipt() {
    let (store, _) = store();
    let rows = Policy::fixed_window("rows", "10/min").refunds().on(&store).unwrap();
    let _ = answer(rows.check("k").cost(4));
    let mut taken = answer(rows.check("k").up_to(100));
    assert_eq!((taken.granted(), taken.remaining()), (Some(6), 0));
    let mut receipt = taken.take_receipt(0).expect("it has spent");
    assert_eq!(receipt.cost(), 6);
    let _ = answer(rows.refund("k", 2).of(&mut receipt));
    assert_eq!(answer(rows.check("k").up_to(5)).granted(), Some(2));
}

#[test]
fn a_policy_that_is_off_counts_nobody_and_a_shadow_counts() {
    let (store, _) = store();
    let off = Policy::gcra("off", "5/min").mode(PolicyMode::Off).on(&store).unwrap();
    let decision = answer(off.check("k").up_to(9));
    assert_eq!((decision.is_allowed(), decision.granted()), (true, None));
    let shadow = Policy::gcra("shadow", "5/min").mode(PolicyMode::Shadow).on(&store).unwrap();
    assert_eq!(answer(shadow.check("k").up_to(9)).granted(), Some(5));
}

#[tokio::test]
async fn in_an_outage_the_share_is_what_there_is_and_just_that_is_owed() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    scene.mood(FAILS);
    assert_eq!(now(limiter.check("ada").up_to(60)).granted(), Some(25), "a quarter");
    assert!(!now(limiter.check("ada").up_to(60)).is_allowed());
    scene.mood(WORKS);
    scene.advance(2);
    for _ in 0..4 {
        let _ = limiter.check("bob").await.unwrap();
    }
    assert_eq!(scene.store.close(secs(5)).await, Ok(()));
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 75);
}

#[test]
fn who_is_refused_in_an_outage_was_granted_nothing_and_who_passes_uncounted_has_all_of_it() {
    for (on_outage, is_allowed, granted) in [(OnOutage::Deny, false, Some(0)), (OnOutage::Allow, true, None)]
    {
        let scene = Scene::new(|builder| builder);
        let limiter = scene.limiter(on_outage);
        scene.mood(FAILS);
        let decision = now(limiter.check("ada").up_to(500));
        assert_eq!((decision.is_allowed(), decision.granted()), (is_allowed, granted), "{on_outage}");
    }
}

#[test]
fn a_store_that_was_asked_keeps_its_fallback_warm_by_what_it_granted() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(OnOutage::Local);
    // Another instance, of which this one's fallback hears nothing.
    let other = RateLimiter::new(scene.another(), Policy::clone(&limiter.policy())).unwrap();
    let _ = now(other.check("ada").cost(90));
    assert_eq!(now(limiter.check("ada").up_to(60)).granted(), Some(10));
    let quota = Quota::per_hour(100);
    assert_eq!(limiter.policy().quotas()[0].quota(), quota);
    scene.mood(FAILS);
    // Of its 25 it has spent 10 with the last call.
    assert_eq!(now(limiter.check("ada").up_to(60)).granted(), Some(15));
}

/// Once, an ask for the rest was counted as it was cut, and took more when the wait was over.
#[test]
fn a_joint_refusal_passes_as_a_whole_after_its_wait() {
    let keys = ["ada", "bob"].map(Key::from);
    for algorithm in ALL {
        let ((store, clock), mut random) = (store(), Random::new(1));
        let limiter = limited(algorithm, &store);
        let mut refused = 0;
        for _ in 0..500 {
            clock.advance(ms(random.below(1_500)));
            let asks: Vec<_> = (0..2 + random.below(3))
                .map(|_| {
                    let (check, cost) =
                        (limiter.check(&keys[usize::from(random.below(2) == 0)]), random.below(4));
                    if random.below(4) == 0 { check.up_to(cost) } else { check.cost(cost) }
                })
                .collect();
            let decision = answer(check_all(asks.clone()));
            if decision.outcome() == Outcome::Denied {
                refused += 1;
                clock.advance(decision.retry_after().expect("it was refused"));
                assert!(answer(check_all(asks)).is_allowed(), "{algorithm}: {decision:?}");
            }
        }
        assert!(refused > 20, "{algorithm}: {refused} were refused");
    }
}
