//! On a store that nobody shares.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::limiter::{self, Inherit, OverrideErrorKind, Overrides};
use sluicegate_core::policy::{Override, PolicyMode};
use sluicegate_core::{Algorithm, MemoryStore, Outcome, Policy, Quota, RateLimiter, Store};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::plain;
use sluicegate_tests::around::told;
use sluicegate_tests::log::Log;

use super::{nine, to};
use crate::support::{START, answer, secs, store};

const HOUR: Duration = Duration::from_secs(3_600);

fn text(limiter: &RateLimiter) -> String {
    limiter.policy().to_string()
}

#[tokio::test]
async fn an_override_counts_what_was_spent_and_is_gone_after_its_hour() {
    for algorithm in ALGORITHMS {
        let (store, clock) = store();
        let limiter = Policy::builder("p", algorithm, "5/h").on(&store).unwrap();
        let same = Policy::builder("p", algorithm, "5/h").on(&store).unwrap();
        assert!(answer(limiter.check("k").cost(5)).is_allowed(), "{algorithm}");
        let overrides = Overrides::of(&store);
        assert!(!overrides.are_shared());
        let standing = overrides.put(to("p", "9/h")).await.unwrap();
        assert_eq!(standing.until_us(), u64::try_from((START + HOUR).as_micros()).unwrap());
        assert_eq!(answer(same.peek("k")).remaining(), 4, "{algorithm}");
        assert_eq!(overrides.standing("p", None).as_ref(), Some(&standing));
        assert_eq!(overrides.list(), [standing]);

        clock.advance(HOUR - Duration::from_micros(1));
        assert_eq!(limiter.policy().quotas()[0].quota(), Quota::per_hour(9), "{algorithm}");
        clock.advance(Duration::from_micros(1));
        assert!(overrides.list().is_empty());
        assert_eq!(answer(limiter.peek("k")).capacity(), 5, "{algorithm}: whoever decides next ends it");
        assert_eq!(same.policy().quotas()[0].quota(), Quota::per_hour(5), "{algorithm}");
    }
}

#[tokio::test]
async fn reset_all_leaves_the_override_in_force_and_forgets_what_was_spent_under_it() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/h").suspend(3, "1min", "30min").on(&store).unwrap();
    Overrides::of(&store).put(to("p", "9/h")).await.unwrap();
    assert!(answer(limiter.check("k").cost(9)).is_allowed());
    let _ = answer(limiter.suspensions().suspend("bob", secs(60)));
    limiter.reset_all().unwrap();
    assert_eq!(answer(limiter.peek("k")).remaining(), 9);
    assert_eq!(answer(limiter.check("bob")).outcome(), Outcome::Suspended, "that is ended by `release`");
}

#[tokio::test]
async fn of_two_operators_the_second_sees_what_the_first_has_done() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/min").on(&store).unwrap();
    let overrides = Overrides::of(&store);
    let first = overrides.put(nine("p")).await.unwrap();
    let second = || Override::builder("p", "bob").quota("7/min");

    let error = overrides.put(second()).await.unwrap_err();
    assert_eq!((error.kind(), error.standing()), (OverrideErrorKind::OutOfDate, Some(&*first)));
    let message = error.to_string();
    assert!(message.contains("7/min, by bob") && message.contains("9/min, by ada"), "{message}");
    assert!(message.contains(&format!("version {}", first.version())), "{message}");
    assert_eq!(text(&limiter), "p: 9/min (gcra)");

    let second = overrides.put(second().replacing(first.version())).await.unwrap();
    assert_eq!(text(&limiter), "p: 7/min (gcra)");
    let late = overrides.withdraw("p", first.version(), "ada").await.unwrap_err();
    assert_eq!(late.standing(), Some(&*second));
    assert_eq!(text(&limiter), "p: 7/min (gcra)");

    overrides.withdraw("p", second.version(), "ada").await.unwrap();
    assert_eq!(text(&limiter), "p: 5/min (gcra)");
    let again = overrides.withdraw("p", second.version(), "bob").await.unwrap_err();
    assert!(again.standing().is_none() && again.to_string().contains("withdrawn, by ada"), "{again}");
    let gone = overrides.put(nine("p").replacing(second.version())).await.unwrap_err();
    assert_eq!(gone.kind(), OverrideErrorKind::OutOfDate);
    overrides.put(nine("p")).await.expect("none stands");
}

#[tokio::test]
async fn an_override_that_cannot_be_is_refused_by_its_value_and_changes_nothing() {
    let (store, _) = store();
    let counter = Policy::sliding_counter("counter", "5/min").on(&store).unwrap();
    let _log = Policy::sliding_log("log", "5/min").on(&store).unwrap();
    let queue = Policy::leaky_queue("queue", "5/min").on(&store).unwrap();
    let overrides = Overrides::of(&store);
    let now_us = u64::try_from(START.as_micros()).unwrap();
    for (change, value) in [
        (nine("cuonter"), "only [\"counter\", \"log\", \"queue\"]"),
        (to("counter", "5/fortnight"), "\"fortnight\""),
        (to("counter", "5/min burst 7"), "burst"),
        (to("counter", "18446744073709551615/30d"), "18446744073709551615"),
        (to("log", "999999/min"), "999999 entries"),
        (nine("queue").quota("7/s"), "a queue has one quota"),
        (Override::builder("counter", "ada"), "changes nothing"),
        (Override::builder("counter", "").quota("9/min"), "\"\" cannot be the name of an operator"),
        (Override::builder("counter", "a\nb").quota("9/min"), "\"a\\nb\""),
        (Override::builder("counter", "x".repeat(65)).quota("9/min"), "1 to 64 bytes"),
        (Override::builder("counter", "ada").lasting(HOUR), "give it a quota or a mode"),
        (nine("counter").lasting(Duration::ZERO), "for 0ns"),
        (nine("counter").lasting(31 * 24 * HOUR), "for 31d: use at most 30d"),
        (nine("counter").lasting(Duration::MAX), "use at most 30d"),
        (nine("counter").until_us(now_us), &format!("until {now_us} us")),
        (nine("counter").until_us(u64::MAX), "use at most 30d"),
    ] {
        let error = overrides.put(change).await.unwrap_err();
        assert_eq!(error.kind(), OverrideErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(value), "{value}: {error}");
        assert!(error.config().is_some() && error.source().is_none(), "{error}");
    }
    // All or none.
    let error = overrides.put_all([nine("counter"), to("queue", "0/s")]).await.unwrap_err();
    assert_eq!(
        error.config().map(|error| (error.kind(), error.policy())),
        Some((ConfigErrorKind::Quota, Some("queue")))
    );
    let error = overrides.put_all([nine("counter"), nine("counter")]).await.unwrap_err();
    assert!(error.to_string().contains("two overrides of one policy"), "{error}");
    assert!(overrides.list().is_empty());
    assert_eq!((counter.replacements(), queue.replacements()), (0, 0));
    overrides.put_all([nine("counter"), nine("queue")]).await.unwrap();
    assert_eq!((counter.replacements(), queue.replacements()), (1, 1));
}

#[tokio::test]
async fn code_that_replaces_an_overridden_policy_waits_behind_the_override() {
    let (store, clock) = store();
    let limiter = Policy::gcra("p", "5/min").on(&store).unwrap();
    Overrides::of(&store).put(nine("p")).await.unwrap();

    let other = |algorithm: Algorithm, quota: &str| Policy::builder("p", algorithm, quota).build().unwrap();
    limiter.replace(other(Algorithm::Gcra, "3/min"), Inherit::Spent).unwrap();
    assert_eq!(text(&limiter), "p: 9/min (gcra)");
    assert_eq!(limiter.own_policy().to_string(), "p: 3/min (gcra)");
    // The rest of the new policy is in force at once.
    limiter.replace(other(Algorithm::SlidingCounter, "2/min"), Inherit::Spent).unwrap();
    assert_eq!(text(&limiter), "p: 9/min (sliding-counter)");
    // It is the same handle to those who open the policy, as code has it.
    assert!(RateLimiter::new(&store, other(Algorithm::SlidingCounter, "2/min")).unwrap().is(&limiter));
    let taken = RateLimiter::new(&store, other(Algorithm::SlidingCounter, "9/min")).unwrap_err();
    assert_eq!(taken.kind(), ConfigErrorKind::NameTaken);
    // Accounts are kept through it all.
    limiter.remember(Policy::with_refunds).unwrap();
    assert!(limiter.policy().gives_back());
    // Code is told what cannot be kept when the override will be over.
    let refused = limiter.replace(other(Algorithm::SlidingLog, "999999/min"), Inherit::Spent).unwrap_err();
    assert_eq!(refused.kind(), ConfigErrorKind::Unsupported);

    clock.advance(HOUR);
    assert_eq!(text(&limiter), "p: 2/min (sliding-counter)");
    assert!(limiter.policy().gives_back());
}

/// An override must not keep code from what it says.
#[tokio::test]
async fn an_override_that_a_new_policy_cannot_have_is_left_out_with_a_line_in_the_log() {
    let log = Log::of_this_thread();
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/min").on(&store).unwrap();
    Overrides::of(&store).put(to("p", "9/min burst 20")).await.unwrap();
    let counter = Policy::sliding_counter("p", "3/min").build().unwrap();
    limiter.replace(counter, Inherit::Spent).unwrap();
    assert_eq!(text(&limiter), "p: 3/min (sliding-counter)");
    let lines = log.lines();
    assert!(
        lines.iter().any(|line| line.starts_with("ERROR sluicegate::audit") && line.contains("burst 20")),
        "{lines:?}"
    );
    // Once more under a policy that can have it.
    limiter.replace(Policy::gcra("p", "4/min").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(text(&limiter), "p: 9/min burst 20 (gcra)");
}

#[tokio::test]
async fn every_change_is_told_once_with_who_has_made_it_and_audited() {
    let log = Log::of_this_thread();
    let (memory, clock) = store();
    let (store, events) = told(&memory);
    let limiter = RateLimiter::new(store.clone(), Policy::gcra("p", "5/min").build().unwrap()).unwrap();
    let overrides = Overrides::of(store);
    let first = overrides.put(nine("p")).await.unwrap();
    overrides.withdraw("p", first.version(), "bob").await.unwrap();
    overrides.put(nine("p").lasting(secs(60))).await.unwrap();
    clock.advance(secs(61));
    for _ in 0..3 {
        let _ = answer(limiter.check("k"));
    }
    let by: Vec<_> =
        events.lock().unwrap().iter().map(|event| event.rsplit_once("by: ").unwrap().1.to_owned()).collect();
    assert_eq!(by, ["Some(\"ada\") }", "Some(\"bob\") }", "Some(\"ada\") }", "None }"]);
    let audit: Vec<_> = log.lines().into_iter().filter(|line| line.contains("sluicegate::audit")).collect();
    assert!(
        audit.iter().any(|line| line.contains("from=p: 5/min (gcra) from_mode=enforce to=p: 9/min (gcra)")
            && line.contains("by=\"ada\"")),
        "{audit:?}"
    );
    assert!(
        audit.iter().any(|line| line.contains("to=p: 5/min (gcra)") && line.contains("by=\"bob\"")),
        "{audit:?}"
    );
}

#[tokio::test]
async fn an_override_goes_through_every_store_around_a_store() {
    let (memory, clock) = store();
    let resilient = Resilient::builder(&memory).clock(clock.clone()).build().unwrap();
    for store in [plain(&memory), (&resilient).into(), plain(&resilient)] {
        let limiter = RateLimiter::new(store.clone(), Policy::gcra("p", "5/min").build().unwrap()).unwrap();
        let overrides = Overrides::of(store);
        overrides.put(nine("p").lasting(secs(60))).await.unwrap();
        assert_eq!(limiter.peek("k").await.unwrap().capacity(), 9);
        clock.advance(secs(60));
        assert_eq!(limiter.peek("k").await.unwrap().capacity(), 5);
    }
}

#[tokio::test]
async fn a_mode_is_overridden_and_what_was_spent_stays() {
    let (store, clock) = store();
    let limiter = Policy::gcra("p", "1/h").on(&store).unwrap();
    assert!(answer(limiter.check("k")).is_allowed() && !answer(limiter.check("k")).is_allowed());
    let overrides = Overrides::of(&store);
    let change = || Override::builder("p", "ada").lasting(secs(60));
    let off = overrides.put(change().mode(PolicyMode::Off)).await.unwrap();
    assert_eq!(
        (off.mode(), off.quotas(), off.to_string()),
        (Some(PolicyMode::Off), &[][..], "p: off, by ada".into())
    );
    assert!((0..3).all(|_| answer(limiter.check("k")).is_allowed()));
    // The code changes the quota behind it.
    limiter.replace(Policy::gcra("p", "2/h").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(limiter.policy().mode(), PolicyMode::Off);
    let both = change().mode(PolicyMode::Shadow).quota("3/h").replacing(off.version());
    assert_eq!(overrides.put(both).await.unwrap().to_string(), "p: 3/h, shadow, by ada");
    assert_eq!((text(&limiter), limiter.policy().mode()), ("p: 3/h (gcra)".to_owned(), PolicyMode::Shadow));
    clock.advance(secs(60));
    assert_eq!((text(&limiter), limiter.policy().mode()), ("p: 2/h (gcra)".to_owned(), PolicyMode::Enforce));
    assert_eq!(answer(limiter.peek("k")).remaining(), 1);
}

/// Several quotas keep their names in header fields if there are as many; all are one policy still.
#[tokio::test]
async fn all_quotas_of_a_policy_are_overridden_together() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/min").named("short").and("50/h").named("long").on(&store).unwrap();
    let overrides = Overrides::of(&store);
    let first = overrides.put(nine("p").quota("90/h")).await.unwrap();
    let labels =
        || limiter.policy().quotas().iter().map(|quota| quota.label().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        (text(&limiter), labels()),
        ("p: 9/min, 90/h (gcra)".to_owned(), vec!["p.short".to_owned(), "p.long".to_owned()])
    );
    assert_eq!(first.to_string(), "p: 9/min, 90/h, by ada");
    overrides.put(nine("p").replacing(first.version())).await.unwrap();
    assert_eq!((text(&limiter), labels()), ("p: 9/min (gcra)".to_owned(), vec!["p".to_owned()]));
}

#[tokio::test]
async fn a_handle_that_is_opened_under_an_override_has_it_at_once() {
    let store = MemoryStore::new();
    let policies =
        || [Policy::gcra("a", "5/min").build().unwrap(), Policy::gcra("b", "5/min").build().unwrap()];
    drop(limiter::open_all(&store, policies()).unwrap());
    let held = limiter::open_all(&store, policies()).unwrap();
    Overrides::of(&store).put_all([nine("a"), nine("b")]).await.unwrap();
    drop(held);
    let opened = limiter::open_all(&store, policies()).unwrap();
    assert_eq!([text(&opened[0]), text(&opened[1])], ["a: 9/min (gcra)", "b: 9/min (gcra)"]);
    assert_eq!(answer(opened[0].peek("k")).capacity(), 9);
    let store: Arc<dyn Store> = (&store).into();
    assert_eq!(store.limiters().all().len(), 2);
}

/// A call to Redis that was under way held the name: the next request that chose the policy was answered with an error.
#[tokio::test]
async fn a_policy_is_opened_again_while_a_call_under_its_override_is_under_way() {
    let (memory, clock) = store();
    let store: Arc<dyn Store> = (&memory).into();
    let policy = || Policy::gcra("p", "5/h").build().unwrap();
    let limiter = RateLimiter::new(&memory, policy()).unwrap();
    Overrides::of(&memory).put(to("p", "9/h").lasting(secs(60))).await.unwrap();
    assert!(answer(limiter.check("k").cost(6)).is_allowed());
    let under_way = store.open(limiter.policy(), None).unwrap();
    drop(limiter);
    let limiter = RateLimiter::new(&memory, policy()).unwrap();
    assert_eq!((text(&limiter), answer(limiter.peek("k")).remaining()), ("p: 9/h (gcra)".to_owned(), 3));
    assert!(RateLimiter::new(&memory, policy()).unwrap().is(&limiter));
    let other = Policy::gcra("p", "6/h").build().unwrap();
    assert_eq!(RateLimiter::new(&memory, other).unwrap_err().kind(), ConfigErrorKind::NameTaken);
    drop(under_way);
    clock.advance(secs(60));
    assert_eq!((text(&limiter), answer(limiter.peek("k")).remaining()), ("p: 5/h (gcra)".to_owned(), 0));
}
