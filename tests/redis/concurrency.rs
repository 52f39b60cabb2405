//! Many tasks over several connections, against one limit, by the server's own time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::OnOutage;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Algorithm, Key, Policy, Quota, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::deployments::{Cluster, standalone};
use sluicegate_tests::servers::{Server, script_calls};
use tokio::task::JoinSet;

use crate::support::{connected, overheard, patient};

const TASKS: usize = 16;
const LIMIT: u64 = 40;

/// Nothing refills during a test, and no window ends.
fn quota(limit: u64) -> Quota {
    Quota::new(limit, Duration::from_secs(300 * 86_400))
}

/// Four stores with a connection each, as four instances of a service have.
async fn instances(url: &str, prefix: &str) -> Vec<RedisStore> {
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(connected(patient(prefix), url).await);
    }
    stores
}

/// How many of ten attempts by each of sixteen tasks are let in.
async fn admitted<C, F>(check: impl Fn(usize) -> C) -> u64
where
    C: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    let admitted = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (check, admitted) = (check(task), Arc::clone(&admitted));
        tasks.spawn(async move {
            for _ in 0..10 {
                // Relaxed: it is read when all tasks have ended.
                admitted.fetch_add(u64::from(check().await), Ordering::Relaxed);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panics");
    }
    admitted.load(Ordering::Relaxed)
}

fn name(algorithm: Algorithm) -> String {
    algorithm.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_tasks_over_four_connections_admit_exactly_the_limit() {
    let stores = instances(&standalone().url(), "exactly").await;
    for algorithm in ALGORITHMS {
        let policy = Policy::builder(name(algorithm), algorithm, quota(LIMIT)).build().unwrap();
        let limiters: Vec<_> =
            stores.iter().map(|store| RateLimiter::new(store, policy.clone()).unwrap()).collect();
        let sum = admitted(|task| {
            let limiter = limiters[task % 4].clone();
            move || {
                let verdict = limiter.check("everybody").start();
                async { verdict.await.expect("the store answers").is_allowed() }
            }
        });
        assert_eq!(sum.await, LIMIT, "{algorithm}");
    }
}

/// Four tasks on two instances, which walk through the customers in orders of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_customers_of_a_thousand_quotas_pass_exactly_what_each_has() {
    const CUSTOMERS: usize = 100_000;
    let server = Server::start();
    let stores = instances(&server.url(), "customers").await;
    let policy = Policy::gcra("api", quota(1)).build().unwrap();
    let limiters: Vec<_> =
        stores[..2].iter().map(|store| RateLimiter::new(store, policy.clone()).unwrap()).collect();
    let limit = |customer: usize| 1 + customer as u64 % 1_000 % 3;
    let passed: Arc<Vec<AtomicU64>> = Arc::new((0..CUSTOMERS).map(|_| AtomicU64::new(0)).collect());
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let (limiter, passed) = (limiters[task % 2].clone(), Arc::clone(&passed));
        tasks.spawn(async move {
            // A prime that no number of customers has in common, for each task.
            let step = [7_919, 15_013, 27_449, 39_119][task];
            let order = (0..CUSTOMERS).map(|turn| (turn * step + task) % CUSTOMERS);
            let mut order = order.peekable();
            while order.peek().is_some() {
                let asked: Vec<_> = order
                    .by_ref()
                    .take(256)
                    .map(|customer| {
                        let per_month = 1_000 + customer as u64 % 1_000;
                        let own =
                            Quota::new(per_month, Duration::from_secs(300 * 86_400)).burst(limit(customer));
                        let own = limiter.with_quotas(own).unwrap();
                        (customer, own.check(customer as u64).start())
                    })
                    .collect();
                for (customer, verdict) in asked {
                    let is_allowed = verdict.await.expect("the store answers").is_allowed();
                    passed[customer].fetch_add(u64::from(is_allowed), Ordering::Relaxed);
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panics");
    }
    let each = passed.iter().enumerate().map(|(customer, passed)| (customer, passed.load(Ordering::Relaxed)));
    let wrong: Vec<_> = each.filter(|(customer, passed)| *passed != limit(*customer)).collect();
    assert!(wrong.is_empty(), "{} of them: {:?}", wrong.len(), &wrong[..wrong.len().min(9)]);
}

/// A decision that waits for the answers of others goes with the next call.
#[tokio::test]
async fn decisions_at_the_same_time_share_calls() {
    let server = Server::start();
    let stores = instances(&server.url(), "together").await;
    let limiter = RateLimiter::new(&stores[0], Policy::gcra("shared", quota(500)).build().unwrap()).unwrap();
    let _ = limiter.check("warm").await.unwrap();
    server.run::<()>("CONFIG RESETSTAT");
    for round in 0..10_u64 {
        let asked = (0..64_u64).map(|key| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(("key", key % 7, round)).await })
        });
        let mut left = Vec::new();
        for answer in asked.collect::<Vec<_>>() {
            left.push(answer.await.unwrap().unwrap().remaining());
        }
        assert!(left.iter().all(|left| (490..500).contains(left)), "each decides for itself: {left:?}");
        assert_eq!(left.iter().filter(|left| **left == 499).count(), 7, "and each key has one first");
    }
    let calls: String = server.run("INFO commandstats");
    let calls = calls.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls: u64 = calls.and_then(|calls| calls.split(',').next()).unwrap().parse().unwrap();
    assert!(calls <= 10 * 10, "{calls} calls for 640 decisions");
}

/// Nobody waits for company: with nothing under way a decision is sent before anything else has run, and those of the same key that
/// come meanwhile are one call.
#[tokio::test]
async fn a_decision_that_has_nothing_to_share_is_sent_at_once_and_those_behind_it_are_one_call() {
    let server = Server::start();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let count = move |command: &Cmd| {
        let is_script = command.args_iter().next().is_some_and(|name| name == redis::Arg::Simple(b"EVALSHA"));
        // Relaxed: all of it is on one thread.
        counted.fetch_add(u64::from(is_script), Ordering::Relaxed);
    };
    let store = overheard(patient("alone"), &server.url(), count).await;
    let limiter = Policy::gcra("alone", quota(500)).on(&store).unwrap();
    for round in 0..5 {
        let before = calls.load(Ordering::Relaxed);
        let sent = || calls.load(Ordering::Relaxed) - before;
        let first = limiter.check("ada").start();
        assert_eq!(sent(), 1, "round {round}: it was not polled, and no other task has run");
        let behind: Vec<_> = (0..10).map(|_| limiter.check("ada").start()).collect();
        assert_eq!(sent(), 1, "round {round}: they wait for the answer to the first");
        assert!(first.await.unwrap().is_allowed());
        for answer in behind {
            assert!(answer.await.unwrap().is_allowed());
        }
        assert_eq!(sent(), 2, "round {round}: ten asks for one key in one call");
    }
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 500 - 55);
}

/// A process that is overloaded does not spend for callers that it has let wait too long.
#[tokio::test]
async fn a_decision_that_is_not_sent_before_its_deadline_spends_nothing() {
    let server = Server::start();
    let store = connected(patient("late"), &server.url()).await;
    let limiter = Policy::gcra("late", quota(5)).on_outage(OnOutage::Allow).on(&store).unwrap();
    // No other task runs meanwhile.
    let advance = |seconds| {
        let mut advanced = pin!(tokio::time::advance(Duration::from_secs(seconds)));
        _ = advanced.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    };
    tokio::time::pause();
    let [sent, late] = ["ada", "bob"].map(|key| limiter.check(key).start());
    advance(15);
    let in_time = limiter.check("cid").start();
    advance(10);
    tokio::time::resume();
    assert_eq!(in_time.await.unwrap().decided_by(), DecidedBy::Store);
    assert_eq!(late.await.unwrap().decided_by(), DecidedBy::Outage);
    drop(sent);
    assert_eq!(limiter.peek("bob").await.unwrap().remaining(), 5);
}

/// The first is sent at once, and the others in calls of 32 behind it.
#[tokio::test]
async fn a_batch_of_keys_shares_calls_and_is_decided_in_order() {
    let server = Server::start();
    let store = connected(patient("batch"), &server.url()).await;
    let limiter = Policy::gcra("batch", quota(5)).on(&store).unwrap();
    let _ = limiter.check("warm").await.unwrap();
    let before = script_calls(&mut server.admin());
    let keys: Vec<Key> = (0..64_u64).map(|place| Key::from(place % 8)).collect();
    let answers: Vec<_> = keys.iter().map(|key| limiter.check(key).start()).collect();
    for (place, answer) in (0..64_u64).zip(answers) {
        let (decision, earlier) = (answer.await.unwrap(), place / 8);
        let expected = (earlier < 5, 4_u64.saturating_sub(earlier));
        assert_eq!((decision.is_allowed(), decision.remaining()), expected, "request {place}");
    }
    let calls = script_calls(&mut server.admin()) - before;
    assert!(calls <= 4, "{calls} calls for 64 keys");
}

/// On a Cluster those of one slot do, which are those of one key most of the time.
#[tokio::test]
async fn decisions_about_one_key_of_a_cluster_at_the_same_time_share_calls() {
    let cluster = Cluster::start(&[]);
    let stores = instances(&cluster.url(), "together").await;
    let limiter = RateLimiter::new(&stores[0], Policy::gcra("shared", quota(500)).build().unwrap()).unwrap();
    let calls = || cluster.nodes.iter().map(|node| script_calls(&mut node.admin())).sum::<u64>();
    let before = calls();
    for round in 0..10_u64 {
        let asked = (0..64_u64).map(|key| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(("key", key % 4, round)).await })
        });
        let mut left = Vec::new();
        for answer in asked.collect::<Vec<_>>() {
            left.push(answer.await.unwrap().unwrap().remaining());
        }
        left.sort_unstable();
        let expected: Vec<u64> = (484..500).flat_map(|left| [left; 4]).collect();
        assert_eq!(left, expected, "each decides for itself, and none is decided twice");
    }
    let calls = calls() - before;
    // One call at once for each key, and one for the fifteen others of it.
    assert!(calls <= 10 * 4 * 4, "{calls} calls for 640 decisions");
}

/// What the script is there for: without it, the test above would fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_naive_get_then_increment_admits_more_than_the_limit() {
    let client = redis::Client::open(standalone().url()).unwrap();
    let mut connections: Vec<MultiplexedConnection> = Vec::new();
    for _ in 0..4 {
        connections.push(client.get_multiplexed_async_connection().await.unwrap());
    }
    // Once is almost always enough; the scheduler owes us nothing.
    for round in 0..50 {
        let key = format!("naive:{round}");
        let sum = admitted(|task| {
            let (connection, key) = (connections[task % 4].clone(), key.clone());
            move || {
                let (mut connection, key) = (connection.clone(), key.clone());
                async move {
                    let used: Option<u64> =
                        redis::cmd("GET").arg(&key).query_async(&mut connection).await.unwrap();
                    let fits = used.unwrap_or(0) < LIMIT;
                    if fits {
                        redis::cmd("INCR").arg(&key).exec_async(&mut connection).await.unwrap();
                    }
                    fits
                }
            }
        });
        if sum.await > LIMIT {
            return;
        }
    }
    panic!("the naive limiter kept the limit in 50 rounds, so these tests would not notice a race");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_keys_in_different_slots_are_spent_together_or_given_back() {
    let stores = instances(&Cluster::shared().url(), "slots").await;
    let (user, address) = (Key::from("ada"), Key::from("198.51.100.7"));
    for algorithm in ALGORITHMS {
        let policy = |which: &str, limit| {
            Policy::builder(format!("{}-{which}", name(algorithm)), algorithm, quota(limit)).build().unwrap()
        };
        let (wide, narrow) = (policy("wide", 60), policy("narrow", LIMIT));
        let limiters: Vec<_> = stores
            .iter()
            .map(|store| {
                let open = |policy: &Policy| RateLimiter::new(store, policy.clone()).unwrap();
                (open(&wide), open(&narrow))
            })
            .collect();
        let both = |instance: usize| {
            let (wide, narrow) = &limiters[instance];
            check_all([wide.check(&user), narrow.check(&address)])
        };
        let together = admitted(|task| {
            let (wide, narrow) = limiters[task % 4].clone();
            let (user, address) = (user.clone(), address.clone());
            move || {
                let verdict = check_all([wide.check(&user), narrow.check(&address)]);
                async { verdict.await.expect("the store answers").is_allowed() }
            }
        });
        let mut sum = together.await;
        assert!(sum <= LIMIT, "{algorithm}: {sum} of {LIMIT}");
        // Who was refused because others had spent, and then gave back, finds the room now.
        while both(0).await.expect("the store answers").is_allowed() {
            sum += 1;
        }
        assert_eq!(sum, LIMIT, "{algorithm}");
        let left = limiters[1].0.peek(&user).await.expect("the store answers");
        assert_eq!(left.remaining(), 60 - LIMIT, "{algorithm}: what a refused request spent is given back");
    }
}
