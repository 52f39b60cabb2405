//! Keys that go on after many refusals: at the same refusal for all processes, as long as Redis remembers.

use sluicegate_core::limiter::check_all;
use std::time::Duration;

use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Key, MemoryStore, Outcome, Policy};
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::{Cluster, standalone};

use crate::support::{connected, patient};

const HALF_AN_HOUR: Duration = Duration::from_secs(1_800);

async fn store(url: &str, prefix: &str) -> RedisStore {
    connected(patient(prefix), url).await
}

fn login() -> PolicyBuilder {
    Policy::fixed_window("login", "3/365d").suspend(5, "1h", HALF_AN_HOUR)
}

/// Three pass, four are refused, and from the next one on the key is suspended.
fn expected(request: usize) -> Outcome {
    match request {
        0..3 => Outcome::Allowed,
        3..7 => Outcome::Denied,
        _ => Outcome::Suspended,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_instances_and_one_in_memory_suspend_at_the_same_refusal_and_agree_when_it_ends() {
    let mut limiters = Vec::new();
    for _ in 0..4 {
        limiters.push(login().on(&store(&standalone().url(), "suspend-four").await).unwrap());
    }
    let memory = login().on(MemoryStore::new()).unwrap();
    for request in 0..16 {
        let decision = limiters[request % 4].check("ada").await.unwrap();
        assert_eq!(decision.outcome(), expected(request), "request {request}");
        assert_eq!(
            memory.check("ada").await.unwrap().outcome(),
            expected(request),
            "in memory, request {request}"
        );
    }
    let mut ends = Vec::new();
    for limiter in &limiters {
        let decision = limiter.peek("ada").await.unwrap();
        ends.push(decision.stands_at() + decision.retry_after().unwrap());
    }
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    let _ = limiters[3].suspensions().release("ada").await.unwrap();
    for limiter in &limiters {
        assert_eq!(
            limiter.peek("ada").await.unwrap().outcome(),
            Outcome::Denied,
            "what is spent stays spent"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refusals_of_many_tasks_at_the_same_time_suspend_a_key_once() {
    let mut limiters = Vec::new();
    for _ in 0..4 {
        let policy = Policy::fixed_window("many", "3/365d").suspend(1, "1h", HALF_AN_HOUR);
        limiters.push(policy.on(&store(&standalone().url(), "suspend-many").await).unwrap());
    }
    let tasks: Vec<_> = (0..64).map(|task| tokio::spawn(limiters[task % 4].check("ada").start())).collect();
    let mut allowed = 0;
    for task in tasks {
        allowed += u32::from(task.await.unwrap().unwrap().is_allowed());
    }
    let decision = limiters[0].peek("ada").await.unwrap();
    assert_eq!((allowed, decision.outcome()), (3, Outcome::Suspended));
    assert!(decision.retry_after().unwrap() <= HALF_AN_HOUR, "{decision:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_outlives_the_service_and_a_restart_of_redis_that_persists() {
    // The folder of a server ends with its process.
    let folder = std::env::temp_dir().join(format!("sluicegate-suspension-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let dir = folder.to_str().unwrap();
    let mut server = Server::start_with(&["--dir", dir, "--appendonly", "yes", "--appendfsync", "always"]);
    let limiter = login().on(&store(&server.url(), "suspend-restart").await).unwrap();
    let _ = limiter.suspensions().suspend("ada", HALF_AN_HOUR).await.unwrap();
    for request in 0..9 {
        assert_eq!(limiter.check("bob").await.unwrap().outcome(), expected(request));
    }
    drop(limiter);
    server.restart();
    let limiter = login().on(&store(&server.url(), "suspend-restart").await).unwrap();
    for key in ["ada", "bob"] {
        let decision = limiter.check(key).await.unwrap();
        assert_eq!(decision.outcome(), Outcome::Suspended, "{key}");
        assert!(decision.retry_after().unwrap() > HALF_AN_HOUR / 2, "{key}: {decision:?}");
    }
    server.stop();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_redis_that_forgets_forgets_suspensions() {
    let mut server = Server::start();
    let limiter = login().on(&store(&server.url(), "suspend-forget").await).unwrap();
    assert_eq!(
        limiter.suspensions().suspend("ada", HALF_AN_HOUR).await.unwrap().outcome(),
        Outcome::Suspended
    );
    server.restart();
    let limiter = login().on(&store(&server.url(), "suspend-forget").await).unwrap();
    assert!(limiter.check("ada").await.unwrap().is_allowed());
}

/// The buckets of a key live in its slot, so that a decision is one call on a Cluster, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_one_call_of_redis_and_its_buckets_vanish_when_they_are_at_rest() {
    let server = Server::start();
    let redis = store(&server.url(), "suspend-calls").await;
    let limiter = login().on(&redis).unwrap();
    assert!(limiter.check("warm").await.unwrap().is_allowed());
    let calls = || {
        let info: String = server.run("INFO commandstats");
        let of = |command: &str| {
            let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")))?;
            line.split(['=', ',']).nth(1)?.parse::<u64>().ok()
        };
        of("evalsha").unwrap_or(0) + of("eval").unwrap_or(0)
    };
    let before = calls();
    for request in 0..10 {
        assert_eq!(limiter.check("ada").await.unwrap().outcome(), expected(request));
    }
    // Three pass, two are suspended; four are refused and count; one is refused, counts, and suspends.
    assert_eq!(calls() - before, 5 + 4 * 2 + 3);
    for bucket in ["login.strikes", "login.suspended", "login.suspensions"] {
        let name = redis.key_name(bucket, "ada");
        let expires: i64 = server.run(&format!("PTTL {name}"));
        let is_there = bucket != "login.strikes";
        assert_eq!(expires > 0, is_there, "{name} expires in {expires} ms");
        assert!(expires <= 86_401_000, "{name} expires in {expires} ms");
    }
    assert_eq!(server.run::<i64>(&format!("EXISTS {}", redis.key_name("login.suspended", "warm"))), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_suspends_keys_of_every_slot_and_several_limits_of_a_request() {
    let redis = store(&Cluster::shared().url(), "suspend-cluster").await;
    let limiter = login().on(&redis).unwrap();
    for key in 0..8_u64 {
        for request in 0..9 {
            assert_eq!(limiter.check(key).await.unwrap().outcome(), expected(request), "key {key}");
        }
    }
    let wide = Policy::fixed_window("wide", "1000/365d").suspend(2, "1h", "1h").on(&redis).unwrap();
    let (suspended, fresh, other) = (Key::from(3_u64), Key::from(100_u64), Key::from(101_u64));
    let ask = |key: &Key| check_all([limiter.check(key), wide.check(&other)]);
    assert!(ask(&fresh).await.unwrap().is_allowed());
    let refused = ask(&suspended).await.unwrap();
    assert_eq!(refused.outcome(), Outcome::Suspended);
    assert!(refused.quotas()[0].is_suspended() && refused.quotas()[1].passed(), "{refused:?}");
    assert_eq!(wide.peek(&other).await.unwrap().remaining(), 999, "a suspended request spends nothing");
}

/// Each of them has suspended the key by itself while Redis was away, and tells Redis what is left: that added up.
#[tokio::test(flavor = "multi_thread")]
async fn stores_that_suspend_a_key_in_the_same_outage_suspend_it_once_when_redis_is_back() {
    let mut server = Server::start();
    let mut instances = Vec::new();
    for _ in 0..3 {
        let resilient = Resilient::new(store(&server.url(), "suspend-outage").await);
        instances.push((login().on(&resilient).unwrap(), resilient));
    }
    server.stop();
    for (limiter, _) in &instances {
        for _ in 0..9 {
            drop(limiter.check("ada").await.unwrap());
        }
        let alone = limiter.peek("ada").await.unwrap();
        assert_eq!((alone.outcome(), alone.decided_by()), (Outcome::Suspended, DecidedBy::Fallback));
    }
    server.restart();
    for (_, resilient) in &instances {
        resilient.close(Duration::from_secs(20)).await.unwrap();
    }
    let limiter = login().on(&store(&server.url(), "suspend-outage").await).unwrap();
    let ada = limiter.peek("ada").await.unwrap();
    assert_eq!(ada.outcome(), Outcome::Suspended);
    let lasts = ada.retry_after().unwrap();
    assert!((HALF_AN_HOUR / 2..=HALF_AN_HOUR).contains(&lasts), "{ada:?}");
    assert_eq!(
        limiter.suspensions().strikes("ada").await.unwrap().unwrap().suspensions,
        1,
        "it is remembered once"
    );
}
