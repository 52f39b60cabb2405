//! axum's own checks of handlers, above and below.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::extract::{Json, State};
use axum::http::Method;
use axum::routing::{get, post};
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[derive(Clone)]
struct App;

#[axum::debug_handler]
#[rate_limited("1/min")]
async fn above(State(_app): State<App>, _method: Method, Json(text): Json<String>) -> Result<String, String> {
    Ok(text)
}

#[rate_limited("1/min")]
#[axum::debug_handler]
async fn below(State(_app): State<App>, _method: Method) -> &'static str {
    "below"
}

#[rate_limited("1/min")]
#[axum::debug_handler(state = App)]
async fn without_arguments() {}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/above", post(above))
        .route("/below", get(below))
        .route("/without", get(without_arguments))
        .with_rate_limits(&MemoryStore::new())
        .with_state(App);
    support::run(async {
        assert_eq!(support::statuses(&app, "/below", 2).await, [200, 429]);
        assert_eq!(support::statuses(&app, "/without", 2).await, [200, 429]);
    });
}
