//! Connections that are closed while nobody uses them: the next decision must not pay for it.

use std::time::Duration;

use sluicegate_core::{Policy, RateLimiter};
use sluicegate_redis::RedisStore;

use crate::deployments::Cluster;
use crate::servers::{Server, eventually};

async fn limiter(url: &str) -> RateLimiter {
    let store = RedisStore::builder().deadline(Duration::from_secs(5)).connect(url).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the server is up");
    Policy::gcra("login", "100/day").on(&store).unwrap()
}

/// The connections of stores, by the number that the server gave them: those whose last command was the script.
fn connections(server: &Server) -> Vec<String> {
    let clients: String = server.run("CLIENT LIST");
    let of_stores = clients.lines().filter(|client| client.contains(" cmd=eval"));
    of_stores.filter_map(|client| client.split(' ').next()).map(str::to_owned).collect()
}

/// Waits until the store has another connection, without asking it for anything.
fn replaced(server: &Server, old: &[String]) {
    eventually("the store connects again while nobody asks", || {
        let now = connections(server);
        !now.is_empty() && now.iter().all(|connection| !old.contains(connection))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_decision_after_the_server_closed_an_idle_connection_succeeds() {
    let server = Server::start();
    let limiter = limiter(&server.url()).await;
    assert!(limiter.check("ada").await.unwrap().is_allowed());
    let old = connections(&server);
    server.run::<()>("CONFIG SET timeout 1");
    replaced(&server, &old);
    let decision = limiter.check("ada").await.expect("the new connection was there before the request");
    assert_eq!(decision.remaining(), 98, "and nothing was sent twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_decision_after_a_connection_was_killed_succeeds() {
    let server = Server::start();
    let limiter = limiter(&server.url()).await;
    for left in [99, 98, 97] {
        let old = connections(&server);
        server.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
        replaced(&server, &old);
        assert_eq!(limiter.check("ada").await.expect("it is there again").remaining(), left);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_replaces_the_idle_connection_to_one_node() {
    let cluster = Cluster::start(&[]);
    let limiter = limiter(&cluster.url()).await;
    for key in 0..30_u64 {
        limiter.check(key).await.unwrap();
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
        limiter.check(key).await.expect("nobody was to notice");
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
        limiter.check(key).await.unwrap();
    }
    let open = || cluster.nodes.iter().any(|node| !connections(node).is_empty());
    assert!(open());
    drop(limiter);
    eventually("the connections are closed", || !open());
}
