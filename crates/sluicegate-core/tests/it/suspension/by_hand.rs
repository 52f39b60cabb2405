//! Suspended and released by hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::{Event, Notice};
use sluicegate_core::wrap::{Within, Wrap};
use sluicegate_core::{ConfigError, MemoryStore, OnOutage, Outcome, Policy, RateLimiter, Store};
use sluicegate_tests::log::Log;
use sluicegate_tests::outages::{FAILS, Scene};

use super::{check, refused, suspended};
use crate::support::{answer, ms, secs, store, store_for};

fn api(store: impl Into<Arc<dyn Store>>) -> RateLimiter {
    Policy::fixed_window("api", "1/d")
        .suspend(3, "1min", "30min")
        .on(store)
        .expect("the policy fits the store")
}

#[test]
fn a_key_is_suspended_for_exactly_as_long_as_was_said_last() {
    let (store, clock) = store();
    let limiter = api(&store);
    suspended(&answer(limiter.suspensions().suspend("ada", secs(600))), secs(600));
    suspended(&answer(limiter.suspensions().suspend("ada", secs(60))), secs(60));
    suspended(&answer(limiter.suspensions().suspend("ada", secs(900))), secs(900));
    clock.advance(secs(900) - Duration::from_micros(1));
    assert_eq!(check(&limiter, "ada").retry_after(), Some(Duration::from_micros(1)));
    clock.advance(Duration::from_micros(1));
    assert!(check(&limiter, "ada").is_allowed());
    suspended(&answer(limiter.suspensions().suspend("ada", Duration::from_nanos(1))), ms(1));
    assert_eq!(answer(limiter.suspensions().suspend("ada", Duration::ZERO)).outcome(), Outcome::Denied);
    let decade = secs(315_360_000);
    suspended(&answer(limiter.suspensions().suspend("ada", Duration::MAX)), decade);
}

/// Once each was a line, and a client with many addresses filled the disk.
#[test]
fn each_suspension_by_hand_is_audited_and_of_those_by_refusals_sixty_a_minute() {
    let log = Log::of_this_thread();
    let (store, _clock) = store_for(1_024, 65_536);
    let policy = |name| Policy::fixed_window(name, "1/d").suspend(1, "1min", "30min");
    // The policies of a store have the lines together.
    let limiters = ["a", "b"].map(|name| policy(name).on(&store).unwrap());
    for key in 0..100_u64 {
        for limiter in &limiters {
            assert!(answer(limiter.check(key)).is_allowed());
            assert_eq!(answer(limiter.check(key)).outcome(), Outcome::Suspended);
        }
        drop(answer(limiters[0].suspensions().by("grace").suspend(key, secs(60))));
        drop(answer(limiters[0].suspensions().by("grace").release(key)));
    }
    let lines = log.lines();
    let audit = |by: &str, what: &str| {
        let is_it =
            |line: &&String| line.contains("sluicegate::audit") && line.contains(by) && line.contains(what);
        lines.iter().filter(is_it).count()
    };
    assert_eq!((audit("grace", "is suspended"), audit("grace", "is released")), (100, 100));
    assert_eq!((audit("refusals", "is suspended"), audit("refusals", "only counted")), (60, 1));
}

#[test]
fn a_policy_that_suspends_no_key_says_so() {
    let (store, _clock) = store();
    let without = Policy::fixed_window("without", "1/d").on(&store).unwrap();
    let shadow = Policy::fixed_window("shadow", "1/d").suspend(1, "1min", "1h").shadow().on(&store).unwrap();
    for limiter in [without, shadow] {
        for changed in [limiter.suspensions().suspend("ada", secs(60)), limiter.suspensions().release("ada")]
        {
            let error = changed.now().unwrap().unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::NoSuspension);
            assert!(!error.may_succeed_later() && !error.may_have_spent());
            assert!(error.to_string().contains("suspends no key"), "{error}");
        }
        assert!(check(&limiter, "ada").is_allowed());
    }
}

/// Keeps what it is told.
struct Hears {
    within: Within,
    events: Arc<Mutex<Vec<String>>>,
}

impl Wrap for Hears {
    type Own = ();

    fn within(&self) -> &Within {
        &self.within
    }

    fn prepare(&self, _: &Arc<Policy>, _: Option<(&(), Inherit)>) -> Result<(), ConfigError> {
        Ok(())
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn hear(&self, notice: &Notice<'_>) {
        if let Notice::Event(Event::Suspended { subject, lasts, by_hand, by }) = notice {
            let by = match (by_hand, by) {
                (false, None) => "by refusals",
                (true, None) => "by hand",
                (true, Some(operator)) => operator,
                (false, Some(_)) => panic!("nobody does what refusals do"),
            };
            let key = subject.key.map(|key| key.to_key());
            assert_eq!(key, Some("ada".into()));
            let said = format!("{} for {lasts:?} {by}", subject.policy.unwrap_or_default());
            self.events.lock().expect("nobody panics").push(said);
        }
    }
}

#[test]
fn a_store_is_told_of_each_suspension_once() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let store = Hears { within: Within::new(MemoryStore::new()), events: Arc::clone(&events) };
    let limiter = api(Arc::new(store) as Arc<dyn Store>);
    for _ in 0..20 {
        drop(check(&limiter, "ada"));
    }
    drop(answer(limiter.suspensions().suspend("ada", secs(60))));
    drop(answer(limiter.suspensions().release("ada")));
    drop(answer(limiter.suspensions().by("grace").suspend("ada", secs(60))));
    drop(answer(limiter.suspensions().by("grace").release("ada")));
    let said = events.lock().expect("nobody panics").clone();
    let by_hand = ["api for 60s by hand", "api for 0ns by hand", "api for 60s grace", "api for 0ns grace"];
    assert_eq!(said, [&["api for 1800s by refusals"], &by_hand[..]].concat());
}

#[tokio::test]
async fn strikes_are_the_refusals_that_count_now_and_the_suspensions_that_are_remembered() {
    let (store, clock) = store();
    let limiter = api(&store);
    let strikes = async || {
        let found = limiter.suspensions().strikes("ada").await.unwrap().unwrap();
        assert_eq!(found.after, 3);
        (found.counted, found.suspensions)
    };
    assert!(check(&limiter, "ada").is_allowed());
    assert_eq!(strikes().await, (0, 0));
    refused(&limiter, "ada", 2);
    assert_eq!(strikes().await, (2, 0));
    clock.advance(secs(60));
    assert_eq!(strikes().await, (0, 0), "they are too long ago");
    refused(&limiter, "ada", 2);
    suspended(&check(&limiter, "ada"), secs(1_800));
    assert_eq!(strikes().await, (0, 1));
    drop(answer(limiter.suspensions().release("ada")));
    assert_eq!(strikes().await, (0, 0));
    let without = Policy::fixed_window("without", "1/d").everywhere().on(&store).unwrap();
    assert_eq!(without.suspensions().strikes("ada").await.unwrap(), None);
    limiter.replace(limiter.policy().in_mode(PolicyMode::Shadow), Inherit::Spent).unwrap();
    assert_eq!(limiter.suspensions().strikes("ada").await.unwrap(), None);
}

#[tokio::test]
async fn strikes_of_an_outage_are_those_of_the_share_or_an_error() {
    for (on_outage, expected) in [(OnOutage::Local, Some((1, 2))), (OnOutage::Allow, None)] {
        let scene = Scene::new(|builder| builder.replicas(2));
        let policy = Policy::fixed_window("api", "2/d").suspend(4, "1h", "30min").on_outage(on_outage);
        let limiter = policy.on(&scene.store).unwrap();
        scene.mood(FAILS);
        for _ in 0..2 {
            drop(check(&limiter, "ada"));
        }
        let found = limiter.suspensions().strikes("ada").await.map(|found| found.unwrap());
        assert_eq!(found.map(|found| (found.counted, found.after)).ok(), expected);
    }
}
