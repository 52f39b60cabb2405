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
use sluicegate::algorithm::{Drain, Refill};
use sluicegate::clock::ManualClock;
use sluicegate::policy::PolicyBuilder;
use sluicegate::{Algorithm, MemoryStore, Policy, RateLimitExt, RateLimiter};
use sluicegate_tests::random::Random;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::proxy::Nginx;
use crate::support::{Client, serve};

type Theirs =
    governor::RateLimiter<u64, DefaultKeyedStateStore<u64>, FakeRelativeClock, NoOpMiddleware<Nanos>>;

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

        let mut random = Random::new(seed);
        for step in 0..5_000 {
            let pause = Duration::from_millis(random.below(period_ms));
            their_clock.advance(pause);
            clock.advance(pause);
            let key = random.below(3);
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

/// What became at once of requests that came at the same time.
#[derive(Debug, PartialEq, Eq)]
struct Fates {
    passed: usize,
    refused: usize,
}

/// Twelve requests at once to an nginx with this `limit_req`, at one a minute, so that nothing drains meanwhile. What is
/// queued has no answer before that, so as many answers as `answers` are waited for.
async fn nginx(limit_req: &str, answers: usize) -> Fates {
    let server = serve(Router::new().route("/", get(|| async { "hello" }))).await;
    let nginx = Nginx::start(&|port| {
        format!(
            "limit_req_zone $binary_remote_addr zone=api:1m rate=1r/m; limit_req_log_level info;
             server {{ listen 127.0.0.9:{port}; location / {{ limit_req zone=api {limit_req}; proxy_pass http://{server}; }} }}"
        )
    });
    let mut requests = JoinSet::new();
    for _ in 0..12 {
        let address = nginx.address;
        requests.spawn(async move { Client::connect(address).await.get("/").await.status() });
    }
    let mut fates = Fates { passed: 0, refused: 0 };
    for _ in 0..answers {
        match requests.join_next().await.expect("there are twelve").expect("the client runs") {
            StatusCode::OK => fates.passed += 1,
            StatusCode::SERVICE_UNAVAILABLE => fates.refused += 1,
            status => panic!("{status}"),
        }
    }
    // Another client's request goes all the way, so that there was time for an answer too many.
    let other = Client::connect_from([127, 0, 0, 6], nginx.address).await.get("/").await;
    assert_eq!(other.status(), StatusCode::OK);
    assert!(requests.try_join_next().is_none(), "more than {answers} answers to {limit_req:?}");
    fates
}

/// The same with a limiter of ours; what would have to wait is neither.
fn ours(policy: PolicyBuilder) -> Fates {
    let limiter = policy.on(MemoryStore::builder().clock(ManualClock::new()).build().unwrap()).unwrap();
    let mut fates = Fates { passed: 0, refused: 0 };
    for _ in 0..12 {
        let decision = limiter.check("k").now().unwrap().unwrap();
        match decision.is_allowed() {
            true => fates.passed += usize::from(decision.delay().is_zero()),
            false => fates.refused += 1,
        }
    }
    fates
}

#[tokio::test]
async fn nginx_passes_as_many_of_a_burst() {
    let (six, one) = (Fates { passed: 6, refused: 6 }, Fates { passed: 1, refused: 11 });
    assert_eq!(nginx("burst=5 nodelay", 12).await, six);
    assert_eq!(ours(Policy::leaky_bucket("nodelay", "1/min burst 6")), six);
    assert_eq!(nginx("", 12).await, one);
    assert_eq!(ours(Policy::leaky_bucket("alone", "1/min burst 1")), one);
}

#[tokio::test]
async fn nginx_delays_as_many_of_a_burst() {
    let longest = Duration::from_secs(3_600);
    let queue = Policy::leaky_queue("queue", "1/min burst 6").wait_up_to(longest);
    let above = Algorithm::LeakyBucket(Drain::QueueAbove(2));
    let above = Policy::builder("above", above, "1/min burst 6").wait_up_to(longest);
    for (limit_req, policy, passed) in [("burst=5", queue, 1), ("burst=5 delay=2", above, 3)] {
        let expected = Fates { passed, refused: 6 };
        assert_eq!(nginx(limit_req, passed + 6).await, expected, "{limit_req}");
        assert_eq!(ours(policy), expected, "{limit_req}");
    }
}
