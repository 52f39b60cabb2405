//! What is called what in Redis, what can be read there, and when it is gone.

use std::time::{Duration, Instant};

use redis::Connection;
use sluicegate::rules::{RulesFile, Variables};
use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::limiter::check_all;
use sluicegate_core::{Key, Policy, Quota, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::{Server, eventually, run};

use crate::support::{connected, patient};

async fn store(server: &Server) -> RedisStore {
    connected(patient("rl"), &server.url()).await
}

/// A limiter for every algorithm.
fn limiters(store: &RedisStore, quota: Quota) -> Vec<RateLimiter> {
    let limiter = |(index, algorithm)| {
        Policy::builder(format!("policy-{index}"), algorithm, quota).on(store).expect("the quota is possible")
    };
    ALGORITHMS.into_iter().enumerate().map(limiter).collect()
}

/// All names on the server.
fn names(server: &mut Connection) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = 0;
    loop {
        let (next, found): (u64, Vec<String>) = run(server, &format!("SCAN {cursor} COUNT 1000"));
        names.extend(found);
        cursor = next;
        if cursor == 0 {
            return names;
        }
    }
}

/// Whether it is `rl:3:<policy>:{<22 of base64url>}`.
fn is_ours(name: &str) -> bool {
    let Some((policy, tail)) = name.strip_prefix("rl:3:").and_then(|rest| rest.split_once(":{")) else {
        return false;
    };
    let Some((tag, end)) = tail.split_once('}') else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    policy.strip_prefix("policy-").is_some_and(is_number)
        && tag.len() == 22
        && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && end.is_empty()
}

/// What a client could send, and pairs that differ only by where a delimiter stands.
fn hostile() -> Vec<Key> {
    let mut texts: Vec<String> =
        ["", " ", "\0", "\r\nFLUSHALL\r\n", "{}", "{a}", "}{", "a}:b", "*", "..", "\u{202e}", "é"]
            .map(str::to_owned)
            .to_vec();
    texts.extend(["x", "y", "{"].map(|text| text.repeat(10_000)));
    texts.extend(["rl:3:policy-0:{a}", "a:b", "ab", "1", "127.0.0.1"].map(str::to_owned));
    let mut keys: Vec<Key> = texts.iter().map(|text| Key::from(text.as_str())).collect();
    keys.extend(
        [("a", "b:c"), ("a:b", "c"), ("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")].map(Key::from),
    );
    keys.extend([Key::from(1_u64), Key::from(49_u64), Key::shared()]);
    keys.push(Key::from(std::net::IpAddr::from([127, 0, 0, 1])));
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_keys_neither_collide_nor_shape_a_name() {
    let server = Server::start();
    let store = store(&server).await;
    let keys = hostile();
    for limiter in limiters(&store, Quota::per_day(1)) {
        for key in &keys {
            assert!(limiter.check(key).await.unwrap().is_allowed(), "{key:?} shares a bucket with another");
        }
        for key in &keys {
            assert!(!limiter.check(key).await.unwrap().is_allowed(), "{key:?} has a second bucket");
        }
    }
    let names = names(&mut server.admin());
    let strange: Vec<_> = names.iter().filter(|name| !is_ours(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert_eq!(names.len(), keys.len() * ALGORITHMS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_key_is_never_readable_in_redis() {
    const API_KEY: &str = "sk_live_51H8Zx0QmYtR";
    let server = Server::start();
    let store = store(&server).await;
    for limiter in limiters(&store, Quota::per_day(9)) {
        for _ in 0..10 {
            let _ = limiter.check((API_KEY, "/v1/charges")).await.expect("the store answers");
        }
    }
    let mut admin = server.admin();
    let names = names(&mut admin);
    assert_eq!(names.len(), ALGORITHMS.len());
    for name in names {
        let value: Vec<u8> = run(&mut admin, &format!("GET {name}"));
        let readable = format!("{name} {}", String::from_utf8_lossy(&value));
        assert!(!readable.contains("51H8") && !readable.contains("sk_live"), "{readable}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_secret_makes_other_names() {
    let server = Server::start();
    let policy = Policy::gcra("policy-0", "1/day").build().unwrap();
    for secret in ["one", "other"] {
        let store = connected(patient("rl").secret(secret), &server.url()).await;
        let limiter = RateLimiter::new(store, policy.clone()).unwrap();
        assert!(limiter.check("ada").await.unwrap().is_allowed());
    }
    assert_eq!(names(&mut server.admin()).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_vanish_when_their_state_is_at_rest() {
    let server = Server::start();
    let store = store(&server).await;
    let mut admin = server.admin();
    let limiters = limiters(&store, Quota::new(3, Duration::from_millis(50)));
    for limiter in &limiters {
        for key in 0..50_u64 {
            let _ = limiter.charge(key, 6).await.expect("the store answers");
        }
    }
    for name in names(&mut admin) {
        // -2: it is gone already; -1 would be for ever. Four periods, one to be over, and up to a second.
        let left: i64 = run(&mut admin, &format!("PTTL {name}"));
        assert!(left == -2 || (0..1_300).contains(&left), "{name} has {left} ms left");
    }
    eventually("no key of ours is left", || run::<u64>(&mut admin, "DBSIZE") == 0);
    // A key that was forgotten by hand is gone at once.
    for limiter in &limiters {
        let _ = limiter.charge("ada", 1_000).await.expect("the store answers");
        let _ = limiter.reset("ada").await.expect("the store answers");
    }
    assert_eq!(names(&mut admin), Vec::<String>::new());
}

/// Most spends leave the expiry as it is, so it has to lie behind the rest that they move.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_spent_from_all_the_time_does_not_vanish_before_its_state_is_at_rest() {
    let server = Server::start();
    let store = store(&server).await;
    let mut admin = server.admin();
    for limiter in &limiters(&store, Quota::new(2_000, Duration::from_secs(2))) {
        let name = store.key_name(limiter.policy().name(), "ada");
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(1_200) {
            let asked = Instant::now();
            // Alone by the shortest way, and beside another key by the short one.
            let alone = limiter.check("ada").await.expect("the store answers");
            let both = check_all([limiter.check("ada").cost(3), limiter.check("bob")]);
            let both = both.await.expect("the store answers");
            let left: i64 = run(&mut admin, &format!("PTTL {name}"));
            let rests = alone.quotas()[0].reset_after().max(both.quotas()[0].reset_after());
            let needed = rests.saturating_sub(asked.elapsed()).as_millis();
            assert!(left + 1 >= i64::try_from(needed).unwrap(), "{name} has {left} of {needed} ms left");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_is_the_servers() {
    let server = Server::start();
    let mut admin = server.admin();
    let mut time = move || {
        let (seconds, micros): (u64, u64) = run(&mut admin, "TIME");
        seconds * 1_000_000 + micros
    };
    for limiter in limiters(&store(&server).await, Quota::per_day(3)) {
        let before = time();
        let decision = limiter.check("ada").await.expect("the store answers");
        let spent = decision.spent_us();
        assert!((before..=time()).contains(&spent), "{limiter:?}: {spent} is not between {before} and now");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_of_a_rules_file_share_a_key_if_they_have_the_same_secret() {
    let server = Server::start();
    let text = format!(
        "version: 1\nstore:\n  redis: \"{}\"\n  secret: ${{SECRET}}\npolicies: {{ p: {{ quota: 1/h }} }}\nrules: []\n",
        server.url()
    );
    let file = |secret: &str| {
        let variables = [("SECRET", secret)].into_iter().collect();
        RulesFile::parse("rules.yaml", &text, &variables).unwrap()
    };
    for (secret, passes) in [("one", true), ("one", false), ("another", true)] {
        let store = file(secret).connected_store(Duration::from_secs(20)).await.unwrap();
        let decision = Policy::gcra("p", "1/h").on(store).unwrap().check("ada").await.unwrap();
        assert_eq!(decision.is_allowed(), passes, "{secret}");
    }
    let unset = RulesFile::parse("rules.yaml", &text, &Variables::none().or_placeholders()).unwrap();
    let error = unset.connected_store(Duration::from_secs(20)).await.err().unwrap().to_string();
    assert!(error.contains("SECRET") && !error.contains("another"), "{error}");
}
