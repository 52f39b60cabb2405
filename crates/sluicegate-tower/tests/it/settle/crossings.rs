//! Settled costs beside refunds, refusals, waits, meters, shadows, swaps and permits.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use sluicegate_core::policy::OnExceeded;
use sluicegate_core::{Key, Policy};
use sluicegate_in_flight::InFlight;
use sluicegate_tests::frames::{Frames, data};
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::limits::Limits;
use sluicegate_tower::settle::{OnAbort, Settle};
use sluicegate_tower::{Meter, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::settle::{answering, named, read, respond, sent, tokens, used};
use crate::support::{Paused, by_header, from, layer, on, store};

fn json() -> Settle {
    Settle::json("n").unwrap()
}

fn costing_42() -> Response<Frames> {
    Response::new("{\"n\": 42}".into())
}

#[tokio::test]
async fn what_is_given_back_by_the_head_is_not_settled_by_the_body() {
    for (status, expected) in [(502, 0), (200, 42)] {
        let (limiter, limit, _) = tokens(json());
        let limit = limit.refund_if(|head| head.status.is_server_error());
        let make = move || {
            let mut response = costing_42();
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        };
        read(respond(limit, make).await).await;
        assert_eq!(used(&limiter), expected, "{status}");
    }
}

#[tokio::test]
async fn a_request_that_a_layer_further_in_refuses_costs_nothing_and_reads_nothing() {
    let (store, _) = store();
    let (limiter, limit) = named(&store, "tokens", json().or(Settle::bytes()));
    let inner = layer(&store, "inner", "1/h")
        .layer(service_fn(|_| ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("{\"n\": 42}"))))));
    let service = RateLimitLayer::new(limit).settling().layer(inner);
    for (status, spent) in [(200, 42), (429, 42)] {
        let response = service.clone().oneshot(from("ada")).await.unwrap();
        assert_eq!(response.status(), status);
        response.into_body().collect().await.unwrap();
        assert_eq!(used(&limiter), spent);
    }
}

#[tokio::test]
async fn a_refusal_settles_nothing() {
    let (limiter, limit, _) = tokens(Settle::bytes());
    let _ = limiter.charge("ada", 9_600).await.unwrap();
    let response = respond(limit, costing_42).await;
    assert_eq!(response.status(), 429);
    read(response).await;
    assert_eq!(used(&limiter), 9_600);
}

#[tokio::test]
async fn a_policy_in_shadow_is_settled_as_if_it_were_enforced() {
    let (store, _) = store();
    let tried = on(&store, Policy::fixed_window("tried", "10000/min").shadow());
    let limit = by_header(tried.clone()).cost(500).unwrap().settle(json());
    let (limiter, enforced) = named(&store, "tokens", Settle::bytes());
    let layer = RateLimitLayer::builder(enforced).and(limit).build().unwrap().settling();
    read(sent(layer.layer(answering(costing_42))).await).await;
    assert_eq!((used(&limiter), used(&tried)), (9, 42));
}

#[tokio::test]
async fn the_response_has_the_last_word_over_what_a_handler_has_charged() {
    let (limiter, limit, _) = tokens(json());
    let layer = RateLimitLayer::builder(limit).meter().build().unwrap().settling();
    let charges = service_fn(|request: Request<()>| {
        drop(request.extensions().get::<Meter>().unwrap().charge(100));
        ready(Ok::<_, Infallible>(costing_42()))
    });
    let response = layer.layer(charges).oneshot(from("ada")).await.unwrap();
    assert_eq!(used(&limiter), 600);
    read(response).await;
    assert_eq!(used(&limiter), 42);
}

#[tokio::test]
async fn handlers_see_no_meter_because_a_limit_settles() {
    let (_, limit, _) = tokens(json());
    let looks = service_fn(|request: Request<()>| {
        assert!(request.extensions().get::<Meter>().is_none());
        ready(Ok::<_, Infallible>(costing_42()))
    });
    RateLimitLayer::new(limit).settling().layer(looks).oneshot(from("ada")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_for_its_turn_is_settled() {
    let store = sluicegate_tests::memory::store_on(Paused::now());
    let policy = Policy::token_bucket("tokens", "600/min")
        .on_exceeded(OnExceeded::Wait { longest: Duration::from_secs(60) });
    let limiter = on(&store, policy);
    let limit = by_header(limiter.clone()).cost(500).unwrap().settle(json());
    let service = RateLimitLayer::new(limit).settling().layer(answering(costing_42));
    // 500 of 600 are spent, so that the next waits for 40 seconds.
    let first = sent(service.clone()).await;
    let second: Response<_> = sent(service).await;
    let left = || crate::support::answer(limiter.peek("ada")).remaining();
    assert_eq!(left(), 0);
    read(second).await;
    assert_eq!(left(), 458);
    read(first).await;
    assert!(left() >= 458);
}

#[tokio::test]
async fn a_response_under_way_is_settled_by_the_limits_that_it_began_with() {
    let (limiter, limit, _) = tokens(json());
    let layer = RateLimitLayer::new(limit).settling();
    let response = sent(layer.layer(answering(costing_42))).await;
    let other = by_header(limiter.clone()).settle(Settle::bytes());
    layer.limits_handle().swap(Limits::new(other));
    read(response).await;
    assert_eq!(used(&limiter), 42);
    read(sent(layer.layer(answering(costing_42))).await).await;
    assert_eq!(used(&limiter), 42 + 9);
}

#[tokio::test]
async fn two_layers_settle_each_for_itself() {
    let (store, _) = store();
    let (outer, by_bytes) = named(&store, "outer", Settle::bytes());
    let (inner, by_field) = named(&store, "inner", json());
    let service = RateLimitLayer::new(by_field).settling().layer(answering(costing_42));
    let service = RateLimitLayer::new(by_bytes).settling().layer(service);
    service.oneshot(from("ada")).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!((used(&outer), used(&inner)), (9, 42));
}

#[tokio::test]
async fn a_permit_is_held_and_a_cost_reserved_until_the_body_has_ended() {
    let (limiter, limit, _) = tokens(json());
    let streams = InFlight::new("streams", 1).unwrap();
    let service = RateLimitLayer::new(limit).settling().layer(answering(costing_42));
    let service = InFlightLayer::new(streams.clone()).key(Key::from("all")).layer(service);
    let response = service.oneshot(from("ada")).await.unwrap();
    assert_eq!((streams.in_use("all"), used(&limiter)), (1, 500));
    response.into_body().collect().await.unwrap();
    assert_eq!((streams.in_use("all"), used(&limiter)), (0, 42));
}

#[tokio::test]
async fn a_layer_that_reads_no_bodies_keeps_what_was_reserved() {
    let (limiter, limit, _) = tokens(json());
    let layer = RateLimitLayer::new(limit);
    assert!(layer.reads_bodies());
    let response: Response<Frames> = sent(layer.layer(answering(costing_42))).await;
    response.into_body().collect().await.unwrap();
    assert_eq!(used(&limiter), 500);
}

#[tokio::test]
async fn an_empty_body_costs_no_bytes_and_one_of_another_protocol_is_unknown() {
    for (status, expected) in [(204, 0), (101, 500)] {
        let (limiter, limit, _) = tokens(Settle::bytes());
        let empty = service_fn(move |_: Request<()>| {
            let response = Response::builder().status(status).body(Full::<Bytes>::default()).unwrap();
            ready(Ok::<_, Infallible>(response))
        });
        // A server does not ask this body for anything.
        RateLimitLayer::new(limit).settling().layer(empty).oneshot(from("ada")).await.unwrap();
        assert_eq!(used(&limiter), expected, "{status}");
    }
}

#[tokio::test]
async fn decisions_without_a_service_settle_as_well() {
    let (limiter, limit, _) = tokens(json());
    let limits = Limits::new(limit);
    let admitted = limits.decide(&from("ada")).await.unwrap();
    read(admitted.leave_settling(costing_42())).await;
    assert_eq!(used(&limiter), 42);
}

#[tokio::test]
async fn a_window_that_has_ended_keeps_what_was_reserved_in_it_and_nothing_is_given_to_the_next() {
    let (limiter, limit, clock) = tokens(json());
    let response = respond(limit, costing_42).await;
    clock.advance(Duration::from_secs(60));
    let _ = limiter.charge("ada", 1_000).await.unwrap();
    read(response).await;
    assert_eq!(used(&limiter), 1_000);
}

#[tokio::test]
async fn what_was_seen_of_each_limit_counts_by_its_own_rule() {
    let (store, _) = store();
    let (kept, reserved) = named(&store, "kept", json());
    let (fair, seen) = named(&store, "fair", json().on_abort(OnAbort::Seen));
    let layer = RateLimitLayer::builder(reserved).and(seen).build().unwrap().settling();
    let make = || Response::new(Frames::new([data("{\"n\": 42,"), Err("gone")]));
    let response = sent(layer.layer(answering(make))).await;
    response.into_body().collect().await.unwrap_err();
    assert_eq!((used(&kept), used(&fair)), (500, 42));
}
