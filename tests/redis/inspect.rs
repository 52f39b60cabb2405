//! What is in Redis, by policy.

use std::time::Duration;

use redis::Value;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::Cluster;

use crate::support::{connected, patient};

/// Two policies, one with more keys than a step of a scan looks at; and keys of others.
async fn filled(store: &RedisStore, other: &RedisStore) {
    let [search, login] = ["search", "login"].map(|name| Policy::gcra(name, "5/h").on(store).unwrap());
    let spend = async |limiter: &RateLimiter, keys: u64| {
        for key in 0..keys {
            assert!(limiter.check(key).await.unwrap().is_allowed());
        }
    };
    spend(&search, 1_500).await;
    spend(&login, 3).await;
    spend(&Policy::gcra("login", "5/h").on(other).unwrap(), 2).await;
}

async fn counted(store: &RedisStore) -> Vec<(String, u64)> {
    let all = store.inspect().await.unwrap();
    for of in &all {
        assert!((60 * of.keys..176 * of.keys).contains(&of.bytes), "{of:?}");
        assert!(of.idle.unwrap() < Duration::from_secs(600), "{of:?}");
    }
    all.into_iter().map(|of| (of.policy, of.keys)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_policy_is_counted_and_keys_of_other_prefixes_and_programs_are_not() {
    let server = Server::start();
    let store = connected(patient("rl"), &server.url()).await;
    assert_eq!(counted(&store).await, []);
    filled(&store, &connected(patient("shop"), &server.url()).await).await;
    server.run::<()>("SET rl:3:foreign 1");
    let of = |policy: &str, keys| (policy.to_owned(), keys);
    assert_eq!(counted(&store).await, [of("login", 3), of("search", 1_500)]);
    server.run::<Value>("CONFIG SET maxmemory-policy allkeys-lfu");
    assert_eq!(store.inspect().await.unwrap()[0].idle, None, "it counts how often, and not when");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_primary_of_a_cluster_is_looked_at() {
    let cluster = Cluster::shared();
    let store = connected(patient("inspect"), &cluster.url()).await;
    filled(&store, &connected(patient("inspect-other"), &cluster.url()).await).await;
    assert_eq!(counted(&store).await, [("login".to_owned(), 3), ("search".to_owned(), 1_500)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_or_refuses_is_an_error_that_says_so() {
    let away = RedisStore::connect("redis://127.0.0.1:1").unwrap().inspect().await.unwrap_err();
    assert_eq!(away.kind(), StoreErrorKind::Unavailable);
    let server = Server::start();
    server.run::<Value>("ACL SETUSER app on >word ~rl:* +eval +evalsha +time +get +set +del");
    let url = format!("redis://app:word@127.0.0.1:{}", server.port());
    let refused = RedisStore::connect(&url).unwrap().inspect().await.unwrap_err();
    let source = std::error::Error::source(&refused).unwrap().to_string();
    assert!(source.contains("scan"), "{source}");
    server.run::<Value>("ACL SETUSER app +scan +memory|usage +object|idletime");
    let store = RedisStore::connect(&url).unwrap();
    assert_eq!(store.inspect().await.unwrap(), []);
}
