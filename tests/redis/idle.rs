//! Connections while nobody uses them: closed by one node, kept alive, and taken along by a store that is dropped.

use std::time::Duration;

use sluicegate_core::{Policy, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::deployments::{Cluster, Sentinels};
use sluicegate_tests::servers::{Server, eventually};

use crate::support::connected;

async fn store(url: &str) -> RedisStore {
    connected(RedisStore::builder().deadline(Duration::from_secs(5)), url).await
}

async fn limiter(url: &str) -> RateLimiter {
    limiter_on(&store(url).await)
}

fn limiter_on(store: &RedisStore) -> RateLimiter {
    Policy::gcra("login", "100/day").on(store).unwrap()
}

/// The connections of stores, by the number that the server gave them: those whose last command was the script.
fn connections(server: &Server) -> Vec<String> {
    let clients: String = server.run("CLIENT LIST");
    let of_stores = clients.lines().filter(|client| client.contains(" cmd=eval"));
    of_stores.filter_map(|client| client.split(' ').next()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_replaces_the_idle_connection_to_one_node() {
    let cluster = Cluster::start(&[]);
    let limiter = limiter(&cluster.url()).await;
    for key in 0..30_u64 {
        let _ = limiter.check(key).await.unwrap();
    }
    for node in &cluster.nodes {
        let ids = |node: &Server| -> Vec<String> {
            let clients: String = node.run("CLIENT LIST TYPE normal");
            let others = clients.lines().filter(|client| !client.contains(" cmd=client|list"));
            others.filter_map(|client| client.split(' ').next()).map(str::to_owned).collect()
        };
        let old = ids(node);
        node.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
        eventually("the client connects to the node again", || {
            let now = ids(node);
            old.is_empty() || now.iter().any(|id| !old.contains(id))
        });
    }
    for key in 0..30_u64 {
        let _ = limiter.check(key).await.expect("nobody was to notice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_know_hello_is_spoken_to_as_before() {
    let server = Server::start_with(&["--rename-command", "HELLO", ""]);
    let limiter = limiter(&server.url()).await;
    assert!(limiter.check("ada").await.unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_dropped_takes_its_connection_along() {
    let server = Server::start();
    let limiter = limiter(&server.url()).await;
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    assert_eq!(connections(&server).len(), 1);
    drop(limiter);
    eventually("the connection is closed", || connections(&server).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_dropped_takes_its_connections_to_a_cluster_along() {
    let cluster = Cluster::start(&[]);
    let limiter = limiter(&cluster.url()).await;
    for key in 0..30_u64 {
        let _ = limiter.check(key).await.unwrap();
    }
    let open = || cluster.nodes.iter().any(|node| !connections(node).is_empty());
    assert!(open());
    drop(limiter);
    eventually("the connections are closed", || !open());
}

/// How long the kernel leaves the connections to this port silent from now, of those that it looks after: `/proc/net/tcp` shows the
/// timer that runs for each, and when it ends, in hundredths of a second.
fn silent_for(port: u16) -> Vec<Option<Duration>> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel is Linux");
    let established = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let to_port = established.filter(|line| line[3] == "01" && line[2].ends_with(&format!(":{port:04X}")));
    let timer = |line: Vec<&str>| {
        let (kind, ends) = line[5].split_once(':').unwrap();
        // 02 is the one of keepalive.
        (kind == "02").then(|| Duration::from_millis(u64::from_str_radix(ends, 16).unwrap() * 10))
    };
    to_port.map(timer).collect()
}

/// A NAT forgets a flow that is silent for some minutes; then the first requests after each pause were all late.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_kept_alive_wherever_it_leads() {
    let (server, group, cluster) = (Server::start(), Sentinels::shared(), Cluster::shared());
    for (url, servers) in [
        (server.url(), vec![&server]),
        (group.url(), vec![&group.master]),
        (cluster.url(), cluster.nodes.iter().take(3).collect()),
    ] {
        let limiter = limiter(&url).await;
        for key in 0..30_u64 {
            let _ = limiter.check(key).await.unwrap();
        }
        for server in servers {
            // Replicas and sentinels are connected to the servers, too; each by a timer of its own.
            eventually("a connection is asked about every 15 seconds", || {
                let timers = silent_for(server.port());
                timers.into_iter().flatten().any(|silent| silent <= Duration::from_secs(15))
            });
        }
    }
}
