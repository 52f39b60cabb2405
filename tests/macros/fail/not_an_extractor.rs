//! Arguments that axum cannot extract: the message is the one that it gives without the attribute.

use axum::routing::get;
use axum::{Json, Router};
use sluicegate::rate_limited;

struct NoExtractor;

#[rate_limited("5/min")]
async fn unknown(_: NoExtractor) {}

#[rate_limited("5/min")]
async fn body_first(_: Json<String>, _: axum::http::Method) {}

#[rate_limited("5/min")]
async fn bodies(_: String, _: axum::body::Bytes) {}

fn main() {
    let _: Router = Router::new().route("/unknown", get(unknown)).route("/body_first", get(body_first));
}
