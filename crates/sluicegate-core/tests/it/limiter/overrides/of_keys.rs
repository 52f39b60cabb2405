//! Of single keys: one key has other quotas for a time, and all others have those of the policy.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::key::KeyRef;
use sluicegate_core::limiter::{self, Inherit, OverrideErrorKind, Overrides, change_all, check_all};
use sluicegate_core::policy::{Override, OverrideBuilder, PolicyMode};
use sluicegate_core::store::KnownKeys;
use sluicegate_core::{Key, MemoryStore, Policy, RateLimiter, Store};
use sluicegate_tests::log::Log;
use sluicegate_tests::time::on_the_hour;

use super::fleet::Fleet;
use super::to;
use crate::support::{answer, store};

const HOUR: Duration = Duration::from_secs(3_600);

/// Ten an hour for this key alone.
fn ten(key: &str) -> OverrideBuilder {
    to("p", "10/h").key(key)
}

fn capacity(limiter: &RateLimiter, key: &str) -> u64 {
    answer(limiter.peek(key)).capacity()
}

#[tokio::test]
async fn a_key_has_twice_its_quota_for_an_hour_what_it_spent_counts_and_others_have_theirs() {
    for algorithm in ALGORITHMS {
        let (store, clock) = store();
        let limiter = Policy::builder("p", algorithm, "5/h").on(&store).unwrap();
        for key in ["acme", "other"] {
            assert!(answer(limiter.check(key).cost(5)).is_allowed(), "{algorithm}");
        }
        let overrides = Overrides::of(&store);
        let standing = overrides.put(ten("acme")).await.unwrap();
        assert_eq!(overrides.list(), [Arc::clone(&standing)], "{algorithm}");
        assert_eq!(overrides.standing("p", Some(&Key::from("acme"))), Some(standing), "{algorithm}");
        assert!(!answer(limiter.check("other")).is_allowed(), "{algorithm}");
        let decision = answer(limiter.check("acme"));
        assert_eq!((decision.is_allowed(), decision.capacity()), (true, 10), "{algorithm}");
        assert!(answer(limiter.check("acme").cost(3)).is_allowed(), "{algorithm}");
        assert!(!answer(limiter.check("acme").cost(3)).is_allowed(), "{algorithm}: never above ten");
        assert_eq!((overrides.standing("p", None), limiter.policy()), (None, limiter.own_policy()));
        clock.advance(HOUR);
        assert_eq!(
            (capacity(&limiter, "acme"), overrides.standing("p", Some(&Key::from("acme")))),
            (5, None),
            "{algorithm}"
        );
    }
}

#[tokio::test]
async fn every_way_to_ask_is_decided_by_the_quotas_that_the_key_was_given() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/h").refunds().on(&store).unwrap();
    let second = Policy::gcra("q", "100/h").on(&store).unwrap();
    Overrides::of(&store).put(ten("acme")).await.unwrap();
    let both = answer(check_all([limiter.check("acme").cost(6), second.check("acme")]));
    assert_eq!((both.is_allowed(), both.quotas()[0].remaining()), (true, 4));
    assert_eq!(answer(limiter.check("other")).capacity(), 5);
    assert_eq!(answer(limiter.charge("acme", 4)).remaining(), 0);
    assert_eq!(answer(limiter.refund("acme", 2)).remaining(), 2);
    assert_eq!(answer(change_all([limiter.refund("acme", 1)])).remaining(), 3);
    let mut receipt = answer(limiter.check("acme").cost(2)).take_receipt(0).unwrap();
    assert_eq!(answer(limiter.refund("acme", 2).of(&mut receipt)).remaining(), 3);
    assert_eq!(answer(limiter.reset("acme")).remaining(), 10);
    assert!(answer(limiter.check("acme").cost(10).reserve(HOUR)).is_allowed());
    // The key's plan comes after it, and a limiter that was made before follows.
    let plan = limiter.with_quotas("7/h").unwrap();
    assert_eq!((capacity(&plan, "acme"), capacity(&plan, "other")), (10, 7));
}

#[tokio::test]
async fn rules_and_code_that_replace_the_policy_leave_the_key_its_quotas() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/h").on(&store).unwrap();
    let replaced = |quota: &str| {
        let policy = Policy::gcra("p", quota).build().unwrap();
        limiter::replace_all(&store, [policy], |_| Inherit::Spent, |all| Ok(all[0].clone())).unwrap()
    };
    let old = replaced("6/h");
    let standing = Overrides::of(&store).put(ten("acme")).await.unwrap();
    assert_eq!((capacity(&old, "acme"), capacity(&old, "other")), (10, 6));
    let new = replaced("8/h");
    assert_eq!((capacity(&new, "acme"), capacity(&new, "other"), capacity(&old, "other")), (10, 8, 8));
    limiter.replace(Policy::gcra("p", "9/h").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!((capacity(&limiter, "acme"), capacity(&limiter, "other")), (10, 9));
    // An override of the policy is one of all other keys.
    Overrides::of(&store).put(to("p", "3/h")).await.unwrap();
    assert_eq!((capacity(&limiter, "acme"), capacity(&limiter, "other")), (10, 3));
    Overrides::of(&store).withdraw("p", standing.version(), "bob").await.unwrap();
    assert_eq!((capacity(&limiter, "acme"), capacity(&new, "acme")), (3, 3));
}

/// One key of the store is known from now on.
fn knows_one_key(store: &MemoryStore) {
    let store: Arc<dyn Store> = store.into();
    let known: KnownKeys = Arc::new(|key: KeyRef<'_>| key.to_key() == Key::from("old"));
    store.limiters().know_keys(move |_| Some(Arc::clone(&known)));
}

#[tokio::test]
async fn new_keys_have_other_quotas_and_known_ones_and_those_with_a_plan_keep_theirs() {
    for algorithm in ALGORITHMS {
        let (store, clock) = store();
        knows_one_key(&store);
        let limiter = Policy::builder("p", algorithm, "5/h").on(&store).unwrap();
        let overrides = Overrides::of(&store);
        let standing = overrides.put(to("p", "2/h").new_keys()).await.unwrap();
        let plan = limiter.with_quotas("7/h").unwrap();
        let all = [(&limiter, "old"), (&limiter, "new"), (&plan, "new too")];
        assert_eq!(all.map(|(limiter, key)| capacity(limiter, key)), [5, 2, 7], "{algorithm}");
        assert_eq!(overrides.standing("p", None), Some(Arc::clone(&standing)), "{algorithm}");
        assert_eq!(limiter.policy().quotas()[0].quota().limit(), 5, "{algorithm}");
        // A key that an operator has given quotas has those, known or not.
        overrides.put(ten("new")).await.unwrap();
        assert_eq!((capacity(&limiter, "new"), capacity(&limiter, "newer")), (10, 2), "{algorithm}");
        limiter.replace(Policy::builder("p", algorithm, "6/h").build().unwrap(), Inherit::Spent).unwrap();
        assert_eq!((capacity(&limiter, "old"), capacity(&limiter, "newer")), (6, 2), "{algorithm}");
        let error = overrides.put(to("p", "3/h")).await.unwrap_err();
        assert_eq!(error.standing(), Some(&*standing), "{algorithm}: one override of a policy at a time");
        clock.advance(HOUR);
        assert_eq!((capacity(&limiter, "new"), capacity(&limiter, "newer")), (6, 6), "{algorithm}");
        assert!(overrides.list().is_empty(), "{algorithm}");
    }
}

#[tokio::test]
async fn where_no_keys_are_remembered_none_is_new() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/h").on(&store).unwrap();
    Overrides::of(&store).put(to("p", "2/h").new_keys()).await.unwrap();
    assert_eq!(capacity(&limiter, "new"), 5);
}

#[tokio::test]
async fn of_two_operators_the_second_sees_what_the_first_has_given_the_key_and_both_are_audited() {
    let log = Log::of_this_thread();
    let (store, _) = store();
    let _limiter = Policy::gcra("p", "5/h").on(&store).unwrap();
    let overrides = Overrides::of(&store);
    let first = overrides.put(ten("acme")).await.unwrap();
    let other = overrides.put(ten("other")).await.unwrap();
    let policy = overrides.put(to("p", "6/h")).await.unwrap();
    let versions = [first.version(), other.version(), policy.version()];
    assert!(versions.is_sorted() && versions[0] < versions[1] && versions[1] < versions[2], "{versions:?}");
    let second = || Override::builder("p", "bob").quota("20/h").key("acme");
    let error = overrides.put(second()).await.unwrap_err();
    assert_eq!((error.kind(), error.standing()), (OverrideErrorKind::OutOfDate, Some(&*first)));
    let second = overrides.put(second().replacing(first.version())).await.unwrap();
    overrides.withdraw("p", second.version(), "eve").await.unwrap();
    assert_eq!(overrides.list(), [policy, other]);
    let lines = log.lines();
    let told = |by: &str| {
        lines.iter().filter(|line| line.contains("sluicegate::audit") && line.contains(by)).count()
    };
    assert_eq!((told("\"bob\""), told("\"eve\"")), (1, 1), "{lines:?}");
}

#[tokio::test]
async fn what_a_key_cannot_be_given_is_refused_by_its_value() {
    let (store, _) = store();
    let limiter = Policy::gcra("p", "5/h").and("20/d").on(&store).unwrap();
    let overrides = Overrides::of(&store);
    for (change, what) in [
        (to("p", "10/h").key("acme"), "a key brings 1 quotas (10/h), and the policy has 2"),
        (to("p", "10/h").quota("40/d").key("acme").mode(PolicyMode::Shadow), "leave the mode to all keys"),
        (Override::builder("p", "ada").key("acme"), "give it"),
        (Override::builder("p", "ada").new_keys(), "give it"),
        (to("p", "10/h").quota("40/d").key("acme").new_keys(), "leave out one of them"),
        (to("p", "10/h").new_keys(), "a key brings 1 quotas (10/h), and the policy has 2"),
        (to("q", "10/h").key("acme"), "no policy of this name"),
    ] {
        let error = overrides.put(change).await.unwrap_err();
        assert_eq!(error.kind(), OverrideErrorKind::Invalid);
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(overrides.list().is_empty());
    let both = || to("p", "10/h").quota("40/d").key("acme");
    assert!(overrides.put_all([both(), both()]).await.unwrap_err().to_string().contains("two overrides"));
    overrides.put(both()).await.unwrap();
    assert_eq!(answer(limiter.check("acme")).capacity(), 10);
}

#[tokio::test]
async fn a_store_that_keeps_no_quotas_of_keys_says_so_before_anything_is_put() {
    let fleet = Fleet::new(on_the_hour());
    let one = fleet.instance();
    let policy = Policy::gcra("p", "5/h").build().unwrap();
    let limiter = RateLimiter::new(one.store(), policy).unwrap();
    let overrides = Overrides::of(one.store());
    let error = overrides.put(ten("acme")).await.unwrap_err();
    assert!(error.to_string().contains("keeps no quotas of keys (p: 10/h (gcra))"), "{error}");
    assert_eq!((overrides.list().len(), capacity(&limiter, "acme")), (0, 5));
}
