//! Documented, deprecated, conditional and unused handlers, under strict lints.
#![deny(warnings)]
#![deny(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unnameable_types,
    unused,
    private_interfaces,
    private_bounds,
    nonstandard_style
)]

#[path = "../support.rs"]
mod support;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[derive(Clone, Debug)]
struct Private;

/// Documented.
///
/// In two paragraphs.
#[rate_limited("1/min")]
#[must_use]
pub(crate) async fn documented(State(_): State<Private>) -> &'static str {
    "documented"
}

/// Deprecated.
#[rate_limited("1/min")]
#[deprecated = "use `documented`"]
pub(crate) async fn old() {}

#[rate_limited("1/min")]
#[cfg(any())]
async fn never() -> NoSuchType {}

#[cfg(any())]
#[rate_limited("not even a quota")]
async fn never_either() {}

#[rate_limited("1/min")]
#[allow(dead_code)]
async fn unused() {}

fn main() {
    #[allow(deprecated)]
    let app: Router = Router::new()
        .route("/documented", get(documented))
        .route("/old", get(old))
        .with_rate_limits(&MemoryStore::new())
        .with_state(Private);
    support::run(async {
        assert_eq!(support::statuses(&app, "/documented", 2).await, [200, 429]);
        assert_eq!(support::statuses(&app, "/old", 2).await, [200, 429]);
    });
}
