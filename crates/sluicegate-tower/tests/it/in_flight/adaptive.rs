//! A service that is its own limit: what is a sample, who is refused, and what clients are told.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use sluicegate_core::{Key, OnOutage, Policy, RateLimiter};
use sluicegate_in_flight::adaptive::{LimitAlgorithm, Outcome};
use sluicegate_in_flight::{AdaptiveBuilder, Class, InFlight};
use sluicegate_tower::in_flight::{InFlightLayer, InFlightLimit};
use sluicegate_tower::key::{Extraction, HeaderKey, OnMissingKey, RequestView, extract_fn};
use sluicegate_tower::respond::{GrpcStatus, RefusalReason};
use sluicegate_tower::{Limit, RateLimitLayer};
use tonic_types::StatusExt;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use super::hello;
use crate::support::{Body, Paused, broken, limiter};

/// A service that can bear just as many, behind which nobody waits.
fn fixed(permits: u64) -> AdaptiveBuilder {
    InFlight::adaptive("api").at_least(permits).at_most(permits).wait_up_to(Duration::ZERO)
}

fn ask(path: &str) -> Request<()> {
    Request::get(path).body(()).expect("a good request")
}

#[tokio::test]
async fn a_refusal_is_an_honest_503_and_says_nothing_of_quotas() {
    let api = fixed(1).build().unwrap();
    let service = InFlightLayer::new(api.clone()).layer(service_fn(hello));
    let first = service.clone().oneshot(ask("/")).await.unwrap();
    assert!(first.headers().is_empty(), "the number is no client's business: {:?}", first.headers());
    let mut waits = Vec::new();
    for _ in 0..50 {
        let refused = service.clone().oneshot(ask("/")).await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["cache-control"], "no-store");
        assert!(
            !refused.headers().contains_key("ratelimit")
                && !refused.headers().contains_key("ratelimit-policy")
        );
        let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&problem["status"], &problem["retry_after"]), (&503.into(), &wait.into()));
        assert!(problem["type"].as_str().unwrap().ends_with("#the-service-is-the-limit"), "{problem}");
        waits.push(wait);
    }
    assert!(waits.iter().all(|wait| (1..=3).contains(wait)), "{waits:?}");
    assert!(waits.contains(&1) && waits.contains(&3), "clients come back apart: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_the_time_in_which_what_is_under_way_will_be_done() {
    let api = fixed(20).clock(Paused::now()).build().unwrap();
    // Two a second come back.
    for _ in 0..10 {
        drop(api.try_acquire("all").unwrap());
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    let _held: Vec<_> = (0..20).map(|_| api.try_acquire("all").unwrap()).collect();
    let told = |refusal: &sluicegate_tower::respond::Refusal<'_>| {
        let RefusalReason::Overloaded(_, drains_in) = refusal.reason() else { panic!("{refusal:?}") };
        assert!((9..=11).contains(&drains_in.as_secs()), "{drains_in:?}");
        assert!((9..=22).contains(&refusal.retry_after_seconds().unwrap()), "{refusal:?}");
        Response::new(Body::from(refusal.to_string()))
    };
    let service = InFlightLayer::new(api).respond(told).layer(service_fn(hello));
    let refused = service.oneshot(ask("/")).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(refused.starts_with(b"the service has too much to do: try again in "), "{refused:?}");
}

#[tokio::test]
async fn grpc_clients_are_told_that_it_is_unavailable_and_when_to_come_back() {
    let service =
        InFlightLayer::new(fixed(1).build().unwrap()).responder(GrpcStatus::new()).layer(service_fn(hello));
    let _first = service.clone().oneshot(ask("/")).await.unwrap();
    let refused = service.oneshot(ask("/")).await.unwrap();
    let status = tonic::Status::from_header_map(refused.headers()).unwrap();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.get_details_quota_failure().is_none(), "no quota is exceeded");
    assert!(status.get_details_retry_info().unwrap().retry_delay >= Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn rate_limits_around_it_and_inside_of_it_are_not_charged_for_what_it_sheds() {
    let [outer, inner] = ["outer", "inner"].map(|name| limiter(Policy::gcra(name, "9/h")));
    let rate = |limiter: &sluicegate_core::RateLimiter| {
        RateLimitLayer::new(Limit::new(limiter.clone()).key(Key::from("all")))
    };
    let service = ServiceBuilder::new()
        .layer(rate(&outer))
        .layer(InFlightLayer::new(fixed(1).build().unwrap()))
        .layer(rate(&inner))
        .service_fn(hello);
    let _first = service.clone().oneshot(ask("/")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(
            service.clone().oneshot(ask("/")).await.unwrap().status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
    for rate in [outer, inner] {
        assert_eq!(rate.peek("all").await.unwrap().remaining(), 8);
    }
}

/// A number that goes by answers that speak of overload alone.
fn by_faults() -> AdaptiveBuilder {
    InFlight::adaptive("api").algorithm(LimitAlgorithm::Aimd).first(10).clock(Paused::now())
}

/// Ten seconds after an answer, so that the next one moves the number.
async fn rest(api: &InFlight) {
    api.try_acquire("rest").unwrap().answered(Outcome::Good);
    tokio::time::advance(Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_speak_of_overload_lower_the_number_and_other_errors_do_not() {
    let answers = |status: u16, grpc: Option<&'static str>| {
        move |_: Request<()>| async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let mut response = Response::new(Body::from("answer"));
            *response.status_mut() = StatusCode::from_u16(status).expect("it is one");
            let grpc =
                grpc.map(|status| ("grpc-status".parse().expect("a name"), HeaderValue::from_static(status)));
            response.headers_mut().extend(HeaderMap::from_iter(grpc));
            Ok::<_, Infallible>(response)
        }
    };
    for (status, grpc, is_fault) in [
        (200, None, false),
        (408, None, false),
        (429, None, true),
        (499, None, false),
        (500, None, false),
        (502, None, false),
        (503, None, true),
        (504, None, true),
        (200, Some("0"), false),
        (200, Some("8"), true),
        (200, Some("13"), false),
        (200, Some("4"), true),
        (200, Some("14"), true),
    ] {
        let api = by_faults().build().unwrap();
        rest(&api).await;
        let service = InFlightLayer::new(api.clone()).layer(service_fn(answers(status, grpc)));
        service.oneshot(ask("/")).await.unwrap();
        assert_eq!(api.permits() < 10, is_fault, "{status} {grpc:?}");
    }
    let api = by_faults().build().unwrap();
    let limit = InFlightLimit::new(api.clone()).fault_if(|status, _| status == StatusCode::REQUEST_TIMEOUT);
    let layer = InFlightLayer::new(limit);
    rest(&api).await;
    layer.layer(service_fn(answers(503, None))).oneshot(ask("/")).await.unwrap();
    assert_eq!(api.permits(), 10, "the application says what does");
    rest(&api).await;
    layer.layer(service_fn(answers(408, None))).oneshot(ask("/")).await.unwrap();
    assert_eq!(api.permits(), 9);
}

/// Their quick answers were once samples, and those with a status from 500 on faults: an outage of a store lowered the number to its
/// bound, though the service was idle.
#[tokio::test(start_paused = true)]
async fn refusals_by_limits_inside_of_it_say_nothing_about_the_service() {
    let outage = broken(Policy::gcra("outage", "9/h").on_outage(OnOutage::Deny), true);
    let full = limiter(Policy::gcra("full", "1/h"));
    let _ = full.charge("all", 1).await.unwrap();
    let all = |limiter: &RateLimiter| Limit::new(limiter.clone()).key(Key::from("all"));
    let keyless = all(&full).key(HeaderKey::new("x-key").unwrap());
    let busy = InFlight::new("busy", 1).unwrap();
    let _held = busy.try_acquire("all").unwrap();
    let nothing = RateLimitLayer::builder(all(&full)).deny(|_| true).build().unwrap();
    for (status, refuses) in [
        (503, RateLimitLayer::new(all(&outage))),
        (429, RateLimitLayer::new(all(&full))),
        (401, RateLimitLayer::new(keyless.on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED)))),
        (403, nothing),
    ] {
        let api = by_faults().build().unwrap();
        let service = InFlightLayer::new(api.clone()).layer(refuses.layer(service_fn(hello)));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_millis(200)).await;
            assert_eq!(service.clone().oneshot(ask("/")).await.unwrap().status(), status);
        }
        assert_eq!((api.permits(), api.in_use_in_all()), (10, 0), "{status}");
        assert!(api.status().unwrap().history.is_empty(), "{status}: no window has ended");
    }
    // A refusal that takes longer than the service may take.
    let late = by_faults().timeout(Duration::from_secs(1)).build().unwrap();
    let hangs = extract_fn(|_| Extraction::pending(pending()));
    let refuses = RateLimitLayer::new(all(&full).key(hangs));
    let service = InFlightLayer::new(late.clone()).layer(refuses.layer(service_fn(hello)));
    assert_eq!(service.oneshot(ask("/")).await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((late.permits(), late.in_use_in_all()), (10, 0));
    for (status, inside) in [(429, busy), (503, fixed(1).build().unwrap())] {
        let _held = inside.try_acquire("all");
        let api = by_faults().build().unwrap();
        let inside = InFlightLayer::new(InFlightLimit::new(inside).key(Key::from("all")));
        let service = InFlightLayer::new(api.clone()).layer(inside.layer(service_fn(hello)));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_millis(200)).await;
            assert_eq!(service.clone().oneshot(ask("/")).await.unwrap().status(), status);
        }
        assert!(api.permits() == 10 && api.status().unwrap().history.is_empty(), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_late_is_overloaded_and_one_whose_client_has_gone_is_not() {
    let api = by_faults().timeout(Duration::from_secs(20)).build().unwrap();
    rest(&api).await;
    let layer = InFlightLayer::new(api.clone());
    let fails = layer.layer(service_fn(|_: Request<()>| async {
        tokio::time::sleep(Duration::from_secs(21)).await;
        Err::<Response<Body>, _>("it took too long")
    }));
    assert_eq!(fails.oneshot(ask("/")).await.unwrap_err(), "it took too long");
    assert_eq!((api.permits(), api.in_use_in_all()), (9, 0));
    let mut hangs = layer.layer(service_fn(|_: Request<()>| pending::<Result<Response<Body>, Infallible>>()));
    let request = hangs.ready().await.unwrap().call(ask("/"));
    tokio::time::advance(Duration::from_secs(9)).await;
    drop(request);
    assert_eq!((api.permits(), api.in_use_in_all()), (9, 0));
}

#[tokio::test(start_paused = true)]
async fn time_in_the_queue_and_in_the_body_is_no_part_of_a_sample() {
    let api = fixed(1).clock(Paused::now()).wait_up_to(Duration::from_secs(3)).build().unwrap();
    let takes = service_fn(|_: Request<()>| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let service = InFlightLayer::new(api.clone()).layer(takes);
    let first = tokio::spawn(service.clone().oneshot(ask("/")));
    tokio::task::yield_now().await;
    let second = tokio::spawn(service.oneshot(ask("/")));
    let body = first.await.unwrap().unwrap().into_body();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    drop(body);
    assert_eq!(second.await.unwrap().unwrap().status(), StatusCode::OK);
    let latency = api.status().unwrap().latency.as_millis();
    assert!((190..=215).contains(&latency), "it waited for 1.7 s and took 200 ms: {latency}");
}

fn by_path(request: RequestView<'_>) -> Class {
    if request.path().starts_with("/export") { Class::Sheddable } else { Class::Critical }
}

#[tokio::test(start_paused = true)]
async fn requests_that_matter_less_wait_behind_and_are_refused_in_time() {
    let api = fixed(1).clock(Paused::now()).wait_up_to(Duration::from_millis(100)).build().unwrap();
    let limit = InFlightLimit::new(api.clone()).class(by_path);
    let explained = limit.explain(&ask("/export/7")).await.unwrap();
    assert_eq!(explained.to_string(), "takes a permit of api as sheddable; 1 of 1 left");
    let service = InFlightLayer::new(limit).layer(service_fn(hello));
    let held = api.try_acquire("all").unwrap();
    let mut tasks = Vec::new();
    for path in ["/export/1", "/", "/export/2"] {
        tasks.push(tokio::spawn(service.clone().oneshot(ask(path))));
        tokio::task::yield_now().await;
    }
    tokio::time::advance(Duration::from_millis(99)).await;
    drop(held);
    let [low, high, last] = <[_; 3]>::try_from(tasks).unwrap();
    let high = high.await.unwrap().unwrap();
    assert_eq!(high.status(), StatusCode::OK, "it came second, and matters most");
    for late in [low, last] {
        assert_eq!(late.await.unwrap().unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    let status = api.status().unwrap();
    assert_eq!((status.shed, status.waiting, status.in_flight), ([0, 0, 0, 2], [0; 4], 1));
    drop(high);
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_limit_is_never_longer_than_that_of_the_number_that_adapts() {
    for (own, longest_ms) in [(Duration::from_millis(30), 30), (Duration::from_secs(9), 100)] {
        let api = fixed(1).clock(Paused::now()).wait_up_to(Duration::from_millis(100)).build().unwrap();
        let service = InFlightLayer::new(api.clone()).wait_up_to(own).layer(service_fn(hello));
        let _held = api.try_acquire("all").unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(service.oneshot(ask("/")).await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(began.elapsed().as_millis(), longest_ms);
    }
}

#[tokio::test]
async fn tenants_share_by_the_weights_of_their_requests() {
    let api = fixed(8).fair().wait_up_to(Duration::from_secs(1)).build().unwrap();
    let weight = |request: RequestView<'_>| if request.headers["x-tenant"] == "pro" { 3 } else { 1 };
    let limit = InFlightLimit::new(api.clone()).key(HeaderKey::new("x-tenant").unwrap()).weight(weight);
    let service = InFlightLayer::new(limit).layer(service_fn(|request: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(Body::from(request.uri().to_string()))))
    }));
    let held: Vec<_> = (0..8).map(|_| api.try_acquire("first").unwrap()).collect();
    let mut tasks = Vec::new();
    for tenant in ["free", "pro"].into_iter().cycle().take(32) {
        let request = Request::get("/").header("x-tenant", tenant).body(()).unwrap();
        tasks.push(tokio::spawn(service.clone().oneshot(request)));
        tokio::task::yield_now().await;
    }
    drop(held);
    assert_eq!([api.in_use("pro"), api.in_use("free")], [6, 2]);
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    for task in tasks {
        assert!(task.await.unwrap_err().is_cancelled());
    }
    assert_eq!((api.in_use_in_all(), api.status().unwrap().waiting), (0, [0; 4]));
}
