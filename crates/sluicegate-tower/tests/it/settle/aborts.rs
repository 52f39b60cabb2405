//! Responses that end early, and those that never come.

use std::convert::Infallible;
use std::future::pending;
use std::task::{Context, Waker};

use http::{Request, Response};
use http_body_util::BodyExt;
use sluicegate_tests::frames::{Frames, data};
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::settle::{OnAbort, Settle};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::settle::{respond, tokens, used};
use crate::support::from;

const EVENT: &str = "data: {\"n\": 42}\n\n";

/// The places of a cost, with the beginning of a body, and the cost that it has told.
fn beginnings() -> Vec<(Settle, &'static str, Option<u64>)> {
    let json = || Settle::json([("n", 1), ("m", 4)]).unwrap();
    vec![
        (json(), "{\"n\": 42, \"text\": \"and", Some(42)),
        (json(), "{\"n\": 42, \"m\": 2", Some(42)),
        (json(), "{\"n\": 4", None),
        (Settle::sse("n").unwrap(), EVENT, Some(42)),
        (Settle::sse("n").unwrap(), "data: {\"n\": 42", None),
        (Settle::bytes(), "0123456789", Some(10)),
        (Settle::trailer("x-n").unwrap(), "message", None),
        (Settle::trailer("x-n").unwrap().or(Settle::bytes()), "message", Some(7)),
    ]
}

#[tokio::test]
async fn a_client_that_hangs_up_pays_what_it_reserved_or_what_it_has_seen() {
    for (settle, beginning, told) in beginnings() {
        for (on_abort, expected) in [(OnAbort::Reserved, 500), (OnAbort::Seen, told.unwrap_or(500))] {
            let (limiter, limit, _) = tokens(settle.clone().on_abort(on_abort));
            let make = move || Response::new(Frames::new([data(beginning), data("}")]));
            let mut body = respond(limit, make).await.into_body();
            body.frame().await.unwrap().unwrap();
            assert_eq!(used(&limiter), 500);
            drop(body);
            assert_eq!(used(&limiter), expected, "{settle:?} {beginning} {on_abort:?}");
        }
    }
}

#[tokio::test]
async fn an_upstream_that_breaks_off_costs_as_a_client_that_hangs_up() {
    for (settle, beginning, told) in beginnings() {
        for (on_abort, expected) in [(OnAbort::Reserved, 500), (OnAbort::Seen, told.unwrap_or(500))] {
            let (limiter, limit, _) = tokens(settle.clone().on_abort(on_abort));
            let make = move || Response::new(Frames::new([data(beginning), Err("the connection is gone")]));
            let mut body = respond(limit, make).await.into_body();
            body.frame().await.unwrap().unwrap();
            assert_eq!(body.frame().await.unwrap().unwrap_err(), "the connection is gone");
            assert_eq!(used(&limiter), expected, "{settle:?} {beginning} {on_abort:?}");
            drop(body);
            assert_eq!(used(&limiter), expected, "once");
        }
    }
}

#[tokio::test]
async fn who_hangs_up_before_any_response_pays_what_was_reserved() {
    let (limiter, limit, _) = tokens(Settle::bytes().on_abort(OnAbort::Seen));
    let never = service_fn(|_: Request<()>| pending::<Result<Response<Frames>, Infallible>>());
    let mut service = RateLimitLayer::new(limit).settling().layer(never);
    let mut response = Box::pin(service.ready().await.unwrap().call(from("ada")));
    assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(response);
    assert_eq!(used(&limiter), 500);
}

#[tokio::test]
async fn an_upstream_that_answers_with_an_error_costs_what_was_reserved() {
    let (limiter, limit, _) = tokens(Settle::bytes().on_abort(OnAbort::Seen));
    let broken = service_fn(async |_: Request<()>| Err::<Response<Frames>, _>("it is down"));
    let response = RateLimitLayer::new(limit).settling().layer(broken).oneshot(from("ada")).await;
    assert_eq!((response.unwrap_err(), used(&limiter)), ("it is down", 500));
}

/// A server that has sent as many bytes as the head has promised does not ask the body for more.
#[tokio::test]
async fn a_body_of_the_promised_length_has_ended_though_nobody_asks_it() {
    for (promised, expected) in [("9", 42), ("10", 500)] {
        let (limiter, limit, _) = tokens(Settle::json("n").unwrap());
        let make = move || {
            Response::builder().header("content-length", promised).body("{\"n\": 42}".into()).unwrap()
        };
        let mut body = respond(limit, make).await.into_body();
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(used(&limiter), expected, "{promised}");
    }
}
