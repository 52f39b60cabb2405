//! Every kind of response, and errors by the question mark.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[rate_limited("9/min")]
async fn nothing() {}

#[rate_limited("9/min")]
async fn opaque() -> impl IntoResponse {
    (StatusCode::CREATED, [("x-own", "1")], "made")
}

#[rate_limited("9/min")]
async fn response() -> Response {
    Html("<p>").into_response()
}

#[rate_limited("9/min")]
async fn fails() -> Result<String, (StatusCode, String)> {
    let number: u8 = "x".parse().map_err(|error| (StatusCode::IM_A_TEAPOT, format!("{error}")))?;
    Ok(number.to_string())
}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/nothing", get(nothing))
        .route("/opaque", get(opaque))
        .route("/response", get(response))
        .route("/fails", get(fails))
        .with_rate_limits(&MemoryStore::new());
    support::run(async {
        assert_eq!(support::get(&app, "/nothing").await.status, 200);
        let made = support::get(&app, "/opaque").await;
        assert_eq!((made.status, &*made.text, &made.headers["x-own"]), (201, "made", &"1".parse().unwrap()));
        assert_eq!(support::get(&app, "/response").await.text, "<p>");
        let failed = support::get(&app, "/fails").await;
        assert_eq!((failed.status, &failed.headers["x-ratelimit-remaining"]), (418, &"8".parse().unwrap()));
    });
}
