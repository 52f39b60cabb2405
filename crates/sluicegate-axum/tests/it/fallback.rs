//! A function that answers what a handler's limits decide against.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use sluicegate_axum::{Decided, RateLimitExt, RateLimitStore, rate_limited};
use sluicegate_core::Policy;
use sluicegate_tower::Limit;
use sluicegate_tower::key::HeaderKey;

use crate::support::{Seen, request, send, store};

#[derive(Clone)]
struct App(&'static str);

#[rate_limited("1/min", name = "stored", fallback = stale, crate = sluicegate_axum)]
async fn stored(State(app): State<App>, Path(id): Path<u8>, body: String) -> String {
    format!("{} {id} {body}", app.0)
}

/// Extractors of its own, the body and the decision among them.
async fn stale(
    State(app): State<App>,
    decided: Decided,
    headers: HeaderMap,
    Path(id): Path<u8>,
    body: String,
) -> ([(&'static str, &'static str); 1], String) {
    let key = headers["x-api-key"].to_str().unwrap().to_owned();
    let wait = decided.retry_after().unwrap().as_secs();
    ([("x-own", "1")], format!("stale {} {id} {body} for {key} in {wait}", app.0))
}

#[rate_limited("1/min", name = "busy", fallback = other::busy, crate = sluicegate_axum)]
async fn without_state() {}

mod other {
    use super::{IntoResponse, Response, StatusCode};

    pub(super) async fn busy() -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, [("ratelimit", "own")], "busy").into_response()
    }
}

#[rate_limited("9/min", name = "address", crate = sluicegate_axum)]
#[rate_limited("1/min", name = "key", key = HeaderKey::new("x-api-key"), on_missing_key = 401, fallback = nothing)]
async fn keyed() {}

async fn nothing() {}

#[rate_limited("1/min", name = "strict", fallback = picky, crate = sluicegate_axum)]
async fn strict() {}

async fn picky(Path(_): Path<u8>) {}

fn routes() -> Router<App> {
    Router::new()
        .route("/stored/{id}", post(stored))
        .route("/busy", post(without_state))
        .route("/keyed", post(keyed))
        .route("/strict/{id}", post(strict))
}

async fn ask(app: &Router, path: &str, api_key: Option<&str>) -> Seen {
    let mut request = request(path, 1, api_key);
    *request.method_mut() = axum::http::Method::POST;
    *request.body_mut() = Body::from("text");
    send(app, request).await
}

#[tokio::test]
async fn it_answers_a_request_that_is_over_the_limit_with_extractors_of_its_own() {
    let app = routes().with_rate_limits(store()).with_state(App("app"));
    assert_eq!(ask(&app, "/stored/7", Some("k")).await.body, "app 7 text");
    let seen = ask(&app, "/stored/7", Some("k")).await;
    assert_eq!((seen.status.as_u16(), &*seen.body), (200, "stale app 7 text for k in 60"));
    assert_eq!((seen.field("x-own"), seen.field("content-type")), ("1", "text/plain; charset=utf-8"));
    // The fields are those of the refusal, but a client with an answer need not come back.
    assert_eq!(seen.field("ratelimit"), r#""stored";r=0;t=60"#);
    assert_eq!((seen.field("x-ratelimit-remaining"), seen.field("cache-control")), ("0", "no-store"));
    assert!(!seen.headers.contains_key("retry-after"), "{seen:?}");
}

#[tokio::test]
async fn its_own_fields_and_errors_are_the_answer() {
    let app = routes().with_rate_limits(store()).with_state(App("app"));
    ask(&app, "/busy", None).await;
    let seen = ask(&app, "/busy", None).await;
    assert_eq!((seen.status.as_u16(), &*seen.body, seen.field("ratelimit")), (503, "busy", "own"));
    assert_eq!(seen.field("retry-after"), "60");
    ask(&app, "/strict/none", None).await;
    let seen = ask(&app, "/strict/none", None).await;
    assert_eq!(seen.status, StatusCode::BAD_REQUEST, "what its extractors say: {seen:?}");
}

#[tokio::test]
async fn requests_that_no_limit_decided_against_keep_their_refusal() {
    let app = routes().with_rate_limits(store()).with_state(App("app"));
    let seen = ask(&app, "/keyed", None).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
    assert!(seen.body.contains("missing"), "{seen:?}");
    assert_eq!(ask(&app, "/keyed", Some("k")).await.status, StatusCode::OK);
    let seen = ask(&app, "/keyed", Some("k")).await;
    assert_eq!((seen.status.as_u16(), seen.field("ratelimit").contains("\"key\";r=0")), (200, true));
}

#[tokio::test]
async fn a_limit_around_it_counts_it_as_the_refusal_that_it_is() {
    let store = store();
    let api = Policy::gcra("api", "3/min").on(&store).unwrap();
    let app = routes().with_rate_limits(&store).rate_limit(Limit::new(api)).with_state(App("app"));
    ask(&app, "/busy", None).await;
    for _ in 0..9 {
        assert_eq!(ask(&app, "/busy", None).await.status, 503);
    }
    let seen = ask(&app, "/stored/1", Some("k")).await;
    assert_eq!(seen.status, StatusCode::OK, "one of three was spent: {seen:?}");
}

/// The limit around it once wrote the wait of the refusal into the answer.
#[tokio::test]
async fn a_limit_around_it_sends_no_wait_with_an_answer() {
    let store = store();
    let api = Policy::gcra("api", "9/min").on(&store).unwrap();
    let app = routes().with_rate_limits(&store).rate_limit(Limit::new(api)).with_state(App("app"));
    for expected in ["app 7 text", "stale app 7 text for k in 60"] {
        let seen = ask(&app, "/stored/7", Some("k")).await;
        assert_eq!((seen.status.as_u16(), &*seen.body), (200, expected));
        assert!(!seen.headers.contains_key("retry-after"), "{seen:?}");
        assert_eq!(seen.field("x-ratelimit-remaining"), "0", "{seen:?}");
    }
    ask(&app, "/busy", None).await;
    let seen = ask(&app, "/busy", None).await;
    assert_eq!((seen.status.as_u16(), seen.field("retry-after")), (503, "60"));
}

#[tokio::test]
async fn a_response_of_the_routers_own_is_for_all_other_refusals() {
    let respond =
        |refusal: &sluicegate_tower::respond::Refusal<'_>| (refusal.status(), "own").into_response();
    let app = routes().layer(RateLimitStore::new(store()).respond(respond)).with_state(App("app"));
    assert_eq!(ask(&app, "/keyed", None).await.body, "own");
    ask(&app, "/busy", None).await;
    assert_eq!(ask(&app, "/busy", None).await.body, "busy");
}
