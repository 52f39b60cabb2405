//! Values under our names that are not ours: they count as a fresh key, and no request fails for them.

use std::time::Duration;

use redis::Connection;
use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::{Algorithm, Policy, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::{Server, run};

use crate::support::{connected, patient};

const TEXTS: [&str; 12] = [
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
    "a text of 24 characters.",
];

/// What a state would be, were these numbers possible.
const NUMBERS: [[u64; 5]; 6] = [
    [u64::MAX; 5],
    [1 << 53; 5],
    // Further ahead than any state; counts that are none.
    [9_000_000_000_000_000, 1, 0, 0, 0],
    [1_800_000_000_000_000, 1 << 53, 0, 0, 0],
    [1_800_000_000_000_000, 1, u64::MAX, 0, 0],
    [1_800_000_000_000_000, 1, 0, u64::MAX, 7],
];

/// The bytes of a state that ends a value of a key with one state, in its short form.
const STATE: usize = 13;

/// Numbers as they are in a value.
fn in_value(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().take(7)).collect()
}

/// All of these, by themselves and behind the head of a value that is ours, and the numbers in the place of its states.
fn values(ours: &[u8], entries: usize) -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = TEXTS.iter().map(|text| text.as_bytes().to_vec()).collect();
    let states = ours.len() - STATE - entries;
    for head in [1, 2, 4, 8, 16, states - 14, states - 7, states, states + 1, ours.len() - 1] {
        values.extend(TEXTS.iter().map(|text| [&ours[..head], text.as_bytes()].concat()));
        values.push(ours[..head].to_vec());
    }
    for numbers in NUMBERS {
        let bytes = in_value(&numbers);
        values.extend([bytes[..24].to_vec(), bytes.clone()]);
        // The long form of a state, and one that is none.
        for form in [1, 2, 255] {
            values.push([&ours[..states], &[form], &bytes, &ours[states + STATE..]].concat());
        }
    }
    values
}

/// Puts something else in the place of a key.
type Poison = fn(&mut Connection, name: &str, value: &[u8]);

const POISONS: [Poison; 3] = [
    |server, name, value| redis::cmd("SET").arg(name).arg(value).exec(server).unwrap(),
    |server, name, value| redis::cmd("RPUSH").arg(name).arg(value).arg(value).exec(server).unwrap(),
    |server, name, value| redis::cmd("HSET").arg(name).arg("field").arg(value).exec(server).unwrap(),
];

async fn store(server: &Server) -> RedisStore {
    connected(patient("rl"), &server.url()).await
}

/// What a fresh key does: three pass, and the fourth does not.
async fn is_fresh(limiter: &RateLimiter, what: &str) {
    for left in (0..3).rev() {
        let decision = limiter.check("ada").await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(decision.is_allowed() && decision.remaining() == left, "{what}: {decision:?}");
    }
    assert!(!limiter.check("ada").await.unwrap().is_allowed(), "{what}");
}

/// Spends all, so that the key is there, and says what it is called.
async fn spent(limiter: &RateLimiter, server: &mut Connection) -> String {
    run::<()>(server, "FLUSHALL");
    is_fresh(limiter, "after FLUSHALL").await;
    let names: Vec<String> = run(server, "KEYS *:policy:*");
    assert_eq!(names.len(), 1, "{names:?}");
    names[0].clone()
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
        let name = spent(&limiter, &mut admin).await;
        let ours: Vec<u8> = run(&mut admin, &format!("GET {name}"));
        // Of 14 bytes: three, or all in one part of the period.
        let entries = match algorithm {
            Algorithm::SlidingLog => 42,
            Algorithm::SlidingLogIn(_) => 14,
            _ => 0,
        };
        for (kind, poison) in POISONS.iter().enumerate() {
            for value in &values(&ours, entries) {
                run::<u64>(&mut admin, &format!("DEL {name}"));
                poison(&mut admin, &name, value);
                is_fresh(&limiter, &format!("{algorithm}, {value:?} as {kind}")).await;
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
        let name = spent(&limiter, &mut admin).await;
        for poison in POISONS {
            for mode in 0..5 {
                run::<u64>(&mut admin, &format!("DEL {name}"));
                poison(&mut admin, &name, b"nan");
                let verdict = match mode {
                    0 => limiter.peek("ada").start(),
                    1 => limiter.refund("ada", 1).start(),
                    2 => limiter.charge("ada", 1).start(),
                    3 => limiter.check("ada").reserve(Duration::from_secs(9)).start(),
                    _ => limiter.reset("ada").start(),
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

/// Requests that come together share a call; one that is out of the ordinary is decided by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_value_is_no_trouble_of_the_others_in_the_same_call() {
    let server = Server::start();
    let limiter = Policy::gcra("policy", "3/day").on(&store(&server).await).unwrap();
    let mut admin = server.admin();
    for round in 0..20_u64 {
        let _ = limiter.check(("poisoned", round)).await.unwrap();
        for name in run::<Vec<String>>(&mut admin, "KEYS *:policy:*") {
            run::<u64>(&mut admin, &format!("DEL {name}"));
            POISONS[1](&mut admin, &name, b"nan");
        }
        let keys = (0..32_u64)
            .map(|key| if key % 8 == 3 { ("poisoned", round) } else { ("honest", key + 32 * round) });
        let answers: Vec<_> = keys
            .map(|key| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check(key).await })
            })
            .collect();
        let mut refused = 0;
        for answer in answers {
            refused += u32::from(!answer.await.unwrap().expect("it is decided").is_allowed());
        }
        assert_eq!(refused, 1, "four asked for the poisoned key, which counts as fresh");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spoiled_entry_of_a_log_fails_no_request() {
    let server = Server::start();
    let store = store(&server).await;
    let limiter = Policy::sliding_log("policy", "9/day").on(&store).unwrap();
    let mut admin = server.admin();
    let name = store.key_name("policy", "ada");
    for spoiled in 0..5 {
        for numbers in NUMBERS {
            run::<()>(&mut admin, "FLUSHALL");
            for _ in 0..5 {
                let _ = limiter.check("ada").await.expect("the store answers");
            }
            let entries = run::<usize>(&mut admin, &format!("STRLEN {name}")) - 5 * 14;
            let bytes = in_value(&numbers[..2]);
            let mut spoil = redis::cmd("SETRANGE");
            spoil.arg(&name).arg(entries + spoiled * 14).arg(bytes).exec(&mut admin).unwrap();
            for _ in 0..9 {
                let _ = limiter.check("ada").await.expect("a denial looks through the log, too");
            }
            let _ = limiter.refund("ada", 7).await.expect("a refund moves entries");
            let _ = limiter.charge("ada", 7).await.expect("a debt is added to it");
            let _ = limiter.check("ada").await.expect("the store answers");
        }
    }
}
