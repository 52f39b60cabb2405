//! A scrape of a service over sockets is what its clients counted.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures_util::future::join_all;
use http::{Method, Request, StatusCode};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sluicegate::call::CallError;
use sluicegate::in_flight::{InFlight, InFlightLayer};
use sluicegate::limits::{Tiers, path_in};
use sluicegate::observed::Observed;
use sluicegate::outgoing::OutgoingLayer;
use sluicegate::redis::RedisStore;
use sluicegate::{Limit, MemoryStore, Policy, RateLimitExt, RateLimitLayer, RateLimiter, Resilient};
use sluicegate_tests::process::alone;
use sluicegate_tests::servers::Server;
use tower::{Layer, ServiceExt, service_fn};

use crate::operate::alerts::promtool;
use crate::support::{Client, first_of_two, serve, whole};

/// The recorder of this process: it is told by whatever thread decides.
fn recorder() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let builder = PrometheusBuilder::new().set_buckets(&[0.001, 0.005, 1.0]).unwrap();
        builder.install_recorder().unwrap()
    })
}

async fn scrape(store: &Observed) -> String {
    store.refresh().await;
    recorder().run_upkeep();
    recorder().render()
}

/// Requests of a policy that were answered so, whoever decided.
fn requests(scrape: &str, policy: &str, result: &str, mode: &str) -> u64 {
    let begin = format!(r#"rate_limit_requests_total{{policy="{policy}",result="{result}","#);
    let lines =
        scrape.lines().filter(|line| line.starts_with(&begin) && line.contains(&format!(r#"mode="{mode}""#)));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

fn enforced(scrape: &str, policy: &str) -> [u64; 3] {
    ["allowed", "delayed", "rejected"].map(|result| requests(scrape, policy, result, "enforce"))
}

fn limiter(store: &Observed, name: &str, quota: &str) -> RateLimiter {
    Policy::gcra(name, quota).on(store).unwrap()
}

/// How many of these requests passed, and how many were refused.
async fn count(client: &mut Client, path: &str, times: u64) -> [u64; 2] {
    let mut counted = [0, 0];
    for _ in 0..times {
        match client.get(path).await.status() {
            StatusCode::OK => counted[0] += 1,
            StatusCode::TOO_MANY_REQUESTS => counted[1] += 1,
            other => panic!("{path} answered {other}"),
        }
    }
    counted
}

#[tokio::test(flavor = "multi_thread")]
async fn each_decision_is_scraped_once_as_its_client_counted_it() {
    recorder();
    let store = Observed::named("scraped", MemoryStore::new()).unwrap();
    let hello = || get(|| async { "hello" });
    let hand = limiter(&store, "s-hand", "2/h");
    let waits =
        Policy::gcra("s-waits", "2/s burst 1").wait_up_to(Duration::from_secs(60)).on(&store).unwrap();
    let downloads = InFlight::new("s-downloads", 1).unwrap();
    // Other tests of this process have stores as well.
    store.in_flight(&downloads);
    let several = RateLimitLayer::builder(limiter(&store, "s-tight", "2/h"))
        .and(limiter(&store, "s-wide", "5/h"))
        .exempt(path_in(["/several/health"]).unwrap())
        .build()
        .unwrap();
    let several = Router::new().route("/several", hello()).route("/several/health", hello()).layer(several);
    let app = Router::new()
        .route("/stacked", hello().rate_limit(limiter(&store, "s-inner", "3/h")))
        .rate_limit(limiter(&store, "s-outer", "100/h"))
        .merge(several)
        .route("/shadow", hello().rate_limit(Policy::gcra("s-shadow", "1/h").shadow().on(&store).unwrap()))
        .route("/hidden", hello().rate_limit(Policy::gcra("s-hidden", "1/h").hidden().on(&store).unwrap()))
        .route(
            "/costly",
            hello().rate_limit(Limit::new(limiter(&store, "s-costly", "10/h")).cost(4).unwrap()),
        )
        .route("/waits", hello().rate_limit(waits.clone()))
        .route("/downloads", hello().layer(InFlightLayer::new(downloads.clone())));
    let address = serve(app).await;
    let mut client = Client::connect(address).await;

    assert_eq!(count(&mut client, "/stacked", 10).await, [3, 7]);
    assert_eq!(count(&mut client, "/several", 4).await, [2, 2]);
    assert_eq!(count(&mut client, "/several/health", 3).await, [3, 0]);
    assert_eq!(count(&mut client, "/shadow", 3).await, [3, 0]);
    assert_eq!(count(&mut client, "/hidden", 2).await, [1, 1]);
    assert_eq!(count(&mut client, "/costly", 3).await, [2, 1]);
    assert_eq!(count(&mut client, "/waits", 1).await, [1, 0]);
    assert_eq!(first_of_two(address, Method::GET, "/waits").await.status(), StatusCode::OK);
    for _ in 0..3 {
        _ = hand.check("by hand").await.unwrap();
    }
    let _ = hand.charge("by hand", 7).await.unwrap();
    let permit = downloads.try_acquire(Ipv4Addr::LOCALHOST).unwrap();
    assert_eq!(count(&mut client, "/downloads", 1).await, [0, 1]);
    drop(permit);
    assert_eq!(count(&mut client, "/downloads", 1).await, [1, 0]);
    while waits.waiting() > 0 {
        tokio::task::yield_now().await;
    }

    let told = scrape(&store).await;
    assert_eq!(enforced(&told, "s-inner"), [3, 0, 7], "{told}");
    assert_eq!(enforced(&told, "s-outer"), [10, 0, 0]);
    assert_eq!((enforced(&told, "s-tight"), enforced(&told, "s-wide")), ([2, 0, 2], [2, 0, 0]));
    assert_eq!(
        requests(&told, "s-wide", "other_refused", "enforce"),
        2,
        "four requests, of which two came through"
    );
    assert_eq!(["allowed", "rejected"].map(|result| requests(&told, "s-shadow", result, "shadow")), [1, 2]);
    assert_eq!(enforced(&told, "s-shadow"), [0; 3]);
    assert_eq!(enforced(&told, "s-hidden"), [1, 0, 1]);
    assert_eq!(enforced(&told, "s-costly"), [2, 0, 1]);
    assert_eq!(enforced(&told, "s-waits"), [1, 2, 0], "the one that has gone had been told to wait");
    assert_eq!(enforced(&told, "s-hand"), [2, 0, 1]);
    // One of the two allowed was taken by hand.
    assert_eq!(enforced(&told, "s-downloads"), [2, 0, 1]);
    for (series, value) in [
        (r#"rate_limit_units_total{policy="s-tight",kind="spent"}"#, 2),
        (r#"rate_limit_units_total{policy="s-wide",kind="spent"}"#, 2),
        (r#"rate_limit_units_total{policy="s-costly",kind="spent"}"#, 8),
        (r#"rate_limit_units_total{policy="s-hand",kind="charged"}"#, 7),
        (r#"rate_limit_units_total{policy="s-waits",kind="refunded"}"#, 1),
        (r#"rate_limit_undecided_total{reason="exempt"}"#, 3),
        (r#"rate_limit_wait_seconds_count{policy="s-waits"}"#, 2),
        (r#"rate_limit_waiting{policy="s-waits"}"#, 0),
        (r#"rate_limit_in_flight{policy="s-downloads"}"#, 0),
        (r#"rate_limit_policy_info{policy="s-hidden",algorithm="gcra",mode="enforce",hidden="true"}"#, 1),
    ] {
        assert!(told.contains(&format!("\n{series} {value}\n")), "{series} is not {value}: {told}");
    }
    assert!(!told.contains("127.0.0.1") && !told.contains("by hand"), "no key is a label");
    promtool(&["check", "metrics"], &told);
    assert_eq!(enforced(&scrape(&store).await, "s-inner"), [3, 0, 7], "a second scrape counts nothing twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_killed_in_between_changes_who_decides_and_loses_no_count() {
    recorder();
    let mut server = Server::start();
    let redis = RedisStore::builder().deadline(Duration::from_millis(200)).connect(&server.url()).unwrap();
    redis.connected(Duration::from_secs(20)).await.unwrap();
    let store = Observed::named("scraped-redis", Resilient::new(redis)).unwrap();
    let app =
        Router::new().route("/", get(|| async { "hello" })).rate_limit(limiter(&store, "s-redis", "60/h"));
    let mut client = Client::connect(serve(app).await).await;
    let [passed, refused] = count(&mut client, "/", 20).await;
    server.stop();
    let [more_passed, more_refused] = count(&mut client, "/", 100).await;
    let told = scrape(&store).await;
    assert_eq!(enforced(&told, "s-redis"), [passed + more_passed, 0, refused + more_refused], "{told}");
    assert_eq!((passed, more_passed), (20, 40), "the fallback knows what was spent");
    let fallback = r#"rate_limit_requests_total{policy="s-redis",result="rejected",decided_by="fallback",mode="enforce"} 60"#;
    assert!(told.contains(fallback), "{told}");
    // It may be tried again by now.
    assert!(!told.contains("\nrate_limit_breaker_state{store=\"scraped-redis\"} 0\n"), "{told}");
    assert!(!told.contains("\nrate_limit_breaker_opened_total{store=\"scraped-redis\"} 0\n"), "{told}");
    for (by, times) in [("store", 20), ("fallback", 100)] {
        let of = format!(r#"store="scraped-redis",policy="s-redis",decided_by="{by}""#);
        let timed = format!("\nrate_limit_duration_seconds_count{{{of}}} {times}\n");
        assert!(told.contains(&timed), "{timed}: {told}");
    }
    promtool(&["check", "metrics"], &told);
}

#[tokio::test(flavor = "multi_thread")]
async fn tiers_and_calls_that_go_out_are_scraped_as_they_were_counted() {
    recorder();
    let store = Observed::named("scraped-tiers", MemoryStore::new()).unwrap();
    let plans = Tiers::builder(&Policy::gcra("s-plans", "2/h").on(&store).unwrap())
        .tier("s-free", "2/h")
        .tier_with("s-pro", Policy::gcra("s-pro", "4/h").on(&store).unwrap())
        .unlimited("enterprise")
        .reject_unknown(StatusCode::FORBIDDEN)
        .build()
        .unwrap();
    let plan = Limit::tiered(plans, |request| request.headers.get("x-plan")?.to_str().ok());
    let app = Router::new()
        .route("/plans", get(|| async { "hello" }).rate_limit(plan))
        .route("/partner", get(|| async { "hello" }));
    let address = serve(app).await;
    let mut client = Client::connect(address).await;
    let mut plans = async |name: &str, times: usize| {
        let mut counted = [0; 3];
        for _ in 0..times {
            let request = Request::get("/plans").header("x-plan", name);
            let answer = client.begin_with(request, "").await;
            counted[match whole(answer).await.status() {
                StatusCode::OK => 0,
                StatusCode::TOO_MANY_REQUESTS => 1,
                other => {
                    assert_eq!(other, StatusCode::FORBIDDEN);
                    2
                }
            }] += 1;
        }
        counted
    };
    assert_eq!(plans("s-free", 5).await, [2, 3, 0]);
    assert_eq!(plans("s-pro", 6).await, [4, 2, 0]);
    assert_eq!(plans("enterprise", 3).await, [3, 0, 0]);
    assert_eq!(plans("gold", 2).await, [0, 0, 2]);

    // Calls to another server: two go at once, one waits for its turn, and the others would wait too long.
    let partner = limiter(&store, "s-partner", "2/s burst 2");
    let call = service_fn(move |_: Request<()>| async move {
        Ok::<_, Infallible>(Client::connect(address).await.get("/partner").await.map(drop))
    });
    let calls = OutgoingLayer::new().limit(partner).longest_wait(Duration::from_millis(600)).layer(call);
    let calls = (0..6).map(|_| {
        let request = Request::get(format!("http://{address}/partner")).body(()).unwrap();
        calls.clone().oneshot(request)
    });
    let (mut made, mut limited) = (0, 0);
    for answer in join_all(calls).await {
        match answer {
            Ok(response) => made += u64::from(response.status() == StatusCode::OK),
            Err(CallError::Limited(_)) => limited += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((made, limited), (3, 3));

    let told = scrape(&store).await;
    assert_eq!((enforced(&told, "s-plans"), enforced(&told, "s-pro")), ([2, 0, 3], [4, 0, 2]), "{told}");
    assert_eq!(enforced(&told, "s-partner"), [2, 1, 3]);
    for (series, value) in [
        (r#"rate_limit_undecided_total{reason="unknown_tier"}"#, 2),
        (r#"rate_limit_wait_seconds_count{policy="s-partner"}"#, 1),
        (r#"rate_limit_units_total{policy="s-partner",kind="spent"}"#, 3),
    ] {
        assert!(told.contains(&format!("\n{series} {value}\n")), "{series} is not {value}: {told}");
    }
    assert!(!told.contains("enterprise") && !told.contains("gold"), "what has no limit has no series");
    promtool(&["check", "metrics"], &told);
}

/// Handles of the `metrics` facade that are made before there is a recorder do nothing for ever. Its process has no other one.
#[test]
fn a_store_that_decided_before_there_was_a_recorder_tells_all_that_it_has_counted() {
    alone(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Observed::named("early", MemoryStore::new()).unwrap();
            let app = Router::new().route("/", get(|| async { "hello" }));
            let app = app.rate_limit(limiter(&store, "early", "10/h"));
            let mut client = Client::connect(serve(app).await).await;
            assert_eq!(count(&mut client, "/", 15).await, [10, 5]);
            store.refresh().await;
            recorder();
            assert_eq!(count(&mut client, "/", 5).await, [0, 5]);
            let told = scrape(&store).await;
            assert_eq!(enforced(&told, "early"), [10, 0, 10], "{told}");
            let spent = "rate_limit_units_total{policy=\"early\",kind=\"spent\"} 10\n";
            assert!(told.contains(spent), "{told}");
            promtool(&["check", "metrics"], &told);
        });
    });
}
