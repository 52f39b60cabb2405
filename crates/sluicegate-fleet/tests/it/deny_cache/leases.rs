//! Around leases: calls for units and not for requests, and refusals that leave alone what is held.

use std::time::Duration;

use sluicegate_core::limiter::check_all;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Key, Policy};
use sluicegate_fleet::{DenyCache, Leased};
use sluicegate_tests::memory::{answer, store_on};
use sluicegate_tests::time::on_the_hour;

use super::counted;

#[test]
fn a_key_at_its_limit_costs_two_calls_for_each_unit_however_many_ask() {
    let clock = on_the_hour();
    let (within, calls) = counted(store_on(clock.clone()));
    let leased = Leased::builder(within).clock(clock.clone()).build().unwrap();
    let cache = DenyCache::builder(&leased).clock(clock.clone()).build().unwrap();
    let api = Policy::gcra("api", "1000/s").on(&cache).unwrap();
    let (mut admitted, mut before) = (0, 0);
    for ms in 0..12_000 {
        // The burst is used up after two seconds, and then ten times as many ask as pass.
        if ms == 2_000 {
            (admitted, before) = (0, calls.load(std::sync::atomic::Ordering::Relaxed));
        }
        for _ in 0..10 {
            let decision = answer(api.check("ada"));
            admitted += u64::from(decision.is_allowed());
            if decision.decided_by() == DecidedBy::Cache {
                assert_eq!(decision.retry_after(), Some(Duration::from_millis(1)));
            }
        }
        clock.advance(Duration::from_millis(1));
    }
    let calls = calls.load(std::sync::atomic::Ordering::Relaxed) - before;
    assert!((9_900..=10_100).contains(&admitted), "{admitted} of 10,000 in ten seconds");
    assert!(calls <= 2 * admitted, "{calls} calls for 100,000 decisions");
}

/// Once such a refusal was repeated although units were there.
#[test]
fn what_several_limits_are_refused_together_leaves_units_that_are_held_for_one() {
    let clock = on_the_hour();
    let memory = store_on(clock.clone());
    let leased = Leased::builder(&memory).clock(clock.clone()).build().unwrap();
    let cache = DenyCache::builder(&leased).clock(clock.clone()).build().unwrap();
    let (user, route) = (
        Policy::fixed_window("user", "1000/h").on(&cache).unwrap(),
        Policy::fixed_window("route", "1000/h").on(&cache).unwrap(),
    );
    let mut held = 0;
    while held == 0 {
        assert!(answer(user.check("ada")).is_allowed());
        clock.advance(Duration::from_millis(1));
        held = leased.status().held;
    }
    let elsewhere = Policy::fixed_window("user", "1000/h").on(&memory).unwrap();
    assert!(answer(elsewhere.check("ada").up_to(1_000)).is_allowed());
    let [ada, search] = ["ada", "/search"].map(Key::from);
    let both = || answer(check_all([user.check(&ada), route.check(&search)]));
    assert_eq!([both().decided_by(), both().decided_by()], [DecidedBy::Store, DecidedBy::Cache]);
    for _ in 0..held {
        let alone = answer(user.check("ada"));
        assert_eq!((alone.is_allowed(), alone.decided_by()), (true, DecidedBy::Lease));
    }
    assert!(!answer(user.check("ada")).is_allowed());
    // What is reported ends both.
    _ = answer(user.reset("ada"));
    assert!(both().is_allowed() && answer(user.check("ada")).is_allowed());
}
