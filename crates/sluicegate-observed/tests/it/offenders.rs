//! The keys that are refused most and those that ask most, as an observed store sees them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, UNIX_EPOCH};

use sluicegate_core::clock::ManualClock;
use sluicegate_core::key::{AsKey, KeyKind};
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Key, MemoryStore, Policy, RateLimiter};
use sluicegate_observed::{Observed, OffenderKind, PolicySnapshot};
use sluicegate_tests::around;

fn observed(name: &str) -> (Observed, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_000_000));
    let memory = MemoryStore::builder().clock(clock.clone()).build().expect("the capacity is possible");
    (Observed::named(name, memory).expect("the name is free"), clock)
}

fn ask(limiter: &RateLimiter, key: impl AsKey, times: usize) {
    for _ in 0..times {
        assert!(limiter.check(&key).now().is_ok_and(|decision| decision.is_ok()), "memory answers at once");
    }
}

fn policy(store: &Observed, name: &str) -> PolicySnapshot {
    store.snapshot().policies.into_iter().find(|of| of.policy.name() == name).expect("it is open")
}

#[test]
fn the_keys_that_are_refused_most_are_listed_with_their_share() {
    let (store, clock) = observed("refused-most");
    let login = Policy::fixed_window("login", "5/h").on(&store).unwrap();
    assert_eq!(policy(&store, "login").offenders, []);
    ask(&login, Ipv4Addr::new(203, 0, 113, 9), 5 + 60);
    ask(&login, "ada@example.org", 5 + 20);
    ask(&login, Key::from("ada").of_kind(KeyKind::Name), 5);
    let listed = policy(&store, "login").offenders;
    let [address, secret] = &listed[..] else {
        panic!("a key that was refused nothing is listed: {listed:?}")
    };
    assert_eq!((&*address.key, address.kind), ("203.0.113.9", OffenderKind::Address));
    assert_eq!((address.rejected, address.error, address.share), (60, 0, 0.75));
    assert_eq!((secret.kind, secret.rejected), (OffenderKind::Digest, 20));
    // As explanations and logs show it.
    assert_eq!(format!("Key({})", secret.key), Key::from("ada@example.org").shown());

    let wait = address.retry_after;
    clock.advance(Duration::from_secs(60));
    let later = policy(&store, "login").offenders[0].retry_after;
    assert_eq!(wait - later, Duration::from_secs(60));
    clock.advance(Duration::from_secs(600));
    assert_eq!(policy(&store, "login").offenders, [], "after ten minutes it is history");
}

#[test]
fn each_policy_has_its_own_and_a_shadow_too() {
    let (store, _) = observed("own-offenders");
    let tried = Policy::gcra("tried", "1/h").mode(PolicyMode::Shadow).on(&store).unwrap();
    let strict = Policy::gcra("strict", "1/h").on(&store).unwrap();
    ask(&tried, Ipv4Addr::LOCALHOST, 3);
    ask(&strict, Ipv4Addr::BROADCAST, 4);
    let listed = |name| {
        let offenders = policy(&store, name).offenders;
        offenders.into_iter().map(|of| (of.key, of.rejected)).collect::<Vec<_>>()
    };
    assert_eq!(listed("tried"), [("127.0.0.1".to_owned(), 2)]);
    assert_eq!(listed("strict"), [("255.255.255.255".to_owned(), 3)]);
}

#[test]
fn a_listed_key_is_found_by_its_reference_in_its_policy_only() {
    let (store, _) = observed("references");
    let login = Policy::gcra("login", "1/h").on(&store).unwrap();
    let other = Policy::gcra("other", "1/h").on(&store).unwrap();
    ask(&login, "sk_live_51H", 2);
    ask(&other, "bob", 2);
    let reference = policy(&store, "login").offenders[0].reference.clone();
    let found = store.listed_key("login", &reference).unwrap();
    assert_eq!((&found, found.kind()), (&Key::from("sk_live_51H"), KeyKind::Secret));
    assert_eq!(store.listed_key("other", &reference), None);
    assert_eq!(store.listed_key("none", &reference), None);
    let _ = login.reset(&found).now().unwrap().unwrap();
    assert!(login.check("sk_live_51H").now().unwrap().unwrap().is_allowed(), "it is the key itself");
}

#[test]
fn low_and_slow_abuse_is_refused_nothing_and_listed_for_what_it_asks() {
    let (store, _) = observed("askers");
    let api = Policy::gcra("api", "1000000/h").on(&store).unwrap();
    let slow = IpAddr::from(Ipv4Addr::new(198, 51, 100, 7));
    for other in 0..6_400_u32 {
        ask(&api, slow, 3);
        ask(&api, Ipv4Addr::from(other), 1);
    }
    let api = policy(&store, "api");
    assert_eq!(api.offenders, []);
    let first = &api.askers[0];
    assert_eq!(&*first.key, "198.51.100.7");
    // 300 of its asks were looked at, give or take eighteen.
    assert!((12_000..26_000).contains(&first.asked), "{first:?}");
    assert!((0.98..=0.999).contains(&first.remaining), "{first:?}");
}

/// An answer from far away comes when the key of the request is gone.
#[tokio::test]
async fn a_refusal_of_a_store_far_away_counts_for_its_key() {
    let store = Observed::named("far-away", around::late(&MemoryStore::new())).unwrap();
    let login = Policy::gcra("login", "1/h").on(&store).unwrap();
    for _ in 0..3 {
        let _ = login.check(Ipv4Addr::LOCALHOST).await.unwrap();
    }
    let listed = policy(&store, "login").offenders;
    assert_eq!((&*listed[0].key, listed[0].rejected), ("127.0.0.1", 2));
    assert!(listed[0].suspended_until.is_none() && UNIX_EPOCH + listed[0].retry_after > UNIX_EPOCH);
}

#[test]
fn no_planted_secret_is_in_a_snapshot() {
    let (store, _) = observed("secrets");
    let login = Policy::gcra("login", "1/h").on(&store).unwrap();
    for key in [Key::from("planted-1"), Key::from(("planted-2", 7)), Key::from("planted-".repeat(99))] {
        ask(&login, key, 700);
    }
    let snapshot = store.snapshot();
    assert_eq!(snapshot.policies[0].offenders.len(), 3);
    assert!(!snapshot.policies[0].askers.is_empty());
    let shown = format!("{snapshot:?}");
    assert!(!shown.contains("planted") && !shown.contains("70, 6c, 61"), "{shown}");
}
