//! Counting by route: the pattern that a request has matched, once for each decision.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{MemoryStore, Policy};
use sluicegate_tests::around::told;
use sluicegate_tower::key::{HeaderKey, OnMissingKey};
use sluicegate_tower::limits::{Limits, path_in};
use sluicegate_tower::{Limit, RateLimitLayer};
use tower::ServiceExt;

/// An event without the time that the decision took.
fn untimed(event: &str) -> String {
    event.split_once(", took: ").map_or_else(|| event.to_owned(), |(event, _)| format!("{event} }}"))
}

/// The status that a request is answered with.
async fn get_as(app: &Router, path: &str, key: Option<&str>) -> StatusCode {
    let mut request = Request::get(path);
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
}

#[tokio::test]
async fn decisions_are_told_by_the_pattern_of_their_route_and_nothing_else_is() {
    let memory = MemoryStore::builder().clock(ManualClock::new()).build().unwrap();
    let (store, events) = told(memory);
    let routed = |counts: bool| {
        let limiter = Policy::gcra("api", "2/h").on(store.clone()).unwrap();
        let limit = Limit::new(limiter).key(HeaderKey::new("x-api-key").unwrap());
        let limit = limit.on_missing_key(OnMissingKey::Reject(StatusCode::UNAUTHORIZED));
        let builder = RateLimitLayer::builder(limit).exempt(path_in(["/health"]).unwrap());
        let builder = if counts { builder.count_routes() } else { builder };
        Router::new()
            .route("/users/{id}", get(|| async {}))
            .route("/health", get(|| async {}))
            .fallback(|| async { StatusCode::NOT_FOUND })
            .layer(builder.build().unwrap())
    };
    let app = routed(true);
    assert_eq!(get_as(&app, "/users/7", Some("ada")).await, StatusCode::OK);
    assert_eq!(get_as(&app, "/no/such/page", Some("ada")).await, StatusCode::NOT_FOUND);
    assert_eq!(get_as(&app, "/users/8", Some("ada")).await, StatusCode::TOO_MANY_REQUESTS);
    // Neither is a decision.
    assert_eq!(get_as(&app, "/health", Some("ada")).await, StatusCode::OK);
    assert_eq!(get_as(&app, "/users/7", None).await, StatusCode::UNAUTHORIZED);
    let heard: Vec<_> = std::mem::take(&mut *events.lock().unwrap());
    let routes: Vec<_> =
        heard.iter().filter(|event| event.starts_with("Routed")).map(|event| untimed(event)).collect();
    assert_eq!(
        routes,
        [
            r#"Routed { route: Some("/users/{id}"), outcome: Allowed }"#,
            "Routed { route: None, outcome: Allowed }",
            r#"Routed { route: Some("/users/{id}"), outcome: Denied }"#,
        ]
    );
    assert_eq!(get_as(&routed(false), "/users/7", Some("ada")).await, StatusCode::TOO_MANY_REQUESTS);
    assert!(
        events.lock().unwrap().iter().all(|event| !event.starts_with("Routed")),
        "by default none is told"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_turn_is_told_once_when_it_goes_on() {
    let (store, events) = told(MemoryStore::new());
    let limiter = Policy::gcra("waits", "1/s burst 1").wait_up_to(Duration::from_secs(5)).on(store).unwrap();
    let limit = Limit::new(limiter).key(HeaderKey::new("x-api-key").unwrap());
    let layer = RateLimitLayer::builder(limit).without_extensions().count_routes().build().unwrap();
    let app = Router::new().route("/slow", get(|| async {})).layer(layer);
    for _ in 0..2 {
        assert_eq!(get_as(&app, "/slow", Some("ada")).await, StatusCode::OK);
    }
    let heard: Vec<_> = events.lock().unwrap().iter().map(|event| untimed(event)).collect();
    assert_eq!(heard, [r#"Routed { route: Some("/slow"), outcome: Allowed }"#; 2]);
}

/// Whoever asks the limits, a layer or other code, and whether a turn is waited for or not.
#[tokio::test(start_paused = true)]
async fn a_decision_without_a_service_is_told_as_well() {
    let (store, events) = told(MemoryStore::new());
    let limiter = Policy::gcra("api", "1/s burst 1").wait_up_to(Duration::from_secs(1)).on(store).unwrap();
    let limit = Limit::new(limiter).key(HeaderKey::new("x-api-key").unwrap());
    let limits = Limits::builder(limit).count_routes().build().unwrap();
    let request = Request::get("/").header("x-api-key", "ada").body(()).unwrap();
    let (at_once, waits, refused) =
        (limits.decide(&request), limits.decide(&request), limits.decide(&request));
    assert!(at_once.await.is_ok());
    assert!(refused.await.is_err());
    assert!(waits.await.is_ok());
    let heard: Vec<_> = events.lock().unwrap().iter().map(|event| untimed(event)).collect();
    let routed = |outcome| format!("Routed {{ route: None, outcome: {outcome} }}");
    assert_eq!(heard, [routed("Allowed"), routed("Denied"), routed("Allowed")]);
}
