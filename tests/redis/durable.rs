//! Stores that use only servers which keep what they have counted, and what such a server has after it was killed.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::store::DecidedBy;
use sluicegate_core::{OnOutage, Policy};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::Cluster;
use sluicegate_tests::servers::persistent::Persistent;

use crate::support::{connected, patient};

const PATIENCE: Duration = Duration::from_secs(20);

fn durable(url: &str) -> RedisStore {
    patient("durable").durable().first_connection(Duration::ZERO).connect(url).unwrap()
}

/// Why the store has no connection, at the moment.
async fn refusal(store: &RedisStore) -> String {
    let error = store.connected(Duration::from_millis(500)).await.expect_err("the server is not durable");
    error.source().map(ToString::to_string).unwrap_or_default()
}

/// What the store says once its problem is the one with this word.
async fn problem_with(store: &RedisStore, word: &str) -> String {
    loop {
        let problem = refusal(store).await;
        if problem.contains(word) {
            return problem;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_is_not_used_and_the_error_names_the_setting_that_mends_it() {
    let mut server = Server::reserve(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let store = durable(&server.url());
    let budget = Policy::gcra("budget", "100/month").on_outage(OnOutage::Deny).on(&store).unwrap();
    assert!(!refusal(&store).await.contains("durable"), "there is no server yet");
    server.restart();
    let problem = problem_with(&store, "durable").await;
    for part in ["\"appendonly yes\"", "maxmemory-policy allkeys-lru", "\"maxmemory-policy noeviction\""] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
    let decision = budget.check("ada").await.unwrap();
    assert_eq!((decision.is_allowed(), decision.decided_by()), (false, DecidedBy::Outage));
    // Half of it is not enough, and another store is none of its business.
    let _: () = server.run("CONFIG SET maxmemory-policy noeviction");
    let problem = problem_with(&durable(&server.url()), "appendonly").await;
    assert!(!problem.contains("maxmemory"), "{problem}");
    connected(patient("any"), &server.url()).await;
    // Once it is mended, the store that was there first finds out by itself.
    let _: () = server.run("CONFIG SET appendonly yes");
    store.connected(PATIENCE).await.unwrap();
    assert!(budget.check("ada").cost(100).await.unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_may_not_look_at_the_settings_is_told_so() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    let _: () = server.run("ACL SETUSER app on >word ~rl:* ~durable:* +eval +evalsha +time +get +set +del");
    let store = durable(&format!("redis://app:word@127.0.0.1:{}", server.port()));
    let problem = problem_with(&store, "rights").await;
    assert!(problem.contains("info"), "{problem}");
    let _: () = server.run("ACL SETUSER app +info");
    store.connected(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_primary_of_a_cluster_has_to_be_durable() {
    let cluster = Cluster::start(&["--appendonly", "yes"]);
    durable(&cluster.url()).connected(PATIENCE).await.unwrap();
    let _: () = cluster.nodes[1].run("CONFIG SET appendonly no");
    let store = patient("durable").durable().connect(&cluster.url()).unwrap();
    let problem = problem_with(&store, "appendonly").await;
    let primary = cluster.nodes[1].port().to_string();
    assert!(problem.contains(&primary), "{primary}: {problem}");
}

/// Each decision that was told is in the file, and those under way may be; with `everysec` the system has still to write the last ones to the
/// disk, and loses them if it goes down too.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_has_all_that_was_told_when_it_is_back() {
    for fsync in ["always", "everysec"] {
        is_killed_and_comes_back(fsync).await;
    }
}

async fn is_killed_and_comes_back(fsync: &str) {
    const TASKS: u64 = 16;
    let mut redis = Persistent::start(fsync);
    let store = durable(&redis.server.url());
    store.connected(PATIENCE).await.unwrap();
    let budget = Policy::gcra("budget", "1000000/year carry over 10%").on_outage(OnOutage::Deny);
    let budget = budget.refunds().on(&store).unwrap();
    let mut receipt = budget.check("ada").cost(1_000).await.unwrap().take_receipt(0).unwrap();
    let _ = budget.refund("ada", 400).of(&mut receipt).await.unwrap();
    let _ = budget.charge("ada", 50).await.unwrap();

    let told = Arc::new(AtomicU64::new(0));
    let spending = (0..TASKS).map(|_| {
        let (budget, told) = (budget.clone(), Arc::clone(&told));
        tokio::spawn(async move {
            loop {
                let decision = budget.check("ada").await.unwrap();
                if decision.decided_by() != DecidedBy::Store {
                    return;
                }
                told.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let spending: Vec<_> = spending.collect();
    while told.load(Ordering::Relaxed) < 500 {
        tokio::task::yield_now().await;
    }
    redis.server.restart();
    for task in spending {
        task.abort();
        _ = task.await;
    }
    let told = told.load(Ordering::Relaxed);
    store.connected(PATIENCE).await.unwrap();
    let back = durable(&redis.server.url());
    back.connected(PATIENCE).await.unwrap();
    let budget = Policy::gcra("budget", "1000000/year carry over 10%").refunds().on(&back).unwrap();
    let used = 1_000_000 - budget.peek("ada").await.unwrap().remaining() - 650;
    // Of two servers' times, calls were under way at the end of both.
    assert!((told..=told + 2 * TASKS).contains(&used), "{fsync}: {used} are used, and {told} were told");
}
