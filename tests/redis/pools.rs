//! Stores on pools of deadpool-redis.

use std::time::Duration;

use deadpool_redis::{Runtime, cluster, sentinel};
use sluicegate_conformance::Conformance;
use sluicegate_core::Policy;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_redis::{DeadPool, RedisStore};
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::{Cluster, Sentinels, standalone};

use crate::support::patient;

async fn decides_as_memory_does(pool: impl Into<DeadPool>, prefix: &str) {
    let clock = ManualClock::new();
    let store = patient(prefix).clock(clock.clone());
    let store = store.pool(pool).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the servers are up");
    let suite = Conformance::new(store, clock);
    suite.all_or_nothing().await;
    suite.rejected_requests_count().await;
    suite.same_decisions_as_memory(Duration::ZERO, 11, 10).await;
}

fn pool(server: &Server, size: usize) -> deadpool_redis::Pool {
    let config = deadpool_redis::Config::from_url(server.url());
    config.builder().unwrap().max_size(size).runtime(Runtime::Tokio1).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_one_server() {
    decides_as_memory_does(pool(standalone(), 4), "pool").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_a_sentinel_group() {
    let nodes: Vec<_> = Sentinels::shared().sentinels.iter().map(Server::url).collect();
    let config = sentinel::Config::from_urls(nodes, "main".to_owned(), sentinel::SentinelServerType::Master);
    decides_as_memory_does(config.create_pool(Some(Runtime::Tokio1)).unwrap(), "pool").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_a_cluster() {
    let nodes: Vec<_> = Cluster::shared().nodes.iter().map(Server::url).collect();
    let config = cluster::Config::from_urls(nodes);
    decides_as_memory_does(config.create_pool(Some(Runtime::Tokio1)).unwrap(), "pool").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_has_no_connection_left_costs_the_deadline() {
    let server = Server::start();
    let pool = pool(&server, 1);
    let store = RedisStore::builder().deadline(Duration::from_millis(100)).pool(pool.clone()).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the server is up");
    let limiter = Policy::gcra("login", "9/day").on(&store).unwrap();
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    let taken = pool.get().await.unwrap();
    let error = limiter.charge("ada", 1).await.expect_err("the only connection is in use");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    drop(taken);
    assert!(limiter.check("ada").await.unwrap().is_allowed());
}
