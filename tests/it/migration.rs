//! The old lines beside the new ones, on the same arrivals: what the migration page says is so.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use governor::Quota as TheirQuota;
use governor::clock::{Clock as _, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DefaultKeyedStateStore;
use http::{Request, StatusCode};
use sluicegate::{Algorithm, ManualClock, MemoryStore, Policy, RateLimitExt, RateLimiter, Refill};
use tower::ServiceExt;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

type Theirs =
    governor::RateLimiter<u64, DefaultKeyedStateStore<u64>, FakeRelativeClock, NoOpMiddleware<Nanos>>;

/// A sequence of numbers that is the same in every run.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |end| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    }
}

#[test]
fn governor_decides_and_waits_the_same() {
    for (seed, period_ms, burst) in [(1, 100, 20), (2, 250, 1), (3, 1_000, 5), (4, 60_000, 3)] {
        let (their_clock, clock) = (FakeRelativeClock::default(), ManualClock::new());
        clock.set(Duration::from_secs(1_000));
        let quota = TheirQuota::with_period(Duration::from_millis(period_ms)).expect("no period is zero");
        let quota = quota.allow_burst(NonZeroU32::new(burst).expect("no burst is zero"));
        let theirs: Theirs =
            governor::RateLimiter::new(quota, DefaultKeyedStateStore::default(), their_clock.clone());
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let ours = Policy::gcra("user", &*format!("1/{period_ms}ms burst {burst}")).on(&store).unwrap();

        let mut next = numbers(seed);
        for step in 0..5_000 {
            let pause = Duration::from_millis(next(period_ms));
            their_clock.advance(pause);
            clock.advance(pause);
            let key = next(3);
            let wait = theirs.check_key(&key).err().map(|not| not.wait_time_from(their_clock.now()));
            let decision = ours.check(key).now().unwrap().unwrap();
            assert_eq!(decision.retry_after(), wait, "seed {seed}, step {step}, key {key}");
        }
    }
}

#[tokio::test]
async fn tower_governor_passes_as_many_of_a_burst() {
    async fn passed(app: Router) -> usize {
        let mut passed = 0;
        for _ in 0..9 {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(ConnectInfo(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))));
            let status = app.clone().oneshot(request).await.unwrap().status();
            passed += usize::from(status == StatusCode::OK);
        }
        passed
    }
    let hello = || get(|| async { "hello" });
    let config = GovernorConfigBuilder::default().per_second(3_600).burst_size(5).finish().unwrap();
    let theirs = Router::new().route("/", hello()).layer(GovernorLayer::new(config));
    let limit = Policy::gcra("api", "1/h burst 5").on(MemoryStore::new()).unwrap();
    let ours = Router::new().route("/", hello()).rate_limit(limit);
    assert_eq!([passed(theirs).await, passed(ours).await], [5, 5]);
}

/// The examples by which Bucket4j's reference explains its refills.
#[test]
fn bucket4j_refills_as_its_reference_says() {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_000));
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let passes = |limiter: &RateLimiter| {
        (0..99).take_while(|_| limiter.check("k").now().unwrap().unwrap().is_allowed()).count()
    };
    // "refillGreedy(10, 1 second): will refill 1 token each 100 millisecond"
    let greedy = Policy::token_bucket("greedy", "10/s").on(&store).unwrap();
    // "refillIntervally(10, 1 second): will wait a whole second before it regenerates 10 tokens at once"
    let interval = Policy::builder("interval", Algorithm::TokenBucket(Refill::Interval), "10/s");
    let interval = interval.on(&store).unwrap();
    assert_eq!([passes(&greedy), passes(&interval)], [10, 10]);
    clock.advance(Duration::from_millis(100));
    assert_eq!([passes(&greedy), passes(&interval)], [1, 0]);
    clock.advance(Duration::from_millis(900));
    assert_eq!([passes(&greedy), passes(&interval)], [9, 10]);
}
