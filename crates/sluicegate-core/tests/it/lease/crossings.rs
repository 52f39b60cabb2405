//! Leases in the middle of everything else: resets, replacements, parts of receipts, outages, counts.

use std::sync::Arc;

use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{Ask, DecidedBy, Mode, Store};
use sluicegate_core::{Key, MemoryStore, OnOutage, Policy};
use sluicegate_observed::Observed;
use sluicegate_tests::outages::{self, FAILS};

use super::scene::Scene;
use crate::support::{answer, ms, secs, us};

/// Two units were given back after the second lease had the same end, and one that was leased again was spent besides.
#[test]
fn a_lease_that_is_given_back_in_parts_restores_the_floor_once() {
    let scene = Scene::of(Policy::gcra("p", "10/s").refunds());
    let paid = scene.spend(2).expect("there is room");
    let mut first = scene.lease(4);
    let rest = first.split(2).expect("there are more");
    scene.refund(&first, 2);
    assert_eq!(scene.remaining(), 6);
    let second = scene.lease(2);
    assert_eq!(scene.remaining(), 4);
    scene.refund(&rest, 2);
    scene.refund(&paid, 2);
    assert_eq!(scene.remaining(), 4, "the second lease ends where the first did, and is out");
    scene.refund(&second, 2);
    assert_eq!(scene.remaining(), 6);
}

#[test]
fn a_refund_lowers_the_bucket_to_the_end_of_a_lease_and_no_further() {
    let scene = Scene::of(Policy::gcra("p", "10/s"));
    let before = scene.spend(2).expect("there is room");
    let lease = scene.lease(3);
    let behind = scene.spend(1).expect("there is room");
    scene.refund(&before, 2);
    assert_eq!(scene.remaining(), 5, "one unit took the place of the first");
    scene.refund(&behind, 1);
    assert_eq!(scene.remaining(), 5);
    scene.clock.advance(ms(100));
    scene.refund(&lease, 3);
    assert_eq!(scene.remaining(), 9, "three and what has drained");
}

#[test]
fn a_reset_forgets_leases_and_their_return_gives_nothing_to_the_key_afterwards() {
    for keeps in [false, true] {
        let policy = Policy::gcra("p", "10/s");
        let scene = Scene::of(if keeps { policy.refunds() } else { policy });
        let lease = scene.lease(6);
        let _ = scene.decide(&[scene.ask(1, Mode::Reset)]);
        // What was spent at the moment of the reset is taken for spent before it.
        scene.clock.advance(us(1));
        let paid = scene.spend(8).expect("it was reset");
        scene.refund(&lease, 6);
        assert_eq!(scene.remaining(), 2);
        scene.refund(&paid, 5);
        assert_eq!(scene.remaining(), 7, "there is no floor any more");
    }
}

#[test]
fn a_lease_keeps_its_floor_in_the_table_of_a_policy_with_the_same_rule() {
    let mut scene = Scene::of(Policy::gcra("p", "10/s"));
    let paid = scene.spend(2).expect("there is room");
    let lease = scene.lease(3);
    let larger = Arc::new(Policy::gcra("p", "10/s").table_size(500).build().expect("it is a policy"));
    let new = scene.store.open(larger, Some((&scene.policy, Inherit::Spent))).expect("it fits");
    scene.store.replaced(&scene.policy, &new, Inherit::Spent);
    scene.policy = new;
    scene.refund(&paid, 2);
    assert_eq!(scene.remaining(), 5);
    scene.refund(&lease, 3);
    assert_eq!(scene.remaining(), 5, "it is the lease of another table");
}

#[test]
fn a_lease_of_a_replaced_rule_gives_nothing_back_and_holds_nothing_up() {
    for inherit in [Inherit::Spent, Inherit::Reset, Inherit::AsIs] {
        let mut scene = Scene::of(Policy::gcra("p", "10/s").refunds());
        let lease = scene.lease(6);
        let new = Arc::new(Policy::gcra("p", "20/s").refunds().build().expect("it is a policy"));
        let new = scene.store.open(new, Some((&scene.policy, inherit))).expect("it fits");
        scene.store.replaced(&scene.policy, &new, inherit);
        scene.policy = new;
        let left = scene.remaining();
        scene.refund(&lease, 6);
        assert_eq!(scene.remaining(), left, "{inherit}");
        let paid = scene.spend(2).expect("there is room");
        scene.refund(&paid, 2);
        assert_eq!(scene.remaining(), left, "{inherit}");
    }
}

#[test]
fn units_of_a_request_that_waits_for_another_limit_are_not_leased() {
    let scene = Scene::of(Policy::gcra("p", "10/s"));
    let other = Policy::gcra("slow", "1/s").build().expect("it is a policy");
    let other = scene.store.open(Arc::new(other), None).expect("it fits");
    let wait = |cost, policy| Ask::new(policy, scene.key.as_ref(), cost, Mode::Reserve { longest: secs(9) });
    let _ = scene.decide(&[wait(1, &other)]);
    assert_eq!(scene.decide(&[wait(1, &other), wait(4, &scene.policy)]).delay(), secs(1));
    let lease = scene.lease(10);
    assert_eq!(lease.cost(), 6, "four are counted");
    scene.refund(&lease, 6);
    assert_eq!(scene.remaining(), 6, "the four stay spent");
}

#[test]
fn the_fallback_leases_nothing_and_hears_of_what_the_store_leased() {
    let outage = outages::Scene::new(|builder| builder);
    let store: Arc<dyn Store> = (&outage.store).into();
    let policy = Policy::gcra("p", "40/h").on_outage(OnOutage::Local).build().expect("it is a policy");
    let policy = store.open(Arc::new(policy), None).expect("it fits");
    let key = Key::from("ada");
    let refill = |units| {
        let ask = |cost, mode| Ask::new(&policy, key.as_ref(), cost, mode);
        let mut decision = answer(store.decide(&[ask(1, Mode::Spend), ask(units, Mode::Lease)]));
        let lease = decision.take_receipt(1).map(|lease| lease.cost());
        (decision.decided_by(), decision.is_allowed(), lease)
    };
    assert_eq!(refill(4), (DecidedBy::Store, true, Some(4)));
    outage.mood(FAILS);
    assert_eq!(refill(4), (DecidedBy::Fallback, true, None));
    let left = answer(store.decide(&[Ask::new(&policy, key.as_ref(), 1, Mode::Peek)])).remaining();
    assert_eq!(left, 4, "six were spent of the quarter that this instance has");
}

#[test]
fn a_lease_is_no_request_and_its_units_are_counted() {
    let memory = MemoryStore::new();
    let observed = Observed::named("leases", memory).expect("the name is free");
    let store: Arc<dyn Store> = (&observed).into();
    let limiter = Policy::gcra("p", "10/h").on(&observed).expect("it fits");
    let policy = store.open(limiter.policy(), None).expect("it is the same");
    let key = Key::from("ada");
    let ask = |cost, mode| Ask::new(&policy, key.as_ref(), cost, mode);
    let mut decision = answer(store.decide(&[ask(1, Mode::Spend), ask(4, Mode::Lease)]));
    let lease = decision.take_receipt(1).expect("there is room");
    let _ = answer(store.decide(&[ask(3, Mode::Refund).of(&lease)]));
    let seen = observed.snapshot();
    let counted = &seen.policies[0];
    assert_eq!((counted.totals.allowed, counted.units.spent, counted.units.refunded), (1, 5, 3));
}
