//! Shards of a hot key on a real Cluster, and regions on servers of their own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Policy, Quota, RateLimiter, Store};
use sluicegate_fleet::{Regional, Sharded};
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::{Cluster, standalone};

use crate::support::{connected, patient};

/// Nothing refills during a test.
fn quota(limit: u64) -> Quota {
    Quota::new(limit, Duration::from_secs(300 * 86_400))
}

/// How many calls are allowed that several tasks make at once, each of this cost.
async fn admitted(limiters: &[RateLimiter], key: &str, cost: u64, calls: usize) -> u64 {
    let tasks = limiters.iter().cloned().map(|limiter| {
        let key = key.to_owned();
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..calls {
                let decision = limiter.check(&key).cost(cost).await.unwrap();
                assert_eq!(decision.decided_by(), DecidedBy::Store);
                admitted += u64::from(decision.is_allowed());
            }
            admitted
        })
    });
    let mut sum = 0;
    for task in tasks.collect::<Vec<_>>() {
        sum += task.await.unwrap();
    }
    sum
}

/// The buckets of a policy, with the ports of the primaries that have them.
fn buckets(cluster: &Cluster, name: &str) -> Vec<(u16, String)> {
    let is_primary = |node: &&Server| {
        let role: Vec<redis::Value> = node.run("ROLE");
        matches!(&role[0], redis::Value::BulkString(role) if role == b"master")
    };
    let nodes = cluster.nodes.iter().filter(is_primary);
    let each = nodes.flat_map(|node| {
        let keys: Vec<String> = node.run(&format!("KEYS *:{name}*"));
        keys.into_iter().map(|key| (node.port(), key))
    });
    each.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shards_are_on_slots_of_their_own_and_admit_exactly_the_limit() {
    let cluster = Cluster::shared();
    let mut limiters = Vec::new();
    for _ in 0..3 {
        let redis = connected(patient("shards"), &cluster.url()).await;
        let store = Sharded::builder(&redis, 8).policy("service").build().unwrap();
        limiters.push(Policy::gcra("service", quota(500)).on(&store).unwrap());
    }
    assert_eq!(admitted(&limiters, "everybody", 1, 250).await, 500);
    let buckets = buckets(cluster, "service");
    let nodes: HashSet<u16> = buckets.iter().map(|(port, _)| *port).collect();
    let tags: HashSet<&str> =
        buckets.iter().filter_map(|(_, key)| key.split_once('{')).map(|(_, tag)| tag).collect();
    assert_eq!((buckets.len(), tags.len()), (8, 8), "{buckets:?}");
    assert!(nodes.len() > 1, "eight slots are on more than one node: {buckets:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_five_on_two_nodes_are_twenty_five_one_by_one_and_in_two() {
    let cluster = Cluster::shared();
    let redis = connected(patient("two"), &cluster.url()).await;
    let store: Arc<dyn Store> = Sharded::builder(&redis, 2).policy("hot").build().unwrap().into();
    let hot = RateLimiter::new(store, Policy::gcra("hot", quota(25)).refunds().build().unwrap()).unwrap();
    // One of some keys has its shards on two nodes.
    let mut keys = (0..64).map(|key| format!("key-{key}"));
    let key = loop {
        let key = keys.next().expect("two in three are on two nodes");
        let before = buckets(cluster, "hot").len();
        for cost in [13, 12] {
            assert!(hot.check(&key).cost(cost).await.unwrap().is_allowed(), "all of one of them");
        }
        let all = buckets(cluster, "hot");
        assert_eq!(all.len(), before + 2);
        let nodes: HashSet<u16> = all.iter().map(|(port, _)| *port).collect();
        if before == 0 && nodes.len() == 2 {
            break key;
        }
        for (port, name) in &all {
            cluster.nodes.iter().find(|node| node.port() == *port).unwrap().run::<()>(&format!("DEL {name}"));
        }
    };
    let refused = hot.check(&key).cost(6).await.unwrap();
    assert_eq!((refused.is_allowed(), refused.capacity(), refused.remaining()), (false, 25, 0));
    assert!(hot.reset(&key).await.unwrap().is_allowed());
    assert_eq!(admitted(std::slice::from_ref(&hot), &key, 1, 30).await, 25);
    assert!(hot.reset(&key).await.unwrap().is_allowed());
    let mut decision = hot.check(&key).cost(13).await.unwrap();
    let mut receipt = decision.take_receipt(0).unwrap();
    assert!(hot.refund(&key, 12).of(&mut receipt).await.unwrap().is_allowed());
    assert_eq!(hot.peek(&key).await.unwrap().remaining(), 24);
    assert_eq!(admitted(&[hot.clone(), hot], &key, 5, 5).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn regions_share_a_limit_and_one_whose_reserve_is_away_keeps_its_own() {
    let mut reserve = Server::start();
    let url = |server: &Server| format!("redis://127.0.0.1:{}", server.port());
    let mut regions = Vec::new();
    for region in ["eu", "us"] {
        // One server stands for those of both regions: each has its prefix.
        let own = connected(patient(region), &url(standalone())).await;
        let far = connected(patient("reserve").deadline(Duration::from_millis(500)), &url(&reserve)).await;
        let (own, far) = (Resilient::builder(&own), Resilient::builder(&far).replicas(2));
        let store = Regional::builder(region, own.build().unwrap(), far.build().unwrap());
        let store = store.region("eu", 2).region("us", 1).build().unwrap();
        regions.push(Policy::gcra("api", quota(100)).on(&store).unwrap());
    }
    assert_eq!(admitted(&regions, "ada", 1, 90).await, 100, "40, 20, and a reserve of 40");
    assert!(regions[0].reset("ada").await.unwrap().is_allowed());
    assert_eq!(regions[0].peek("ada").await.unwrap().remaining(), 80);
    reserve.stop();
    let mut allowed = 0;
    for _ in 0..90 {
        allowed += u64::from(regions[0].check("ada").await.unwrap().is_allowed());
    }
    assert_eq!(allowed, 60, "its own share, and half of the reserve by the fallback");
}
