//! The fields of OpenAI's API.

use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use sluicegate_core::Policy;
use sluicegate_in_flight::InFlight;
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::key::OnMissingKey;
use sluicegate_tower::respond::{HeaderFields, Refusal};
use tower::{Layer, ServiceExt};

use crate::respond::header_modes::setting;
use crate::support::{Body, Handler, anonymous, by_header, fields, from, on, send, store};

/// Sixty requests and ten thousand tokens a minute, of which each request takes five hundred; at most as many again in an hour.
fn layer() -> RateLimitLayer {
    let (store, _) = store();
    let requests = by_header(on(&store, Policy::gcra("requests", "60/min")));
    let tokens = Policy::fixed_window("tokens", "10000/min").and("20000/h");
    let tokens = by_header(on(&store, tokens)).cost(500).unwrap();
    let hidden = by_header(on(&store, Policy::gcra("flood", "100/s").hidden()));
    RateLimitLayer::builder(requests).and(tokens).and(hidden).headers(HeaderFields::OpenAi).build().unwrap()
}

fn named([requests, tokens]: [[&str; 3]; 2]) -> Vec<String> {
    let words = ["limit", "remaining", "reset"];
    let of = |policy: &str, values: [&str; 3]| {
        words
            .iter()
            .zip(values)
            .map(|(word, value)| format!("x-ratelimit-{word}-{policy}: {value}"))
            .collect::<Vec<_>>()
    };
    let mut all = [of("requests", requests), of("tokens", tokens)].concat();
    all.sort();
    all
}

#[tokio::test]
async fn each_policy_has_three_fields_that_end_in_its_name() {
    let told = fields(&send(&layer().layer(Handler::default()), from("ada")).await);
    assert_eq!(told, named([["60", "59", "1s"], ["10000", "9500", "1m0s"]]));
}

#[tokio::test]
async fn fields_of_an_upstream_that_leave_less_stay() {
    let tokens = async |theirs| {
        let told = fields(&send(&layer().layer(setting(theirs)), from("ada")).await);
        told.into_iter().filter(|line| line.contains("-tokens")).collect::<Vec<_>>()
    };
    let told = tokens(&[("x-ratelimit-limit-tokens", "90"), ("x-ratelimit-remaining-tokens", "80")]).await;
    assert_eq!(told, ["x-ratelimit-limit-tokens: 90", "x-ratelimit-remaining-tokens: 80"]);
    let told =
        tokens(&[("x-ratelimit-limit-tokens", "99999"), ("x-ratelimit-remaining-tokens", "9999")]).await;
    let ours = [
        "x-ratelimit-limit-tokens: 10000",
        "x-ratelimit-remaining-tokens: 9500",
        "x-ratelimit-reset-tokens: 1m0s",
    ];
    assert_eq!(told, ours);
}

#[tokio::test]
async fn a_reset_is_written_in_hours_minutes_and_seconds() {
    for (quota, reset) in [("1/45s", "45s"), ("1/6min", "6m0s"), ("1/h", "1h0m0s"), ("2/90500ms", "46s")] {
        let (store, _) = store();
        let limit = by_header(on(&store, Policy::gcra("tokens", quota)));
        let layer = RateLimitLayer::builder(limit).headers(HeaderFields::OpenAi).build().unwrap();
        let told = fields(&send(&layer.layer(Handler::default()), from("ada")).await);
        assert!(told.contains(&format!("x-ratelimit-reset-tokens: {reset}")), "{told:?}");
    }
}

#[tokio::test]
async fn a_refusal_has_them_and_retry_after() {
    let (store, clock) = store();
    let limit = by_header(on(&store, Policy::fixed_window("tokens", "1/min")));
    let layer = RateLimitLayer::builder(limit).headers(HeaderFields::OpenAi).build().unwrap();
    let service = layer.layer(Handler::default());
    send(&service, from("ada")).await;
    clock.advance(Duration::from_secs(20));
    let told = fields(&send(&service, from("ada")).await);
    let expected = [
        "cache-control: no-store",
        "retry-after: 40",
        "x-ratelimit-limit-tokens: 1",
        "x-ratelimit-remaining-tokens: 0",
        "x-ratelimit-reset-tokens: 40s",
    ];
    assert_eq!(told, expected);
}

async fn error(response: http::Response<Body>) -> serde_json::Value {
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    body["error"].clone()
}

#[tokio::test]
async fn a_refusal_has_the_error_of_that_api_and_names_the_policy_without_room() {
    let service = layer().layer(Handler::default());
    for _ in 0..20 {
        assert_eq!(send(&service, from("ada")).await.status(), 200);
    }
    let mut in_a_browser = from("ada");
    in_a_browser.headers_mut().insert("accept", "text/html".parse().unwrap());
    for request in [from("ada"), in_a_browser] {
        let refused = send(&service, request).await;
        assert_eq!(
            (refused.status(), &refused.headers()["retry-after"]),
            (429.try_into().unwrap(), &"60".parse().unwrap())
        );
        let expected = serde_json::json!({
            "message": "Rate limit reached for tokens: Limit 10000, Remaining 0. Please try again in 60s.",
            "type": "tokens",
            "param": null,
            "code": "rate_limit_exceeded",
        });
        assert_eq!(error(refused).await, expected);
    }
}

#[tokio::test]
async fn other_refusals_have_errors_of_that_api_too() {
    let (store, _) = store();
    let limiter = || on(&store, Policy::gcra("tokens", "1/min"));
    let builder = |limit| RateLimitLayer::builder(limit).headers(HeaderFields::OpenAi);
    let missing = by_header(limiter()).on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
    let denied = builder(by_header(limiter())).deny(|_| true);
    let large = by_header(limiter()).cost_fn(|_| 2);
    for (layer, request, status, kind, code) in [
        (builder(missing), anonymous(), 401, "invalid_request_error", Some("invalid_api_key")),
        (denied, from("ada"), 403, "invalid_request_error", None),
        (builder(large), from("ada"), 403, "invalid_request_error", None),
    ] {
        let refused = send(&layer.build().unwrap().layer(Handler::default()), request).await;
        assert_eq!(refused.status(), status);
        let error = error(refused).await;
        assert_eq!((error["type"].as_str(), error["code"].as_str()), (Some(kind), code), "{error}");
    }
}

#[tokio::test]
async fn a_responder_of_the_user_has_the_last_word() {
    let (store, _) = store();
    let limit = by_header(on(&store, Policy::gcra("tokens", "1/h")));
    let own = |refusal: &Refusal<'_>| {
        let mut response = http::Response::new(Body::from("later"));
        *response.status_mut() = refusal.status();
        response
    };
    let layer = RateLimitLayer::builder(limit).headers(HeaderFields::OpenAi).respond(own).build().unwrap();
    let service = layer.layer(Handler::default());
    send(&service, from("ada")).await;
    let refused = send(&service, from("ada")).await;
    assert_eq!(refused.into_body().collect().await.unwrap().to_bytes(), "later");
}

#[tokio::test]
async fn one_too_many_at_once_is_told_as_in_that_api() {
    let layer = InFlightLayer::new(InFlight::new("streams", 1).unwrap()).headers(HeaderFields::OpenAi);
    let pending = tower::service_fn(|_: http::Request<()>| {
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("hello"))))
    });
    let service = layer.layer(pending);
    let request = || {
        let mut request = from("ada");
        request
            .extensions_mut()
            .insert(axum::extract::ConnectInfo(std::net::SocketAddr::from(([192, 0, 2, 7], 1))));
        request
    };
    let held = service.clone().oneshot(request()).await.unwrap();
    let refused = service.oneshot(request()).await.unwrap();
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&error["error"]["type"], &error["error"]["code"]),
        (&"streams".into(), &"rate_limit_exceeded".into())
    );
    drop(held);
}
