//! What a lease gets, and what it leaves alone.

use std::time::Duration;

use sluicegate_core::algorithm::{Algorithm, Drain};
use sluicegate_core::store::{Ask, Mode};
use sluicegate_core::{Key, Outcome, Policy};

use super::scene::Scene;
use crate::support::{ALL, ms, secs};

#[test]
fn a_lease_is_what_the_spends_of_its_call_leave_wherever_it_stands_among_them() {
    for lease_first in [false, true] {
        let scene = Scene::of(Policy::gcra("p", "10/s"));
        let (spend, lease) = (scene.ask(3, Mode::Spend), scene.ask(20, Mode::Lease));
        let asks = if lease_first { [lease, spend, spend] } else { [spend, lease, spend] };
        let decision = scene.decide(&asks);
        let place = if lease_first { 0 } else { 1 };
        assert_eq!(decision.quotas()[place].spent(), 4);
        assert_eq!((decision.remaining(), scene.remaining()), (0, 0));
    }
}

#[test]
fn a_refused_spend_leases_nothing_and_a_lease_of_nothing_passes() {
    let scene = Scene::of(Policy::gcra("p", "10/s"));
    assert!(scene.spend(8).is_some());
    let refused = scene.decide(&[scene.ask(3, Mode::Spend), scene.ask(2, Mode::Lease)]);
    assert_eq!((refused.outcome(), refused.quotas()[1].spent()), (Outcome::Denied, 0));
    assert_eq!(scene.remaining(), 2);
    let last = scene.decide(&[scene.ask(2, Mode::Spend), scene.ask(2, Mode::Lease)]);
    assert_eq!((last.outcome(), last.quotas()[1].spent()), (Outcome::Allowed, 0));
    let mut nothing = scene.decide(&[scene.ask(u64::MAX, Mode::Lease)]);
    assert!(nothing.is_allowed() && nothing.take_receipt(0).is_none());
}

#[test]
fn a_single_unit_lasts_only_behind_one_that_was_spent() {
    let scene = Scene::of(Policy::gcra("p", "10/s"));
    let lasts = |receipt: &sluicegate_core::limiter::Receipt| receipt.lasts(scene.policy.policy(), 0);
    assert_eq!(lasts(&scene.lease(1)), Duration::ZERO);
    scene.clock.advance(secs(1));
    let (_, lease) = scene.refill(1, 1);
    assert_eq!(lasts(&lease.expect("there is room")), ms(100));
}

#[test]
fn a_lease_is_the_least_that_a_quota_has_and_ends_with_the_first_of_them() {
    let scene = Scene::of(Policy::gcra("p", "10/s").and("6/min"));
    let (_, lease) = scene.refill(1, 20);
    let lease = lease.expect("there is room");
    assert_eq!(lease.cost(), 5);
    // Five of ten a second, behind one that was spent.
    assert_eq!(lease.lasts(scene.policy.policy(), 4), ms(100));
    assert_eq!(lease.lasts(scene.policy.policy(), 0), ms(500));
}

#[test]
fn logs_and_queues_are_not_leased() {
    for algorithm in ALL {
        let scene = Scene::of(Policy::builder("p", algorithm, "10/min"));
        let rule = *scene.policy.policy().quotas()[0].rule();
        let decision = scene.decide(&[scene.ask(1, Mode::Spend), scene.ask(4, Mode::Lease)]);
        let leased = decision.quotas()[1].spent();
        let can = !matches!(
            algorithm,
            Algorithm::SlidingLog
                | Algorithm::SlidingLogIn(_)
                | Algorithm::LeakyBucket(Drain::Queue | Drain::QueueAbove(_))
        );
        assert_eq!((rule.can_lease(), leased), (can, if can { 4 } else { 0 }), "{algorithm}");
        assert!(decision.is_allowed());
    }
}

#[test]
fn a_call_that_waits_leases_nothing() {
    let scene = Scene::of(Policy::gcra("p", "10/s"));
    let other = Key::from("bob");
    assert!(scene.spend(10).is_some());
    let wait = scene.ask(1, Mode::Reserve { longest: secs(1) });
    let lease = Ask::new(&scene.policy, other.as_ref(), 5, Mode::Lease);
    let decision = scene.decide(&[wait, lease]);
    assert_eq!((decision.delay(), decision.quotas()[1].spent()), (ms(100), 0));
}

#[test]
fn a_lease_sees_the_reports_of_its_call() {
    let scene = Scene::of(Policy::gcra("p", "10/s"));
    assert!(scene.spend(10).is_some());
    let leased = |report| scene.decide(&[scene.ask(9, Mode::Lease), report]).quotas()[0].spent();
    assert_eq!(leased(scene.ask(4, Mode::Refund)), 4);
    assert_eq!(leased(scene.ask(1, Mode::Reset)), 9);
    let _ = scene.decide(&[scene.ask(1, Mode::Reset)]);
    assert_eq!(leased(scene.ask(7, Mode::Charge)), 3);
}

#[test]
fn the_second_lease_of_a_call_gets_what_the_first_leaves() {
    let scene = Scene::of(Policy::gcra("p", "10/s"));
    let decision = scene.decide(&[scene.ask(7, Mode::Lease), scene.ask(7, Mode::Lease)]);
    assert_eq!((decision.quotas()[0].spent(), decision.quotas()[1].spent()), (7, 3));
}

#[test]
fn as_many_keys_as_the_table_has_room_for_can_have_leases_at_once() {
    let scene = Scene::of(Policy::gcra("p", "10/s"));
    let leased = |number: u64| {
        let key = Key::from(number);
        scene.decide(&[Ask::new(&scene.policy, key.as_ref(), 5, Mode::Lease)]).quotas()[0].spent()
    };
    assert_eq!((0..64).map(leased).sum::<u64>(), 64 * 5);
    assert_eq!((leased(64), leased(3)), (0, 5), "a key that has a lease can have another");
    scene.clock.advance(secs(2));
    assert_eq!(leased(65), 5, "those of the others are over");
}
