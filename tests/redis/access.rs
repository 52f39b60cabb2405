//! Which rights the store needs, and that it needs no others.

use std::time::Duration;

use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Decision, Policy, RateLimiter, StoreError};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::{Cluster, Sentinels};

use crate::support::{connected, patient};

/// The commands in the crate's documentation.
const COMMANDS: [&str; 6] = ["eval", "evalsha", "time", "get", "set", "del"];

/// A server with a user `app` that has these rights, and a store that logs in as that user.
fn restricted(commands: &[&str]) -> (Server, RedisStore) {
    let server = Server::start();
    let rights: Vec<_> = commands.iter().map(|command| format!("+{command}")).collect();
    server.run::<()>(&format!("ACL SETUSER app on >secret ~rl:* {}", rights.join(" ")));
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(20))
        .connect(&format!("redis://app:secret@127.0.0.1:{}", server.port()))
        .expect("the URL can be read");
    (server, store)
}

/// The same decision, if the store has made it.
fn by_store(decision: Decision) -> Result<Decision, StoreError> {
    match decision.decided_by() {
        DecidedBy::Store => Ok(decision),
        _ => Err(StoreError::new(StoreErrorKind::Unavailable)),
    }
}

/// Everything that a store can be asked, of every algorithm.
async fn ask_everything(store: &RedisStore) -> Result<(), StoreError> {
    for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let policy = Policy::builder(format!("policy-{index}"), algorithm, "3/s").build().unwrap();
        let limiter = RateLimiter::new(store, policy).unwrap();
        for _ in 0..4 {
            let _ = by_store(limiter.check("ada").await?)?;
        }
        let _ = by_store(limiter.check("ada").reserve(Duration::from_secs(9)).await?)?;
        let _ = by_store(limiter.check("ada").reserve(Duration::from_secs(9)).await?)?;
        let _ = by_store(limiter.peek("ada").await?)?;
        let _ = limiter.charge("ada", 2).await?;
        let _ = limiter.refund("ada", 1).await?;
        let _ = limiter.reset("ada").await?;
        // A period later there are entries that are over; the server's time is real time.
        let short = Policy::builder(format!("short-{index}"), algorithm, "3/ms").build().unwrap();
        let short = RateLimiter::new(store, short).unwrap();
        for _ in 0..20 {
            let _ = short.check("ada").await?;
            let _ = short.refund("ada", 1).await?;
            let _ = short.charge("ada", 1).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_enough() {
    let (server, store) = restricted(&COMMANDS);
    store.connected(Duration::from_secs(20)).await.expect("the probe needs no other rights");
    ask_everything(&store).await.expect("no other rights are needed");
    let refused: Vec<redis::Value> = server.run("ACL LOG");
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn none_of_the_documented_rights_can_be_spared() {
    for spared in COMMANDS {
        let others: Vec<_> = COMMANDS.into_iter().filter(|command| *command != spared).collect();
        let (server, store) = restricted(&others);
        let refused = async {
            store.connected(Duration::from_secs(20)).await?;
            ask_everything(&store).await
        };
        // Without some, the store never connects; then the server's log says why, and nobody has to wait.
        let log = async {
            while server.run::<Vec<redis::Value>>("ACL LOG").is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = refused => assert!(answer.is_err(), "{spared} is not needed"),
            () = log => {}
        }
    }
}

/// Gives a user `app` these rights, and asks everything as that user.
async fn asks_everything_as_user<'a>(url: &str, nodes: impl IntoIterator<Item = &'a Server>, extra: &str) {
    let rights: Vec<_> = COMMANDS.iter().map(|command| format!("+{command}")).collect();
    for node in nodes {
        node.run::<()>(&format!("ACL SETUSER app on >secret ~access:* {} {extra}", rights.join(" ")));
    }
    let url = url.replace("://", "://app:secret@");
    let store = connected(patient("access"), &url).await;
    ask_everything(&store).await.expect("no other rights are needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_takes_one_right_more() {
    let cluster = Cluster::shared();
    asks_everything_as_user(&cluster.url(), &cluster.nodes, "+cluster|slots").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_group_takes_one_right_more() {
    let group = Sentinels::shared();
    asks_everything_as_user(&group.url(), [&group.master, &group.replica], "+role").await;
}
