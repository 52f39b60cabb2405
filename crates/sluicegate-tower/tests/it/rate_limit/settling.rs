//! What comes back when a request turns out to cost less than it has spent, though time has passed.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::Policy;
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_tower::RateLimitLayer;
use tower::{Layer, Service, service_fn};

use crate::rate_limit::meter::{left, metered};
use crate::rate_limit::reloads::keeping_meters;
use crate::support::{Body, by_header, from, layer, number, on, send, store};

const HANDLER: Duration = Duration::from_millis(10);
const MINUTE_US: u64 = 60_000_000;

/// A handler that takes ten milliseconds.
fn works(
    clock: &ManualClock,
) -> impl Service<
    Request<()>,
    Response = Response<Body>,
    Error = Infallible,
    Future = Ready<Result<Response<Body>, Infallible>>,
> + Clone {
    let clock = clock.clone();
    service_fn(move |_: Request<()>| {
        clock.advance(HANDLER);
        ready(Ok(Response::new(Body::from("ok"))))
    })
}

/// All that had leaked since was subtracted, though other units leaked: nothing came back.
#[tokio::test]
async fn a_response_gives_its_unit_back_to_a_bucket_that_is_half_full() {
    for shadow in [false, true] {
        let (store, clock) = store();
        let policy = Policy::gcra("p", "100/s");
        let limiter = on(&store, if shadow { policy.shadow() } else { policy });
        let limit = by_header(limiter.clone()).refund_if(|head| head.status.is_success());
        let service = RateLimitLayer::new(limit).layer(works(&clock));
        let _ = limiter.charge("ada", 50).await.unwrap();
        for request in 1..=20 {
            send(&service, from("ada")).await;
            assert_eq!(left(&limiter), 50 + request, "shadow: {shadow}; what drains is all that changes");
        }
    }
}

#[tokio::test]
async fn layers_and_shadows_around_a_refusal_get_their_units_back_though_time_has_passed() {
    let (store, clock) = store();
    let outer = on(&store, Policy::gcra("outer", "100/s").refunds());
    let tried = on(&store, Policy::gcra("tried", "100/s").refunds().shadow());
    let around =
        RateLimitLayer::builder(by_header(outer.clone())).and(by_header(tried.clone())).build().unwrap();
    let inner = layer(&store, "inner", "1/h").layer(works(&clock));
    let later = clock.clone();
    let slow = service_fn(move |request: Request<()>| {
        later.advance(HANDLER);
        let inner = inner.clone();
        async move { tower::ServiceExt::oneshot(inner, request).await }
    });
    let service = around.layer(slow);
    assert_eq!(send(&service, from("ada")).await.status(), StatusCode::OK);
    clock.advance(Duration::from_secs(1));
    for limiter in [&outer, &tried] {
        let _ = limiter.charge("ada", 50).await.unwrap();
    }
    for request in 1..=20 {
        assert_eq!(send(&service, from("ada")).await.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!([left(&outer), left(&tried)], [50 + request; 2], "what drains is all that changes");
    }
}

/// It admitted 379 of 1,019 a minute.
#[tokio::test]
async fn a_budget_with_estimates_that_are_settled_admits_what_is_used_and_never_more() {
    for in_flight in [1, 3] {
        let (store, clock) = store();
        let limiter = on(&store, Policy::gcra("tokens", "1000/min"));
        let (service, meters) = keeping_meters(&limiter, 261);
        let (start_us, mut admitted_us) = (clock.now_us(), Vec::new());
        while clock.now_us() < start_us + 20 * MINUTE_US {
            if send(&service, from("ada")).await.status() == StatusCode::OK {
                admitted_us.push(clock.now_us());
            }
            clock.advance(Duration::from_millis(500));
            let under_way = meters.lock().unwrap().len();
            if under_way >= in_flight {
                let oldest = meters.lock().unwrap().remove(0);
                let _ = oldest.settle(10).await.unwrap();
            }
        }
        let used = admitted_us.len() * 10;
        assert!(used >= 20_000, "{in_flight} in flight: {used} in 20 minutes");
        for (first, from_us) in admitted_us.iter().enumerate() {
            for (until_us, used) in admitted_us[first..].iter().zip((10..).step_by(10)) {
                let allowed = 1_000 + (until_us - from_us) * 1_000 / MINUTE_US;
                assert!(used <= allowed, "{in_flight} in flight: {used} of {allowed} after {from_us}");
            }
        }
    }
}

#[tokio::test]
async fn of_two_limits_of_a_meter_the_one_that_is_refunded_gets_all_back_and_the_other_nothing() {
    for algorithm in ["gcra", "fixed-window", "sliding-counter", "sliding-log"] {
        let (store, clock) = store();
        let [given, kept] = ["given", "kept"]
            .map(|name| on(&store, Policy::builder(name, algorithm.parse().unwrap(), "100/s")));
        let first = by_header(given.clone()).cost(20).unwrap().refund_if(|head| head.status.is_success());
        let second = by_header(kept.clone()).cost(5).unwrap();
        let layer = RateLimitLayer::builder(first).and(second).meter().build().unwrap();
        let service = layer.layer(metered(move |meter| {
            let clock = clock.clone();
            async move {
                let _ = meter.settle(12).await.unwrap();
                clock.advance(HANDLER);
                let _ = meter.charge(3).await.unwrap();
                let _ = meter.of("kept").refund(1).await.unwrap();
            }
        }));
        for limiter in [&given, &kept] {
            let _ = limiter.charge("ada", 50).await.unwrap();
        }
        let (before, response) = (left(&given), send(&service, from("ada")).await);
        let drained = u64::from(algorithm == "gcra");
        assert_eq!(left(&given), before + drained, "{algorithm}");
        assert_eq!(left(&kept), before + drained - 14, "{algorithm}");
        assert_eq!(number(&response, "x-ratelimit-remaining"), Some(left(&kept)), "{algorithm}");
    }
}
