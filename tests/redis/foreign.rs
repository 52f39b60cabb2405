//! Values under our names that are not ours: they count as a fresh key, and no request fails for them.

use std::time::Duration;

use redis::Connection;
use sluicegate_core::conformance::ALGORITHMS;
use sluicegate_core::{Algorithm, Policy, RateLimiter};
use sluicegate_redis::RedisStore;

use crate::servers::{Server, run};

const VALUES: [&str; 12] = [
    "abc",
    "nan",
    "1e400",
    "-5",
    "",
    "inf",
    "0 0 0 0 0",
    "1 2 3 4",
    "-1 -1 -1 -1 0",
    "9007199254740993 9007199254740993 9007199254740993 9007199254740993 1",
    "99999999999999999999 1 1 1 1",
    "1e15 0 1 1 0",
];

/// Puts something else in the place of a key.
type Poison = fn(&mut Connection, name: &str, value: &str);

const POISONS: [Poison; 3] = [
    |server, name, value| redis::cmd("SET").arg(name).arg(value).exec(server).unwrap(),
    |server, name, value| redis::cmd("RPUSH").arg(name).arg(value).arg(value).exec(server).unwrap(),
    |server, name, value| redis::cmd("HSET").arg(name).arg("field").arg(value).exec(server).unwrap(),
];

async fn store(server: &Server) -> RedisStore {
    let store = RedisStore::builder().deadline(Duration::from_secs(20)).connect(&server.url()).unwrap();
    store.connected(Duration::from_secs(20)).await.expect("the server is up");
    store
}

/// What a fresh key does: three pass, and the fourth does not.
async fn is_fresh(limiter: &RateLimiter, what: &str) {
    for left in (0..3).rev() {
        let decision = limiter.check("ada").await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(decision.is_allowed() && decision.remaining() == left, "{what}: {decision:?}");
    }
    assert!(!limiter.check("ada").await.unwrap().is_allowed(), "{what}");
}

/// Spends all, so that the names are there, and says what they are.
async fn spent(limiter: &RateLimiter, server: &mut Connection) -> Vec<String> {
    run::<()>(server, "FLUSHALL");
    is_fresh(limiter, "after FLUSHALL").await;
    let names: Vec<String> = run(server, "KEYS *:policy:*");
    assert!(!names.is_empty());
    names
}

async fn each_algorithm(store: &RedisStore, mut test: impl AsyncFnMut(Algorithm, RateLimiter)) {
    for algorithm in ALGORITHMS {
        test(algorithm, Policy::builder("policy", algorithm, "3/day").on(store).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_values_are_a_fresh_key() {
    let server = Server::start();
    let store = store(&server).await;
    let mut admin = server.admin();
    each_algorithm(&store, async |algorithm, limiter| {
        for (kind, poison) in POISONS.iter().enumerate() {
            for value in VALUES {
                // Of the log's two keys, either one, and both.
                let names = spent(&limiter, &mut admin).await;
                for which in 1..1 << names.len() {
                    for (_, name) in names.iter().enumerate().filter(|(at, _)| which & (1 << at) != 0) {
                        run::<u64>(&mut admin, &format!("DEL {name}"));
                        poison(&mut admin, name, value);
                    }
                    is_fresh(&limiter, &format!("{algorithm}, {value:?} as {kind} in {which} of {names:?}"))
                        .await;
                }
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mode_survives_foreign_values() {
    let server = Server::start();
    let store = store(&server).await;
    let mut admin = server.admin();
    each_algorithm(&store, async |algorithm, limiter| {
        let names = spent(&limiter, &mut admin).await;
        for poison in POISONS {
            for mode in 0..5 {
                for name in &names {
                    run::<u64>(&mut admin, &format!("DEL {name}"));
                    poison(&mut admin, name, "nan");
                }
                let verdict = match mode {
                    0 => limiter.peek("ada"),
                    1 => limiter.refund("ada", 1),
                    2 => limiter.charge("ada", 1),
                    3 => limiter.reserve("ada", 1, Duration::from_secs(9)),
                    _ => limiter.reset("ada"),
                };
                let decision = verdict.await.unwrap_or_else(|error| panic!("{algorithm}, {mode}: {error:?}"));
                assert!(
                    decision.is_allowed() && decision.remaining() >= 2,
                    "{algorithm}, {mode}: {decision:?}"
                );
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spoiled_entry_in_the_middle_of_a_log_is_skipped() {
    let server = Server::start();
    let limiter = Policy::sliding_log("policy", "9/day").on(&store(&server).await).unwrap();
    for _ in 0..5 {
        limiter.check("ada").await.expect("the store answers");
    }
    let mut admin = server.admin();
    let names: Vec<String> = run(&mut admin, "KEYS *:policy:*");
    let list = names.iter().find(|name| !name.ends_with(":sum")).unwrap();
    run::<()>(&mut admin, &format!("LSET {list} 2 abc"));
    for _ in 0..9 {
        limiter.check("ada").await.expect("a denial walks the log, too");
    }
    limiter.refund("ada", 7).await.expect("a refund walks the log");
    limiter.check("ada").await.expect("the store answers");
}
