//! Answers to refused requests that are none.

use axum::{Router, routing::get};
use sluicegate::{RateLimitExt, RateLimitLayer, RateLimiter};

fn app(limiter: RateLimiter) -> Router {
    let layer = RateLimitLayer::builder(limiter).respond("not now").build().unwrap();
    Router::new().route("/", get(|| async {})).rate_limit(layer)
}

fn main() {}
