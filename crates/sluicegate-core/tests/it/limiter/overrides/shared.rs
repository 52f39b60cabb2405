//! On a store that instances share.

use std::sync::Arc;

use sluicegate_core::algorithm::Anchor;
use sluicegate_core::limiter::{OverrideErrorKind, Overrides};
use sluicegate_core::policy::Override;
use sluicegate_core::{Algorithm, Policy, RateLimiter};
use sluicegate_resilient::Resilient;
use sluicegate_tests::time::on_the_hour;

use super::fleet::{Fleet, Instance};
use super::{nine, to};
use crate::support::{answer, secs};

fn on(instance: &Arc<Instance>, algorithm: Algorithm, quota: &str) -> RateLimiter {
    let policy = Policy::builder("p", algorithm, quota).build().unwrap();
    RateLimiter::new(instance.store(), policy).unwrap()
}

fn text(limiter: &RateLimiter) -> String {
    limiter.policy().to_string()
}

#[tokio::test]
async fn an_override_wins_on_every_instance_whatever_its_code_says() {
    let fleet = Fleet::new(on_the_hour());
    let (one, other) = (fleet.instance(), fleet.instance());
    let limiters = [on(&one, Algorithm::Gcra, "5/min"), on(&other, Algorithm::SlidingCounter, "7/min")];
    let overrides = [one.store(), other.store()].map(Overrides::of);
    assert!(overrides[0].are_shared());
    let standing = overrides[0].put(nine("p")).await.unwrap();
    assert_eq!(text(&limiters[0]), "p: 9/min (gcra)");
    assert_eq!(text(&limiters[1]), "p: 7/min (sliding-counter)", "it has not looked yet");
    other.look();
    assert_eq!(text(&limiters[1]), "p: 9/min (sliding-counter)");
    assert_eq!(overrides[1].list(), [Arc::clone(&standing)]);

    // An instance that starts has it at once.
    let third = fleet.instance();
    third.look();
    assert_eq!(text(&on(&third, Algorithm::FixedWindow(Anchor::Epoch), "6/min")), "p: 9/min (fixed-window)");

    overrides[1].withdraw("p", standing.version(), "bob").await.unwrap();
    one.look();
    assert_eq!(limiters.each_ref().map(text), ["p: 5/min (gcra)", "p: 7/min (sliding-counter)"]);
    let told = one.told.lock().unwrap();
    assert_eq!(
        *told,
        ["p: 5/min (gcra) -> p: 9/min (gcra) by ada", "p: 9/min (gcra) -> p: 5/min (gcra) by bob"]
    );
}

#[tokio::test]
async fn of_two_operators_on_two_instances_the_second_sees_what_the_first_has_done() {
    let fleet = Fleet::new(on_the_hour());
    let (one, other) = (fleet.instance(), fleet.instance());
    let _limiters = [&one, &other].map(|instance| on(instance, Algorithm::Gcra, "5/min"));
    let first = Overrides::of(one.store()).put(nine("p")).await.unwrap();
    // The other instance has not looked since.
    let overrides = Overrides::of(other.store());
    let error = overrides.put(Override::builder("p", "bob").quota("7/min")).await.unwrap_err();
    assert_eq!((error.kind(), error.standing()), (OverrideErrorKind::OutOfDate, Some(&*first)));
    assert_eq!(overrides.list(), [first], "and from now on it knows it");
}

#[tokio::test]
async fn an_outage_keeps_overrides_to_their_end_and_lets_none_be_put() {
    let fleet = Fleet::new(on_the_hour());
    let instance = fleet.instance();
    let resilient = Resilient::builder(instance.store()).clock(fleet.clock.clone()).build().unwrap();
    let policy = || Policy::gcra("p", "5/min").build().unwrap();
    let limiter = RateLimiter::new(&resilient, policy()).unwrap();
    let overrides = Overrides::of(&resilient);
    assert!(overrides.are_shared());
    let standing = overrides.put(nine("p").lasting(secs(60))).await.unwrap();
    fleet.set_away(true);
    instance.look();
    assert_eq!(limiter.peek("k").await.unwrap().capacity(), 9);
    let error = overrides.put(nine("p").replacing(standing.version())).await.unwrap_err();
    assert_eq!(error.kind(), OverrideErrorKind::Store);
    assert!(
        std::error::Error::source(&error)
            .is_some_and(|source| !error.to_string().contains(&source.to_string()))
    );
    assert!(
        overrides.withdraw("p", standing.version(), "ada").await.is_err() && overrides.read().await.is_err()
    );
    assert_eq!(overrides.list(), [standing]);
    fleet.clock.advance(secs(60));
    assert_eq!(
        limiter.peek("k").await.unwrap().capacity(),
        5,
        "its time is over, also when the store is away"
    );
}

#[tokio::test]
async fn instances_write_again_what_the_store_has_lost() {
    let fleet = Fleet::new(on_the_hour());
    let (one, other) = (fleet.instance(), fleet.instance());
    let limiters = [&one, &other].map(|instance| on(instance, Algorithm::Gcra, "5/min"));
    let overrides = Overrides::of(one.store());
    let standing = overrides.put(nine("p").lasting(secs(60))).await.unwrap();
    other.look();
    for lost in ["", "garbage", "\u{1}\t\n\t\t", "0\tp\tada\t1\t1\t1/s"] {
        fleet.write(lost.as_bytes());
        other.look();
        assert_eq!(limiters.each_ref().map(text), ["p: 9/min (gcra)"; 2], "{lost:?}");
        assert!(fleet.text().contains("9/min"), "{lost:?}: {}", fleet.text());
    }
    fleet.flush();
    // Whoever puts one at that moment loses nothing either, and undoes nothing.
    let error = overrides.put(to("p", "7/min")).await.unwrap_err();
    assert_eq!(error.standing(), Some(&*standing));

    overrides.withdraw("p", standing.version(), "bob").await.unwrap();
    fleet.flush();
    one.look();
    other.look();
    assert_eq!(limiters.each_ref().map(text), ["p: 5/min (gcra)"; 2], "also that it was withdrawn");
    fleet.clock.advance(secs(60));
    one.look();
    fleet.flush();
    other.look();
    assert_eq!(fleet.text(), "", "and nothing of it stays for ever");
}

/// A read that was under way while somebody wrote comes late.
#[tokio::test]
async fn a_reading_that_comes_late_takes_nothing_back() {
    let fleet = Fleet::new(on_the_hour());
    let instance = fleet.instance();
    let limiter = on(&instance, Algorithm::Gcra, "5/min");
    let overrides = Overrides::of(instance.store());
    let first = overrides.put(nine("p")).await.unwrap();
    let before = fleet.text();
    overrides.put(to("p", "7/min").replacing(first.version())).await.unwrap();
    let after = fleet.text();
    instance.tell(before.as_bytes());
    assert_eq!((text(&limiter), fleet.text()), ("p: 7/min (gcra)".to_owned(), after));
}

#[tokio::test]
async fn a_key_that_has_spent_is_refused_under_the_override_and_let_in_after_it() {
    let fleet = Fleet::new(on_the_hour());
    let (one, other) = (fleet.instance(), fleet.instance());
    let _limiter = on(&one, Algorithm::Gcra, "5/h");
    let limiter = on(&other, Algorithm::Gcra, "5/h");
    assert!(answer(limiter.check("k").cost(3)).is_allowed());
    Overrides::of(one.store()).put(to("p", "2/h").lasting(secs(60))).await.unwrap();
    other.look();
    assert!(!answer(limiter.check("k")).is_allowed());
    fleet.clock.advance(secs(60));
    assert!(answer(limiter.check("k")).is_allowed());
}
