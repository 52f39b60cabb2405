//! Quotas from constants and from the environment.

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, RateLimitStore, rate_limited};
use sluicegate_core::Quota;
use sluicegate_core::error::ConfigErrorKind;

use crate::support::{get as ask, statuses, store};

const TEXT: &str = "2/min";
const QUOTA: Quota = Quota::per_minute(3);
const WRONG: &str = "2/fortnight";

#[rate_limited(quota = TEXT, crate = sluicegate_axum)]
async fn from_text() {}

#[rate_limited(quota = QUOTA, "100/h", name = "both", crate = sluicegate_axum)]
async fn from_quota() {}

#[rate_limited(quota = WRONG, crate = sluicegate_axum)]
async fn from_nonsense() {}

#[rate_limited(quota = env("LOGIN_LIMIT"), crate = sluicegate_axum)]
async fn login() {}

#[rate_limited(quota = env("SEARCH_LIMIT", "4/min"), algorithm = "sliding-counter", crate = sluicegate_axum)]
async fn search() {}

#[rate_limited(quota = env("REPORT_LIMIT"), cost = 5, crate = sluicegate_axum)]
async fn report() {}

/// On an environment that says only this.
fn limits(variable: &'static str, value: &'static str) -> RateLimitStore {
    RateLimitStore::new(store()).variables(move |name| (name == variable).then(|| value.to_owned()))
}

#[tokio::test]
async fn a_constant_is_a_quota_as_text_and_as_a_quota() {
    let app = Router::new()
        .route("/text", get(from_text))
        .route("/quota", get(from_quota))
        .with_rate_limits(store());
    assert_eq!(statuses(&app, "/text", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/quota", 4).await, [200, 200, 200, 429]);
    let policy = ask(&app, "/quota").await.field("ratelimit-policy").to_owned();
    assert!(policy.contains("q=3;w=60") && policy.contains("q=100;w=3600"), "{policy}");
    let text = RateLimitStore::new(store()).open(from_nonsense).unwrap_err().to_string();
    assert!(text.contains("`it::quotas::from_nonsense`") && text.contains("fortnight"), "{text}");
}

#[tokio::test]
async fn the_environment_says_the_quota_when_the_router_is_built() {
    let limits = limits("LOGIN_LIMIT", "1/min").open(login).unwrap();
    let app = Router::new().route("/", get(login)).layer(limits);
    assert_eq!(statuses(&app, "/", 2).await, [200, 429]);
}

#[tokio::test]
async fn a_variable_that_is_not_set_leaves_the_default_or_is_an_error() {
    let unset = || RateLimitStore::new(store()).variables(|_| None);
    let limits = unset().open(search).unwrap();
    assert_eq!(
        limits.limiter("it.quotas.search").unwrap().policy().to_string(),
        "it.quotas.search: 4/min (sliding-counter)"
    );
    let error = unset().open(login).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::Quota);
    assert!(error.to_string().contains("LOGIN_LIMIT is not set"), "{error}");
    // The process has no such variable either.
    assert!(
        RateLimitStore::new(store()).open(login).unwrap_err().to_string().contains("LOGIN_LIMIT is not set")
    );
}

#[tokio::test]
async fn a_value_that_is_wrong_is_named_with_its_variable() {
    let text = limits("LOGIN_LIMIT", "5/mni").open(login).unwrap_err().to_string();
    for part in ["`it::quotas::login`", "\"mni\" is not a unit of time", "LOGIN_LIMIT=\"5/mni\""] {
        assert!(text.contains(part), "{text}");
    }
    // A good quota that the algorithm cannot keep, and one that is too small for the cost.
    let text = limits("SEARCH_LIMIT", "4/min burst 8").open(search).unwrap_err().to_string();
    assert!(text.contains("SEARCH_LIMIT=\"4/min burst 8\"") && text.contains("burst"), "{text}");
    let text = limits("REPORT_LIMIT", "4/min").open(report).unwrap_err().to_string();
    assert!(text.contains("cost 5 is above burst 4") && text.contains("REPORT_LIMIT=\"4/min\""), "{text}");
    assert!(limits("REPORT_LIMIT", "5/min").open(report).is_ok());
}
