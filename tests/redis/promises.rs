//! What a store on Redis must never do: admit without the right to look, lose a part of a request, run for long.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::limiter::check_all;
use sluicegate_core::store::{DecidedBy, Mode};
use sluicegate_core::{Algorithm, Decision, Key, MemoryStore, Policy, RateLimiter, Store};
use sluicegate_fleet::DenyCache;
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::deployments::{Cluster, standalone};
use sluicegate_tests::servers::{Server, run};

use crate::support::{connected, patient};

const START: Duration = Duration::from_secs(1_800_000_000);

async fn store(prefix: &str) -> RedisStore {
    connected(patient(prefix), &standalone().url()).await
}

async fn clocked(prefix: &str, clock: &ManualClock) -> RedisStore {
    clock.set(START);
    connected(patient(prefix).clock(clock.clone()), &standalone().url()).await
}

fn name(algorithm: Algorithm) -> String {
    algorithm.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// Once a user without `+get` had 301 of 301 admitted at 5/h: every error counted as a fresh key.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_taken_away_is_an_outage_and_never_a_fresh_bucket() {
    let server = Server::start();
    for right in ["get", "set", "time", "evalsha", "del"] {
        server.run::<()>(&format!("ACL SETUSER {right} on >secret ~rl:* +@all"));
        let url = format!("redis://{right}:secret@127.0.0.1:{}", server.port());
        let store = connected(RedisStore::builder().deadline(Duration::from_secs(5)), &url).await;
        for algorithm in ALGORITHMS {
            let policy = Policy::builder(format!("{right}-{}", name(algorithm)), algorithm, "5/h").build();
            let limiter = RateLimiter::new(&store, policy.unwrap()).unwrap();
            let mut admitted = 0;
            for turn in 0..30 {
                if turn == 3 {
                    server.run::<()>(&format!("ACL SETUSER {right} -{right}"));
                }
                let both = check_all([
                    limiter.check(&Key::from("ada")).mode(Mode::Spend),
                    limiter.check(&Key::from("bob")).cost(0).mode(Mode::Reset),
                ]);
                // In an outage this process holds the limit by itself, beside what Redis knows.
                let counted =
                    |decision: Decision| decision.is_allowed() && decision.decided_by() == DecidedBy::Store;
                admitted += u32::from(both.await.is_ok_and(counted));
                admitted += u32::from(limiter.check("ada").await.is_ok_and(counted));
            }
            assert!(admitted <= 5, "{algorithm} without {right}: {admitted} of 5");
            server.run::<()>(&format!("ACL SETUSER {right} +{right}"));
            assert!(!limiter.check("ada").cost(5).await.unwrap().is_allowed(), "{algorithm}: all is known");
        }
    }
}

/// Once 100,000 entries that had lapsed were dropped one by one, which took 268 ms.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_entries_have_all_lapsed_is_dropped_in_one_go() {
    let server = Server::start();
    let clock = ManualClock::new();
    clock.set(START);
    let store = connected(patient("rl").clock(clock.clone()), &server.url()).await;
    let limiter = Policy::sliding_log("log", "2000/d").on(&store).unwrap();
    for _ in 0..2_000 {
        assert!(limiter.check("ada").await.unwrap().is_allowed());
        clock.advance(Duration::from_micros(1));
    }
    assert!(!limiter.check("ada").await.unwrap().is_allowed());
    let length: u64 = server.run(&format!("STRLEN {}", store.key_name("log", "ada")));
    assert!(length > 28_000, "{length} bytes are not 2,000 entries");
    clock.advance(Duration::from_secs(86_400));
    server.run::<()>("CONFIG SET slowlog-log-slower-than 5000");
    server.run::<()>("SLOWLOG RESET");
    assert_eq!(limiter.check("ada").await.unwrap().remaining(), 1_999);
    assert_eq!(server.run::<u64>("SLOWLOG LEN"), 0, "five milliseconds are long for 2,000 entries");
    let refused = Policy::sliding_log("longer", "2001/d").on(&store).expect_err("that is too long");
    assert!(refused.to_string().contains("at most 2000"), "{refused}");
}

/// Once a sliding log with a debt of `u64::MAX` forgot each charge, because that number said "never reached".
#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_no_double_holds_decide_as_in_memory() {
    let clock = ManualClock::new();
    let redis = clocked("doubles", &clock).await;
    let memory = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    for algorithm in ALGORITHMS {
        for (index, debt) in [u64::MAX, u64::MAX - 1, 1 << 53, 1 << 32].into_iter().enumerate() {
            let policy = Policy::builder(format!("{}-{index}", name(algorithm)), algorithm, "32/41s");
            let policy = policy.debt_up_to(debt).build().unwrap();
            let [ours, reference] = [redis.clone().into(), memory.clone().into()]
                .map(|store: Arc<dyn Store>| RateLimiter::new(store, policy.clone()).unwrap());
            for (spent, charged) in [(12, 6), (0, u64::MAX), (u64::MAX, 1)] {
                let steps = |limiter: RateLimiter| async move {
                    let mut found = Vec::new();
                    for decision in [
                        limiter.check("ada").cost(spent).await,
                        limiter.charge("ada", charged).await,
                        limiter.check("bob").reserve(Duration::MAX).await,
                        limiter.peek("ada").await,
                    ] {
                        let decision = decision.unwrap();
                        found.push((decision.outcome(), decision.remaining()));
                    }
                    found
                };
                let [ours, reference] = [steps(ours.clone()).await, steps(reference.clone()).await];
                assert_eq!(ours, reference, "{algorithm} with a debt up to {debt}: {spent}, then {charged}");
                clock.advance(Duration::from_secs(1));
            }
        }
    }
}

/// Once a check that nobody polled was not sent.
#[tokio::test]
async fn a_verdict_that_is_dropped_unpolled_is_carried_out() {
    let store = store("dropped").await;
    let limiter = Policy::gcra("dropped", "100/d").on(&store).unwrap();
    for _ in 0..20 {
        drop(limiter.check("ada").start());
    }
    drop(limiter.check("ada").cost(5).reserve(Duration::ZERO).start());
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while limiter.peek("ada").await.unwrap().remaining() > 75 {
        assert!(std::time::Instant::now() < deadline, "not within 20 seconds");
    }
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 75);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_flush_forgot_is_not_given_back() {
    let server = Server::start();
    let store = connected(patient("rl"), &server.url()).await;
    for algorithm in ALGORITHMS {
        for gives_back in [false, true] {
            let policy = Policy::builder(format!("{}-{gives_back}", name(algorithm)), algorithm, "9/d");
            let policy = if gives_back { policy.refunds() } else { policy };
            let limiter = policy.on(&store).unwrap();
            let mut spent = limiter.check("ada").cost(4).await.unwrap();
            let mut receipt = spent.take_receipt(0).expect("it has spent");
            server.run::<()>("FLUSHALL");
            let _ = limiter.check("ada").cost(9).await.unwrap();
            let _ = limiter.refund("ada", 4).of(&mut receipt).await.unwrap();
            let left = limiter.peek("ada").await.unwrap().remaining();
            assert_eq!(left, 0, "{algorithm}, gives back: {gives_back}");
        }
    }
}

/// Once the third equal reset did nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_works_as_often_as_it_is_asked_for() {
    let clock = ManualClock::new();
    let store = clocked("resets", &clock).await;
    for algorithm in ALGORITHMS {
        let policy = || Policy::builder(name(algorithm), algorithm, "7/d").build().unwrap();
        let limiter = RateLimiter::new(&store, policy()).unwrap();
        for round in 0..4 {
            assert!(limiter.check("ada").cost(7).await.unwrap().is_allowed(), "{algorithm}, round {round}");
            assert!(!limiter.check("ada").await.unwrap().is_allowed(), "{algorithm}, round {round}");
            clock.advance(Duration::from_millis(1));
            limiter.replace(policy(), Inherit::Reset).unwrap();
        }
    }
}

/// Once 7/d admitted 14: the one that started had the names from before the reset.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_replaced_and_one_that_started_share_what_is_spent() {
    let clock = ManualClock::new();
    let (replaces, starts) = (clocked("started", &clock).await, clocked("started", &clock).await);
    for algorithm in ALGORITHMS {
        let policy = |limit: &str| Policy::builder(name(algorithm), algorithm, limit).build().unwrap();
        let replaced = RateLimiter::new(&replaces, policy("9/d")).unwrap();
        let _ = replaced.check("ada").cost(9).await.unwrap();
        clock.advance(Duration::from_millis(1));
        replaced.replace(policy("7/d"), Inherit::Reset).unwrap();
        let started = RateLimiter::new(&starts, policy("7/d")).unwrap();
        assert!(replaced.check("ada").cost(4).await.unwrap().is_allowed(), "{algorithm}");
        assert!(started.check("ada").cost(3).await.unwrap().is_allowed(), "{algorithm}");
        for limiter in [&replaced, &started] {
            assert!(!limiter.check("ada").await.unwrap().is_allowed(), "{algorithm}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_versions_the_newer_one_decides_for_all() {
    let (old, new) = (store("versions").await, store("versions").await);
    for algorithm in ALGORITHMS {
        let policy = |limit: &str, version| {
            Policy::builder(name(algorithm), algorithm, limit).version(version).build().unwrap()
        };
        let old = RateLimiter::new(&old, policy("9/d", 1)).unwrap();
        let new = RateLimiter::new(&new, policy("4/d", 2)).unwrap();
        assert_eq!(
            old.check("ada").await.unwrap().capacity(),
            9,
            "{algorithm}: nobody knows of the other yet"
        );
        assert_eq!(new.check("ada").await.unwrap().remaining(), 2, "{algorithm}: one was spent");
        let decision = old.check("ada").await.unwrap();
        assert_eq!(
            (decision.capacity(), decision.remaining()),
            (4, 1),
            "{algorithm}: by the rule that is in force"
        );
        assert!(new.check("ada").await.unwrap().is_allowed(), "{algorithm}");
        assert!(!old.check("ada").await.unwrap().is_allowed(), "{algorithm}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keys_name_can_be_told() {
    let server = Server::start();
    let store = connected(patient("rl"), &server.url()).await;
    let policy = Policy::gcra("login", "5/min").and("100/h").named("hour");
    let limiter = policy.on(&store).unwrap();
    let _ = limiter.check(("user", 7)).await.unwrap();
    let names: Vec<String> = run(&mut server.admin(), "KEYS *");
    assert_eq!(names, [store.key_name("login", ("user", 7))], "one key, whatever the number of quotas");
    assert_eq!(server.run::<u64>(&format!("DEL {}", names[0])), 1);
    assert_eq!(limiter.peek(("user", 7)).await.unwrap().remaining(), 5);
}

/// Once 65 of 150 were refused by units that requests held that were about to be refused elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_a_cluster_nobody_is_refused_for_units_that_a_refused_request_would_have_spent() {
    let store = connected(patient("shares"), &Cluster::shared().url()).await;
    let mut refused = 0;
    for round in 0..15_u64 {
        let limiters = ["spent", "roomy"].map(|name| {
            let limit = if name == "spent" { "1/d" } else { "10/d" };
            Policy::fixed_window(name, limit).on(&store).unwrap()
        });
        let [spent, roomy] = &limiters;
        let (a, b) = (Key::from(("a", round)), Key::from(("b", round)));
        let _ = spent.check(&a).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for which in 0..30 {
            let (spent, roomy, a, b) = (spent.clone(), roomy.clone(), a.clone(), b.clone());
            tasks.spawn(async move {
                if which % 3 == 0 {
                    let decision = roomy.check(&b).await.unwrap();
                    u32::from(!decision.is_allowed())
                } else {
                    let both = check_all([roomy.check(&b), spent.check(&a)]).await.unwrap();
                    assert!(!both.is_allowed());
                    0
                }
            });
        }
        while let Some(own) = tasks.join_next().await {
            refused += own.unwrap();
        }
    }
    assert_eq!(refused, 0, "of 150");
}

/// On a Cluster units are held while a request with several limits is decided. Of those who are refused for such units nobody is refused
/// for longer by a cache in front, and none more often than by the store alone.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_refusals_on_a_cluster_are_no_more_with_a_cache_than_by_the_store_alone() {
    let mut wrong = [0_u64; 2];
    for (place, prefix) in ["held", "held-cached"].into_iter().enumerate() {
        let redis = connected(patient(prefix), &Cluster::shared().url()).await;
        let cache = DenyCache::new(&redis);
        let store: Arc<dyn Store> = if place == 0 { (&redis).into() } else { (&cache).into() };
        let open = |name: &str, limit| Policy::fixed_window(name, limit).on(Arc::clone(&store)).unwrap();
        let (scarce, roomy) = (open("scarce", "5/d"), open("roomy", "10/d"));
        for round in 0..20_u64 {
            let (a, b) = (Key::from(("a", round)), Key::from(("b", round)));
            let mut tasks = tokio::task::JoinSet::new();
            for which in 0..30 {
                let (scarce, roomy, a, b) = (scarce.clone(), roomy.clone(), a.clone(), b.clone());
                tasks.spawn(async move {
                    match which % 6 {
                        0 => roomy.check(&b).await,
                        _ => check_all([roomy.check(&b), scarce.check(&a)]).await,
                    }
                });
            }
            let passed =
                tasks.join_all().await.into_iter().filter(|of| of.as_ref().unwrap().is_allowed()).count();
            // What was held for those that were refused comes back without anybody waiting for it.
            let other = Policy::fixed_window("roomy", "10/d").on(&redis).unwrap();
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            let mut left = other.peek(&b).await.unwrap().remaining();
            while left != 10 - passed as u64 {
                assert!(std::time::Instant::now() < deadline, "{left} of 10 left, {passed} passed");
                left = other.peek(&b).await.unwrap().remaining();
            }
            for _ in 0..left {
                wrong[place] += u64::from(!roomy.check(&b).await.unwrap().is_allowed());
            }
        }
    }
    println!("wrong refusals when all is settled: {} by the store, {} with a cache", wrong[0], wrong[1]);
    assert_eq!(wrong[0], 0);
    assert_eq!(wrong[1], 0, "a refusal for units that were held was kept");
}
