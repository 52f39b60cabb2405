//! A default for routes that have no limit of their own.

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, rate_limited};
use sluicegate_core::{MemoryStore, Policy, RateLimiter};
use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::respond::HeaderFields;

use crate::support::{all_fields, get as ask, statuses, store};

fn limiter(store: &MemoryStore, name: &str, quota: &str) -> RateLimiter {
    Policy::gcra(name, quota).on(store).unwrap()
}

#[rate_limited("3/min", crate = sluicegate_axum)]
async fn attributed() {}

/// Two routes under a default of four, and three that are added after it.
fn app() -> Router {
    let store = store();
    let login = RateLimitLayer::builder(limiter(&store, "login", "2/min")).headers(HeaderFields::All);
    let login = login.build().unwrap();
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/search", get(|| async { "found nothing" }))
        .rate_limit(limiter(&store, "default", "4/min"))
        .route("/login", get(|| async { "welcome" }).rate_limit(login))
        .route("/attributed", get(attributed))
        .route("/health", get(|| async { "ok" }))
        .layer(all_fields(&store))
}

#[tokio::test]
async fn routes_that_come_before_the_default_share_it_with_paths_that_no_route_has() {
    let app = app();
    assert_eq!(statuses(&app, "/", 2).await, [200; 2]);
    assert_eq!(statuses(&app, "/search", 1).await, [200]);
    assert_eq!(statuses(&app, "/nowhere", 2).await, [404, 429]);
    assert_eq!(statuses(&app, "/search", 1).await, [429]);
}

#[tokio::test]
async fn a_route_that_comes_after_the_default_is_under_its_own_limit_only() {
    let app = app();
    let first = ask(&app, "/login").await;
    assert_eq!(first.field("ratelimit-policy"), r#""login";q=2;w=60"#);
    assert_eq!(statuses(&app, "/login", 2).await, [200, 429]);
    // None of them was the default's, and what uses that up is none of theirs.
    assert_eq!(statuses(&app, "/", 5).await, [200, 200, 200, 200, 429]);
    assert_eq!(statuses(&app, "/health", 9).await, [200; 9]);
    let first = ask(&app, "/attributed").await;
    assert_eq!(first.field("ratelimit-policy"), r#""it.default_limit.attributed";q=3;w=60"#);
    assert_eq!(statuses(&app, "/attributed", 3).await, [200, 200, 429]);
}
