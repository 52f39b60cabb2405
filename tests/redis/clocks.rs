//! The time is the server's: what the clocks of the instances show does not matter, and what a step of the server's
//! clock does to waits is bounded.

use std::time::Duration;

use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::clock::{Clock, ManualClock, SystemClock};
use sluicegate_core::{Algorithm, MemoryStore, Policy, Quota, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::Server;
use sluicegate_tests::servers::deployments::standalone;
use sluicegate_tests::servers::skewed::Skewed;

use crate::support::{connected, patient};

const HOUR_US: i64 = 3_600_000_000;

async fn store(server: &Server, prefix: &str, clock: Option<ManualClock>) -> RedisStore {
    let settings = match clock {
        Some(clock) => patient(prefix).clock(clock),
        None => patient(prefix),
    };
    connected(settings, &server.url()).await
}

fn policy(algorithm: Algorithm) -> Policy {
    let name = algorithm.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Policy::builder(name, algorithm, Quota::per_minute(3)).build().expect("the policy is possible")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_an_hour_off_still_decides_by_its_own_clock() {
    let skewed = Skewed::start();
    for shift in [HOUR_US, -HOUR_US] {
        skewed.shift(shift);
        skewed.server.run::<()>("FLUSHALL");
        let (one, other) = (store(&skewed.server, "rl", None).await, store(&skewed.server, "rl", None).await);
        for algorithm in ALGORITHMS {
            let [one, other] =
                [&one, &other].map(|store| RateLimiter::new(store, policy(algorithm)).unwrap());
            let decision = one.check("ada").cost(3).await.unwrap();
            assert!(decision.is_allowed(), "{algorithm}");
            let shown = i64::try_from(decision.spent_us()).unwrap();
            let ours = i64::try_from(SystemClock::new().now_us()).unwrap();
            assert!((shown - ours - shift).abs() < HOUR_US / 60, "{algorithm}: {shown}, and {ours} here");
            let decision = other.check("ada").await.unwrap();
            assert!(!decision.is_allowed(), "{algorithm}: two instances share one limit");
        }
    }
}

/// Why the time is the server's: by clocks of their own, instances that are an hour apart admit twice as much.
#[tokio::test(flavor = "multi_thread")]
async fn instances_that_brought_their_own_clocks_would_not_share_a_limit() {
    let clocks = [ManualClock::new(), ManualClock::new()];
    clocks[0].set(Duration::from_secs(1_800_000_000));
    clocks[1].set(Duration::from_secs(1_800_003_600));
    let mut admitted = 0;
    for clock in clocks {
        let store = store(standalone(), "apart", Some(clock)).await;
        let limiter = RateLimiter::new(store, policy(Algorithm::SlidingLog)).unwrap();
        admitted += u32::from(limiter.check("ada").cost(3).await.unwrap().is_allowed());
    }
    assert_eq!(admitted, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_clock_that_is_set_back_neither_admits_more_nor_blocks_for_the_step() {
    let skewed = Skewed::start();
    let store = store(&skewed.server, "rl", None).await;
    for algorithm in ALGORITHMS {
        skewed.shift(0);
        let limiter = RateLimiter::new(&store, policy(algorithm)).unwrap();
        assert!(limiter.check("ada").cost(3).await.unwrap().is_allowed());
        skewed.shift(-HOUR_US);
        let decision = limiter.check("ada").await.unwrap();
        assert!(!decision.is_allowed(), "{algorithm}: no time has passed");
        let wait = decision.retry_after().expect("it fits");
        assert!(wait <= Duration::from_secs(3 * 60), "{algorithm}: {wait:?}");
        // Once the step was a wait that began anew with every refusal.
        skewed.shift(-HOUR_US + 3 * HOUR_US / 60);
        assert!(limiter.check("ada").cost(3).await.unwrap().is_allowed(), "{algorithm}: the wait is over");
    }
}

/// Each was once decided otherwise in memory: a cost of nothing had forgotten a key there that was at rest, and Redis had not.
#[tokio::test(flavor = "multi_thread")]
async fn both_stores_agree_after_a_step_back_where_periods_differ_by_ages() {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_800_000_000));
    let redis = store(standalone(), "ages", Some(clock.clone())).await;
    let memory = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    for (algorithm, quotas) in [
        (Algorithm::Gcra, ["97/7ms burst 1", "999983/30d burst 1"]),
        (Algorithm::SlidingLog, ["10/d", "97/13337us"]),
        (Algorithm::FixedWindow(Anchor::Epoch), ["997/13337us", "10/d"]),
        (Algorithm::TokenBucket(Refill::Interval), ["3/13337us start 1", "10/d"]),
    ] {
        let name = algorithm.to_string();
        let policy =
            Policy::builder(name, algorithm, quotas[0]).and(quotas[1]).named("second").build().unwrap();
        let both =
            [RateLimiter::new(&redis, policy.clone()).unwrap(), RateLimiter::new(&memory, policy).unwrap()];
        let mut trace = String::new();
        // Microseconds on or back, and the cost.
        for (moved_us, cost) in
            [(0, 1), (3_000_000, 0), (-2_500_000, 1), (9_000_000, 0), (-9_990_000, 0), (0, 1)]
        {
            clock.set(Duration::from_micros(clock.now_us().saturating_add_signed(moved_us)));
            let told = both.each_ref().map(|limiter| limiter.check("ada").cost(cost));
            let [ours, reference] = told;
            let [ours, reference] =
                [ours.await, reference.await].map(|told| format!("{:?}", told.unwrap().quotas()));
            trace.push_str(&format!("\n{moved_us} us, {cost}: {reference}"));
            assert_eq!(ours, reference, "{algorithm}:{trace}");
        }
    }
}
