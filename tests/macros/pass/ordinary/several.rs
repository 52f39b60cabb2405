//! Several quotas in one limit, and several limits on one handler: all of them, or none.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::http::Request;
use axum::routing::get;
use sluicegate::attribute::RateLimitStore;
use sluicegate::key::HeaderKey;
use sluicegate::respond::HeaderFields;
use sluicegate::{MemoryStore, rate_limited};

#[rate_limited("100/h", "3/min", "2/s", name = "quotas")]
async fn quotas() {}

/// Three for everybody without a key, two for each key.
#[rate_limited("3/min", name = "all")]
#[rate_limited("2/h", name = "key", key = HeaderKey::new("x-api-key"), on_missing_key = "skip")]
async fn limits() {}

#[rate_limited("3/min", name = "outer")]
#[tracing::instrument]
#[sluicegate::rate_limited("2/h", name = "inner", cost = 2, shadow)]
/// A comment in between.
async fn between() {}

pub(crate) fn main() {
    let shows_all =
        RateLimitStore::new(&MemoryStore::new()).configure(|limits| limits.headers(HeaderFields::All));
    let app: Router = Router::new()
        .route("/quotas", get(quotas))
        .route("/limits", get(limits))
        .route("/between", get(between))
        .layer(shows_all);
    support::run(async {
        let answer = support::get(&app, "/quotas").await;
        assert_eq!(
            answer.headers["ratelimit-policy"],
            "\"quotas.1h\";q=100;w=3600, \"quotas.1min\";q=3;w=60, \"quotas.1s\";q=2;w=1"
        );
        let with_key = || Request::get("/limits").header("x-api-key", "k").body(Default::default()).unwrap();
        assert_eq!(support::send(&app, with_key()).await.status, 200);
        assert_eq!(support::send(&app, with_key()).await.status, 200);
        let refused = support::send(&app, with_key()).await;
        assert_eq!(refused.status, 429);
        assert!(
            refused.headers["ratelimit"].to_str().unwrap().starts_with("\"all\";r=1"),
            "{:?}",
            refused.headers
        );
        assert_eq!(support::statuses(&app, "/limits", 2).await, [200, 429], "what was refused spent nothing");
        assert_eq!(support::get(&app, "/between").await.status, 200);
    });
}
