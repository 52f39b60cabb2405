//! What cannot be known before the first request: each is a 500 that says what to do.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, rate_limited};
use sluicegate_core::Policy;
use sluicegate_tower::Header;

use crate::support::{get as ask, statuses, store};

#[rate_limited("2/min", crate = sluicegate_axum)]
async fn login() {}

const TOO_MUCH: u64 = 3;

#[rate_limited("2/min", cost = TOO_MUCH, crate = sluicegate_axum)]
async fn costly() {}

#[rate_limited("2/min", key = Header::new("no header name"), crate = sluicegate_axum)]
async fn keyless() {}

async fn problem(app: &Router, path: &str) -> String {
    let seen = ask(app, path).await;
    assert_eq!(seen.status, StatusCode::INTERNAL_SERVER_ERROR);
    seen.body
}

#[tokio::test]
async fn without_a_store_the_handler_says_what_to_add() {
    let text = "the handler `it::mistakes::login` cannot be limited: its router has no store for limits: add `.with_rate_limits(&store)` after its routes";
    assert_eq!(problem(&Router::new().route("/", get(login)), "/").await, text);
    // Routes that are added after the store do without it, as after every layer.
    let late = Router::new().with_rate_limits(store()).route("/", get(login));
    assert_eq!(problem(&late, "/").await, text);
}

#[tokio::test]
async fn a_name_in_use_for_another_policy_is_named_until_it_is_free() {
    let store = store();
    let other = Policy::gcra("login", "9/min").on(&store).unwrap();
    let app = Router::new().route("/", get(login)).with_rate_limits(&store);
    let text = problem(&app, "/").await;
    for part in ["`it::mistakes::login`", "\"login\" is taken", "login: 9/min (gcra)", "login: 2/min (gcra)"]
    {
        assert!(text.contains(part), "{text}");
    }
    drop(other);
    assert_eq!(statuses(&app, "/", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn what_an_expression_gets_wrong_is_found_at_the_first_request() {
    let app =
        Router::new().route("/costly", get(costly)).route("/keyless", get(keyless)).with_rate_limits(store());
    let text = problem(&app, "/costly").await;
    assert!(text.contains("cost 3 is above burst 2 of 2/min"), "{text}");
    let text = problem(&app, "/keyless").await;
    assert!(text.contains("\"no header name\" cannot be the name of a header"), "{text}");
}
