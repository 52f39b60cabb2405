//! Spans around the handler's own code, from above and from below.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[tracing::instrument(skip_all, fields(id))]
#[rate_limited("1/min")]
async fn above(Path(id): Path<u8>) -> String {
    tracing::Span::current().record("id", id);
    id.to_string()
}

#[rate_limited("1/min")]
#[tracing::instrument(ret)]
async fn below(Path(id): Path<u8>) -> String {
    id.to_string()
}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/above/{id}", get(above))
        .route("/below/{id}", get(below))
        .with_rate_limits(&MemoryStore::new());
    support::run(async {
        assert_eq!(support::get(&app, "/above/7").await.text, "7");
        assert_eq!(support::get(&app, "/below/8").await.text, "8");
        assert_eq!(support::statuses(&app, "/below/8", 1).await, [429]);
    });
}
