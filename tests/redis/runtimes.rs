//! Stores and what works for them in the background, used in another tokio runtime after their own has ended.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate::in_flight::{InFlight, NoPermitKind};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Overrides;
use sluicegate_core::policy::Override;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{OnOutage, Policy, RateLimiter};
use sluicegate_fleet::DenyCache;
use sluicegate_fleet::leased::Leased;
use sluicegate_redis::{RedisStore, Script};
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::{Cluster, Sentinels, standalone};
use tokio::runtime::{Builder, Runtime};

use crate::support::{connected, patient};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A store whose runtime has ended, after this work with it.
fn left<T>(prefix: &str, url: &str, work: impl AsyncFnOnce(RedisStore) -> T) -> (RedisStore, T) {
    runtime().block_on(async {
        let store = connected(patient(prefix), url).await;
        (store.clone(), work(store).await)
    })
}

/// Spends a unit, and returns the units that Redis has left.
async fn remaining(limiter: &RateLimiter) -> u64 {
    let decision = limiter.check("ada").await.unwrap();
    assert_eq!((decision.is_allowed(), decision.decided_by()), (true, DecidedBy::Store));
    decision.remaining()
}

#[test]
fn a_store_decides_in_each_runtime_that_comes_after_its_own_on_every_deployment() {
    for url in [standalone().url(), Cluster::shared().url(), Sentinels::shared().url()] {
        let (store, limiter) = left("runtimes", &url, async |store| {
            let limiter = Policy::gcra("login", "300/h").on(&store).unwrap();
            assert_eq!(remaining(&limiter).await, 299, "{url}");
            limiter
        });
        for before in [299, 199] {
            assert!(!store.is_connected(), "{url}");
            runtime().block_on(async {
                assert_eq!(remaining(&limiter).await, before - 1, "{url}");
                assert!(store.is_connected(), "{url}");
                // Requests that arrive together share calls.
                let mut together: Vec<_> = (0..99).map(|_| limiter.check("ada").start()).collect();
                for decision in &mut together {
                    assert_eq!(decision.await.unwrap().decided_by(), DecidedBy::Store, "{url}");
                }
                assert_eq!(limiter.peek("ada").await.unwrap().remaining(), before - 100, "{url}");
            });
        }
    }
}

#[test]
fn outside_of_any_runtime_a_store_that_has_none_says_so_and_never_waits() {
    let (store, limiter) = left("ended", &standalone().url(), async |store| {
        Policy::gcra("login", "5/min").on_outage(OnOutage::Deny).on(&store).unwrap()
    });
    let slot = store.slot("own", "ada").unwrap();
    let script = Script::new("return 1");
    let mut run = pin!(slot.run(&script, &["sum"], &[]));
    let Poll::Ready(Err(error)) = run.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits");
    };
    assert_eq!((error.kind(), error.may_have_spent()), (StoreErrorKind::Unavailable, false));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the tokio runtime on which the store works has ended");
    let decision = limiter.check("ada").now().expect("it does not wait").unwrap();
    assert_eq!((decision.is_allowed(), decision.decided_by()), (false, DecidedBy::Outage));
    let reply = runtime().block_on(async { slot.run(&script, &["sum"], &[]).await }).unwrap();
    assert_eq!(reply, [b"1".to_vec()]);
}

#[test]
fn a_request_of_another_runtime_outlives_the_runtime_of_its_store() {
    let server = Server::start();
    let (own, other) = (runtime(), runtime());
    let limiter = own.block_on(async {
        let store = connected(patient("outlives"), &server.url()).await;
        Policy::gcra("login", "5/min").on_outage(OnOutage::Deny).on(&store).unwrap()
    });
    server.signal("STOP");
    let entered = other.enter();
    let request = limiter.check("ada").start();
    drop(entered);
    drop(own);
    // Its timers were those of the runtime that has ended.
    let decision = other.block_on(request).unwrap();
    assert_eq!((decision.is_allowed(), decision.decided_by()), (false, DecidedBy::Outage));
    server.signal("CONT");
    assert_eq!(other.block_on(async { limiter.peek("ada").await }).unwrap().decided_by(), DecidedBy::Store);
}

#[test]
fn overrides_and_shared_permits_go_on_in_the_next_runtime() {
    let url = standalone().url();
    let (store, (limiter, jobs)) = left("goes-on", &url, async |store| {
        let limiter = Policy::gcra("login", "5/min").on(&store).unwrap();
        let jobs = InFlight::builder("jobs", 2).on_outage(OnOutage::Deny).on(&store).unwrap();
        drop(jobs.acquire("ada").await.unwrap());
        (limiter, jobs)
    });
    let mut alone = pin!(jobs.acquire("bob"));
    let Poll::Ready(Err(none)) = alone.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits for a task that has ended");
    };
    assert_eq!(none.kind(), NoPermitKind::Outage);
    runtime().block_on(async {
        let other = connected(patient("goes-on"), &url).await;
        let others = InFlight::builder("jobs", 2).on_outage(OnOutage::Deny).on(&other).unwrap();
        let held = (jobs.acquire("cyd").await.unwrap(), others.acquire("cyd").await.unwrap());
        assert!(jobs.request("cyd").attempt().await.is_err(), "both permits are out");
        drop(held);

        let over = Override::builder("login", "ann").quota("3/min").lasting(Duration::from_secs(60));
        Overrides::of(&store).put(over).await.unwrap();
        assert_eq!(limiter.check("ada").await.unwrap().remaining(), 2);
    });
}

#[test]
fn leases_caches_and_fallbacks_go_on_after_a_runtime_that_has_ended_amid_their_calls() {
    let server = Server::start();
    let first = runtime();
    let limiter = first.block_on(async {
        let redis = connected(patient("amid"), &server.url()).await;
        let leased = Leased::builder(Resilient::builder(redis).build().unwrap()).build().unwrap();
        let store = DenyCache::builder(leased).build().unwrap();
        let limiter = Policy::gcra("login", "10000/h").on(&store).unwrap();
        for _ in 0..3 {
            is_decided_by_redis(&limiter).await;
        }
        server.signal("STOP");
        for _ in 0..100 {
            drop(limiter.check("ada").start());
        }
        limiter
    });
    drop(first);
    server.signal("CONT");
    runtime().block_on(async {
        while !is_decided_by_redis(&limiter).await {}
        while !limiter.check("bob").await.is_ok_and(|decision| decision.decided_by() == DecidedBy::Store) {}
    });
}

/// Spends a unit; whether the store or a lease decided.
async fn is_decided_by_redis(limiter: &RateLimiter) -> bool {
    let decision = limiter.check("ada").await.unwrap();
    matches!(decision.decided_by(), DecidedBy::Store | DecidedBy::Lease)
}
