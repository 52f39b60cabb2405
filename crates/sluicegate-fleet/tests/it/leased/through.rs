//! What goes through to the store within.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_core::algorithm::Drain;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::{PolicyBuilder, PolicyMode};
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Algorithm, OnExceeded, Policy};
use sluicegate_fleet::leased::{Leased, Unleased};
use sluicegate_resilient::Resilient;
use sluicegate_tests::memory::{answer, store};

use super::{MS, Scene, lease, spend};
use crate::support::failing;

#[test]
fn what_cannot_be_leased_passes_through_and_is_listed() {
    let scene = Scene::new();
    let policies = [
        (Policy::sliding_log("log", "500/h"), Unleased::Log),
        (Policy::builder("queue", Algorithm::LeakyBucket(Drain::Queue), "1000/min"), Unleased::Queue),
        (
            Policy::gcra("waits", "1000/min")
                .on_exceeded(OnExceeded::Wait { longest: Duration::from_secs(1) }),
            Unleased::Waits,
        ),
        (Policy::gcra("suspends", "1000/min").suspend(10, "1min", "1min"), Unleased::Suspends),
        (Policy::gcra("small", "4/min"), Unleased::TooSmall),
        (Policy::gcra("starts", "1000/min start 10"), Unleased::Starts),
        (of_quotas("many", 9), Unleased::TooManyQuotas),
    ];
    let mut open = Vec::new();
    for (policy, why) in policies {
        let limiter = scene.limiter(policy);
        for _ in 0..4 {
            let decision = answer(limiter.check("ada"));
            assert_eq!(decision.decided_by(), DecidedBy::Store, "{why}");
        }
        open.push((limiter, why));
    }
    let mut listed = scene.store.unleased();
    listed.retain(|(name, _)| open.iter().any(|(limiter, _)| limiter.policy().name() == name));
    let mut expected: Vec<_> =
        open.iter().map(|(limiter, why)| (limiter.policy().name().to_owned(), *why)).collect();
    expected.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert_eq!(listed, expected);
    drop(open);
    assert!(scene.store.unleased().is_empty());
}

/// A policy of this many quotas.
fn of_quotas(name: &str, count: u64) -> PolicyBuilder {
    let more = (2..=count).map(|place| format!("{}/{place}min", place * 1_000));
    more.fold(Policy::gcra(name, "1000/min"), |policy, quota| policy.and(quota.as_str()))
}

/// Once the lease that was asked for beside a spend was too much for one call, and the request failed.
#[test]
fn a_policy_of_many_quotas_is_leased_as_far_as_a_lease_fits_beside_a_spend() {
    let scene = Scene::new();
    for count in [8, 9, 16] {
        let limiter = scene.limiter(of_quotas(&format!("of-{count}"), count));
        assert_eq!(spend(&limiter, "ada", 20) > 0, count == 8, "{count} quotas");
    }
}

#[test]
fn a_peek_is_what_the_store_says_and_what_is_held() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::fixed_window("api", "1000/h"));
    let mut passed = 0;
    while scene.store.status().held < 4 {
        passed += 1;
        assert!(answer(limiter.check("ada")).is_allowed());
    }
    assert_eq!(answer(limiter.peek("ada")).remaining(), 1_000 - passed);
    // Another instance has taken all that the store had; what is held here is still to be spent.
    let other = Policy::fixed_window("api", "1000/h").on(scene.another()).unwrap();
    let left = answer(other.peek("ada")).remaining();
    assert!(answer(other.check("ada").cost(left)).is_allowed());
    assert!(!answer(other.peek("ada")).is_allowed());
    let look = answer(limiter.peek("ada"));
    assert_eq!((look.is_allowed(), look.remaining()), (true, scene.store.status().held));
    assert!(!answer(limiter.peek("ada").cost(look.remaining() + 1)).is_allowed());
}

#[test]
fn a_reset_here_drops_what_is_held_at_once() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
    lease(&limiter, "ada");
    lease(&limiter, "grace");
    let held = scene.store.status();
    drop(answer(limiter.reset("ada")));
    let after = scene.store.status();
    assert_eq!(after.keys, 1, "another key keeps what it has");
    assert_eq!(after.lost - held.lost, held.held - after.held);
    assert_eq!(answer(limiter.check("ada")).decided_by(), DecidedBy::Store);
}

#[test]
fn a_replacement_here_drops_what_is_held_at_once_whatever_is_inherited() {
    for how in [Inherit::AsIs, Inherit::Spent, Inherit::Reset, Inherit::Proportional, Inherit::Additive] {
        let scene = Scene::new();
        let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
        lease(&limiter, "ada");
        limiter.replace(Policy::gcra("api", "800/min").build().unwrap(), how).unwrap();
        assert_eq!(scene.store.status().held, 0, "{how:?}");
        // It is leased under the new one.
        let decision = answer(limiter.check("ada"));
        assert_eq!((decision.decided_by(), decision.capacity()), (DecidedBy::Store, 800));
        lease(&limiter, "ada");
    }
}

#[test]
fn reset_all_drops_what_is_held_of_every_key() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
    lease(&limiter, "ada");
    lease(&limiter, "bob");
    limiter.reset_all().unwrap();
    assert_eq!(scene.store.status().held, 0);
    let decision = answer(limiter.check("ada").cost(1_000));
    assert_eq!((decision.is_allowed(), decision.decided_by()), (true, DecidedBy::Store));
}

#[test]
fn a_reset_elsewhere_is_seen_at_the_next_refill() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::fixed_window("api", "1000/h"));
    let other = Policy::fixed_window("api", "1000/h").on(scene.another()).unwrap();
    lease(&limiter, "ada");
    let held = scene.store.status().held;
    drop(answer(other.reset("ada")));
    // What is held is spent beside the fresh bucket, and no more than that.
    let mut beside = 0;
    while answer(limiter.check("ada")).decided_by() == DecidedBy::Lease && scene.store.status().lost == 0 {
        beside += 1;
    }
    assert!(beside <= held, "{beside} of {held}");
}

#[test]
fn a_charge_goes_to_the_store_and_leaves_what_is_held() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
    lease(&limiter, "ada");
    let held = scene.store.status().held;
    drop(answer(limiter.charge("ada", 2_000)));
    assert_eq!(scene.store.status().held, held);
    assert_eq!(spend(&limiter, "ada", 1), 1, "those units were debited before");
}

#[test]
fn a_refund_of_a_unit_that_was_spent_here_never_lowers_the_bucket_below_the_lease() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
    let plain = Policy::gcra("api", "1000/min").on(&scene.memory).unwrap();
    lease(&limiter, "ada");
    let mut decision = answer(limiter.check("ada"));
    let left = |now: &str| (now.to_owned(), answer(plain.peek("ada")).remaining()).1;
    let before = left("before");
    let mut receipt = decision.take_receipt(0).expect("it has spent a unit");
    assert_eq!((receipt.decided_by(), receipt.cost()), (DecidedBy::Lease, 1));
    drop(answer(limiter.refund("ada", 1).of(&mut receipt)));
    assert_eq!(left("while the lease is out"), before);
    // Behind the lease there is something to take the place of.
    assert!(answer(plain.check("ada").cost(10)).is_allowed());
    let mut decision = answer(limiter.check("ada"));
    drop(answer(limiter.refund("ada", 1).of(&mut decision.take_receipt(0).unwrap())));
    assert_eq!(left("after"), before - 9);
}

#[test]
fn a_refund_counts_the_time_since_the_spend() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::fixed_window("api", "1000/min"));
    lease(&limiter, "ada");
    let mut decision = answer(limiter.check("ada"));
    scene.clock.advance(Duration::from_secs(60));
    assert!(answer(limiter.check("ada").cost(10)).is_allowed());
    let before = answer(limiter.peek("ada")).remaining();
    drop(answer(limiter.refund("ada", 1).of(&mut decision.take_receipt(0).unwrap())));
    assert_eq!(answer(limiter.peek("ada")).remaining(), before, "its window has ended");
}

#[test]
fn an_answer_of_the_fallback_is_no_lease() {
    let (memory, clock) = store();
    let (shared, is_away) = failing(&memory);
    let resilient = Resilient::builder(shared).clock(clock.clone()).replicas(2).build().unwrap();
    let store = Leased::builder(&resilient).clock(clock.clone()).build().unwrap();
    let limiter = Policy::fixed_window("api", "1000/h").on(&store).unwrap();
    lease(&limiter, "ada");
    let held = store.status().held;
    is_away.store(true, Ordering::Relaxed);
    assert!(held > 0);
    let mut local = 0;
    for _ in 0..200 {
        local += u64::from(answer(limiter.check("ada")).decided_by() == DecidedBy::Lease);
        clock.advance(MS);
    }
    assert_eq!(local, held, "what was held is spent, and nothing is added");
    assert_eq!(answer(limiter.check("grace")).decided_by(), DecidedBy::Fallback);
    assert_eq!(store.status().held, 0);
}

#[test]
fn a_shadow_policy_is_leased_as_any_other_and_one_that_is_off_asks_nobody() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min").mode(PolicyMode::Shadow));
    lease(&limiter, "ada");
    limiter.replace(limiter.policy().in_mode(PolicyMode::Off), Inherit::Spent).unwrap();
    assert_eq!(answer(limiter.check("ada")).decided_by(), DecidedBy::Off);
}

#[test]
fn an_idle_key_does_not_keep_the_name_of_its_policy() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
    lease(&limiter, "ada");
    drop(limiter);
    let other = scene.limiter(Policy::gcra("api", "2000/min"));
    assert_eq!(answer(other.check("ada")).capacity(), 2_000);
}

/// A policy becomes one whose keys start short while units of it are held, and is leased again when it is none any more.
#[test]
fn a_replacement_by_a_policy_whose_keys_start_short_ends_leases_and_keeps_the_bound() {
    let scene = Scene::new();
    let limiter = scene.limiter(Policy::gcra("api", "1000/min"));
    lease(&limiter, "ada");
    assert!(scene.store.status().held > 0);
    let passed = 1_000 - answer(limiter.peek("ada")).remaining();
    let replace = |quota: &str| {
        let policy = Policy::gcra("api", quota).build().unwrap();
        limiter.replace(policy, Inherit::Spent).unwrap();
    };
    replace("1000/min start 10");
    assert_eq!(scene.store.unleased(), [("api".to_owned(), Unleased::Starts)]);
    // What was held is spent in the store, and of no use to anybody here.
    let held = |scene: &Scene| scene.store.status().held;
    assert_eq!(held(&scene), 0);
    let left = answer(limiter.peek("ada")).remaining();
    assert!(left <= 1_000 - passed, "{left} left of 1,000, {passed} passed");
    assert!(answer(limiter.check("ada").cost(left)).is_allowed(), "a key that is known is no newcomer");
    assert!(!answer(limiter.check("ada")).is_allowed());
    assert!(!answer(limiter.check("eve").cost(11)).is_allowed());
    assert_eq!(spend(&limiter, "eve", 10), 0);
    replace("1000/min");
    assert!(scene.store.unleased().is_empty());
    assert!(!answer(limiter.check("eve")).is_allowed(), "what it lacked counts as spent");
    lease(&limiter, "bob");
}
