//! A Sentinel group and a Cluster that lose the node that decides.

use std::time::{Duration, Instant};

use redis::Value;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::{Cluster, Sentinels};

use crate::support::connected;

async fn limiter(url: &str) -> RateLimiter {
    let store = connected(RedisStore::builder().deadline(Duration::from_secs(1)), url).await;
    Policy::gcra("login", "1000000/day").on(&store).unwrap()
}

/// Asks for all of the keys until all are decided.
async fn recovers(limiter: &RateLimiter, keys: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut last = None;
        for key in 0..keys {
            last = limiter.charge(key, 1).await.err().or(last);
        }
        let Some(error) = last else { return };
        assert!(Instant::now() < deadline, "not within 30 seconds: {error:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_master(server: &Server) -> bool {
    let role: Vec<Value> = server.run("ROLE");
    matches!(&role[0], Value::BulkString(role) if role == b"master")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_master_is_found_when_the_old_one_is_killed() {
    let mut group = Sentinels::start();
    let limiter = limiter(&group.url()).await;
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    group.master.stop();
    recovers(&limiter, 1).await;
    assert!(is_master(&group.replica));
}

/// A second is what one server may take to connect, and hanging sentinels took all of it, every time.
#[tokio::test(flavor = "multi_thread")]
async fn one_sentinel_that_answers_is_enough_to_connect() {
    let group = Sentinels::start();
    for sentinel in &group.sentinels[..2] {
        sentinel.signal("STOP");
    }
    let limiter = limiter(&group.url()).await;
    recovers(&limiter, 1).await;
}

/// A node that hangs is the trouble of its own keys: the connection to the others is not given up with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_takes_over_from_a_hanging_primary_while_the_others_go_on() {
    // With full coverage, all nodes refuse during the failover, as they are told to.
    let cluster = Cluster::start(&["--cluster-require-full-coverage", "no"]);
    let limiter = limiter(&cluster.url()).await;
    recovers(&limiter, 30).await;
    let hanging = cluster.nodes.iter().find(|node| is_master(node)).expect("there are primaries");
    hanging.signal("STOP");
    let (mut hang, mut go_on) = (Vec::new(), Vec::new());
    for key in 0..30_u64 {
        if limiter.charge(key, 1).await.is_ok() { go_on.push(key) } else { hang.push(key) }
    }
    assert!(!hang.is_empty() && !go_on.is_empty(), "{hang:?} {go_on:?}");
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = limiter.charge(hang[0], 1).await {
        assert!(Instant::now() < deadline, "not within 30 seconds: {error:?}");
        for key in &go_on {
            let _ = limiter.charge(*key, 1).await.expect("the other nodes are well");
        }
    }
    hanging.signal("CONT");
    recovers(&limiter, 30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_takes_over_from_a_killed_primary() {
    let mut cluster = Cluster::start(&[]);
    let limiter = limiter(&cluster.url()).await;
    recovers(&limiter, 30).await;
    let killed = cluster.nodes.iter_mut().find(|node| is_master(node)).expect("there are primaries");
    killed.stop();
    recovers(&limiter, 30).await;
}
