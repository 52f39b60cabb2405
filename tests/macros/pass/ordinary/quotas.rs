//! Quotas from constants, expressions and the environment, which here says nothing.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::routing::get;
use sluicegate::attribute::RateLimitStore;
use sluicegate::{MemoryStore, Quota, RateLimitExt, rate_limited};

const TEXT: &str = "1/min";

mod limits {
    pub const QUOTA: sluicegate::Quota = sluicegate::Quota::per_minute(1);
}

struct Plan;

impl Plan {
    const FREE: &'static str = "1/min";

    #[rate_limited(quota = Plan::FREE)]
    async fn associated() {}
}

#[rate_limited(quota = TEXT, quota = "5/h", cost = 1)]
async fn text() {}

#[rate_limited("5/h", quota = limits::QUOTA)]
async fn quota() {}

#[rate_limited("1/min by sliding-log", "5/d by token-bucket-aligned")]
async fn mixed() {}

#[rate_limited(quota = Quota::new(1, std::time::Duration::from_secs(60)))]
async fn expression() {}

#[rate_limited(quota = env("SLUICEGATE_TEST_UNSET", "1/min"))]
async fn default() {}

#[rate_limited(quota = env("SLUICEGATE_TEST_UNSET"))]
async fn unset() {}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/text", get(text))
        .route("/quota", get(quota))
        .route("/mixed", get(mixed))
        .route("/expression", get(expression))
        .route("/default", get(default))
        .route("/associated", get(Plan::associated))
        .route("/unset", get(unset))
        .with_rate_limits(&MemoryStore::new());
    support::run(async {
        for path in ["/text", "/quota", "/mixed", "/expression", "/default", "/associated"] {
            assert_eq!(support::statuses(&app, path, 2).await, [200, 429], "{path}");
        }
        assert_eq!(support::statuses(&app, "/unset", 1).await, [500]);
    });
    let error = RateLimitStore::new(&MemoryStore::new()).open(unset).unwrap_err();
    assert!(error.to_string().contains("SLUICEGATE_TEST_UNSET is not set"), "{error}");
}
