//! Handlers that are opened when the router is built: their mistakes are errors there.

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitExt, RateLimitStore, rate_limited};
use sluicegate_core::Policy;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_tests::log::Log;
use sluicegate_tower::key::HeaderKey;
use sluicegate_tower::respond::HeaderFields;

use crate::support::{get as ask, statuses, store};

#[rate_limited("2/min", name = "login", crate = sluicegate_axum)]
async fn login() {}

#[rate_limited("9/min", name = "login", crate = sluicegate_axum)]
async fn log_in_again(_: axum::http::Method, _: String) {}

#[rate_limited("2/min", name = "login", crate = sluicegate_axum)]
async fn shared(_: String) {}

#[rate_limited("2/min", crate = sluicegate_axum)]
#[rate_limited("3/min", name = "it.open.twice")]
async fn twice() {}

#[rate_limited("2/min", key = HeaderKey::new("no header name"), crate = sluicegate_axum)]
async fn keyless() {}

#[rate_limited("1/min", crate = sluicegate_axum)]
async fn generic<T: Default + ToString>() -> String {
    T::default().to_string()
}

#[tokio::test]
async fn two_quotas_under_one_name_are_an_error_that_names_both_handlers() {
    let error = RateLimitStore::new(store()).open(login).unwrap().open(log_in_again).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::NameTaken);
    let text = error.to_string();
    for part in [
        "`it::open::log_in_again` at ",
        "cannot be limited",
        "login: 9/min (gcra)",
        "login: 2/min (gcra)",
        "it is the limit of `it::open::login` at ",
        "it/open.rs:",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let limits = RateLimitStore::new(store()).open(login).unwrap().open(shared).unwrap();
    assert_eq!(limits.limiter("login").unwrap().policy().to_string(), "login: 2/min (gcra)");
}

#[tokio::test]
async fn two_limits_of_one_name_on_a_handler_are_an_error() {
    let text = RateLimitStore::new(store()).open(twice).unwrap_err().to_string();
    assert!(text.contains("two limits of this handler are called \"it.open.twice\""), "{text}");
}

#[tokio::test]
async fn a_name_that_the_application_uses_for_another_policy_is_an_error() {
    let store = store();
    let _other = Policy::gcra("login", "9/min").on(&store).unwrap();
    let error = RateLimitStore::new(&store).open(login).unwrap_err();
    assert_eq!(error.kind(), ConfigErrorKind::NameTaken);
}

#[tokio::test]
async fn a_key_that_cannot_be_made_is_an_error() {
    let text = RateLimitStore::new(store()).open(keyless).unwrap_err().to_string();
    assert!(text.contains("\"no header name\" cannot be the name of a header"), "{text}");
}

#[tokio::test]
async fn a_handler_that_is_opened_runs_nothing_and_spends_nothing() {
    let limits = RateLimitStore::new(store()).open(login).unwrap().open(generic::<u8>).unwrap();
    let app = Router::new().route("/", get(login)).route("/generic", get(generic::<u16>)).layer(limits);
    assert_eq!(statuses(&app, "/", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&app, "/generic", 2).await, [200, 429]);
}

#[tokio::test]
async fn settings_that_come_after_a_handler_hold_for_it() {
    let limits = RateLimitStore::new(store()).open(login).unwrap();
    let limits = limits.configure(|layer| layer.headers(HeaderFields::Ietf));
    assert!(limits.limiter("login").is_ok());
    let app = Router::new().route("/", get(login)).layer(limits);
    let seen = ask(&app, "/").await;
    assert!(seen.headers.contains_key("ratelimit") && !seen.headers.contains_key("x-ratelimit-limit"));
}

#[tokio::test]
async fn a_handler_that_was_forgotten_is_limited_and_logged_once() {
    let log = Log::of_this_thread();
    let app = |limits: RateLimitStore| Router::new().route("/", get(login)).layer(limits);
    assert_eq!(statuses(&app(RateLimitStore::new(store())), "/", 1).await, [200]);
    assert!(log.lines().is_empty());
    let app = app(RateLimitStore::new(store()).open(generic::<u8>).unwrap());
    assert_eq!(statuses(&app, "/", 3).await, [200, 200, 429]);
    let lines = log.lines();
    assert!(lines.len() == 1 && lines[0].starts_with("WARN"), "{lines:?}");
    assert!(lines[0].contains("add `.open(it::open::login)`"), "{lines:?}");
}

/// Clones of the layer, on other routers, keep one set of limits.
#[tokio::test]
async fn clones_share_what_was_opened() {
    let limits = RateLimitStore::new(store()).open(login).unwrap();
    let one = Router::new().route("/", get(login)).layer(limits.clone());
    let other = Router::new().route("/", get(login)).layer(limits);
    assert_eq!(statuses(&one, "/", 2).await, [200, 200]);
    assert_eq!(statuses(&other, "/", 1).await, [429]);
    // A store without handlers that were opened works as ever.
    let plain = Router::new().route("/", get(login)).with_rate_limits(store());
    assert_eq!(statuses(&plain, "/", 3).await, [200, 200, 429]);
}
