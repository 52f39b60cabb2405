//! Several limits on one handler, and a handler inside of other limits.

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, rate_limited};
use sluicegate_tower::key::HeaderKey;

use crate::support::{all_fields, request, send, statuses, store};

#[rate_limited("3/min", name = "address", crate = sluicegate_axum)]
#[rate_limited("2/h", name = "key", key = HeaderKey::new("x-api-key"), on_missing_key = "skip")]
async fn search() -> &'static str {
    "nothing found"
}

#[rate_limited("1/min", crate = sluicegate_axum)]
async fn login() {}

#[rate_limited("1/min", shadow, crate = sluicegate_axum)]
async fn tried_out() {}

#[rate_limited("1/min", hidden, crate = sluicegate_axum)]
async fn kept_secret() {}

#[tokio::test]
async fn a_shadow_refuses_nobody_and_a_hidden_limit_shows_nobody_its_numbers() {
    let app = Router::new()
        .route("/shadow", get(tried_out))
        .route("/hidden", get(kept_secret))
        .with_rate_limits(store());
    assert_eq!(statuses(&app, "/shadow", 3).await, [200; 3]);
    for status in [200, 429] {
        let seen = send(&app, request("/hidden", 1, None)).await;
        assert_eq!(seen.status, status);
        assert!(!seen.headers.keys().any(|name| name.as_str().contains("ratelimit")), "{seen:?}");
        assert!(!seen.body.contains("kept_secret"), "{seen:?}");
    }
}

#[tokio::test]
async fn a_request_spends_from_all_limits_or_from_none() {
    let app = Router::new().route("/", get(search)).layer(all_fields(&store()));
    for status in [200, 200, 429] {
        let seen = send(&app, request("/", 1, Some("k"))).await;
        assert_eq!(seen.status, status);
        assert_eq!(seen.field("ratelimit-policy"), r#""address";q=3;w=60, "key";q=2;w=3600"#);
    }
    // The address has one left: the refused request did not take it.
    assert_eq!(send(&app, request("/", 1, None)).await.status, 200);
    let refused = send(&app, request("/", 1, None)).await;
    assert_eq!((refused.status.as_u16(), refused.field("ratelimit")), (429, r#""address";r=0;t=20"#));
}
