//! The limiter of an attribute's limit, by name.

use std::net::Ipv4Addr;

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{RateLimitStore, rate_limited};
use sluicegate_core::Policy;
use sluicegate_core::limiter::Inherit;

use crate::support::{get as ask, statuses, store};

#[rate_limited("3/min", crate = sluicegate_axum)]
async fn login() {}

#[rate_limited("60/min", name = "search.address", crate = sluicegate_axum)]
#[rate_limited("2/min", name = "search.all", key = sluicegate_core::Key::from("all"))]
async fn search() {}

#[tokio::test]
async fn a_replaced_policy_holds_from_the_next_request_on() {
    let limits = RateLimitStore::new(store()).open(login).unwrap();
    let app = Router::new().route("/", get(login)).layer(limits.clone());
    assert_eq!(statuses(&app, "/", 4).await, [200, 200, 200, 429]);
    let limiter = limits.limiter("it.replace.login").unwrap();
    let wider = Policy::gcra("it.replace.login", "5/min").build().unwrap();
    limiter.replace(wider, Inherit::Reset).unwrap();
    assert_eq!(statuses(&app, "/", 6).await, [200, 200, 200, 200, 200, 429]);
    assert_eq!(ask(&app, "/").await.field("ratelimit-policy"), r#""it.replace.login";q=5;w=60"#);
    let _ = limiter.reset(Ipv4Addr::new(198, 51, 100, 1)).await.unwrap();
    assert_eq!(statuses(&app, "/", 1).await, [200]);
}

#[tokio::test]
async fn each_limit_of_a_handler_has_its_limiter_once_it_is_made() {
    let limits = RateLimitStore::new(store());
    let app = Router::new().route("/", get(search)).layer(limits.clone());
    let text = limits.limiter("search.all").unwrap_err().to_string();
    assert!(text.contains("\"search.all\"") && text.contains("open its handler first"), "{text}");
    assert_eq!(statuses(&app, "/", 1).await, [200]);
    assert_eq!(limits.limiter("search.all").unwrap().peek("all").await.unwrap().remaining(), 1);
    assert_eq!(limits.limiter("search.address").unwrap().policy().name(), "search.address");
    let text = limits.limiter("search.al").unwrap_err().to_string();
    assert!(text.contains(r#"["search.address", "search.all"]"#), "{text}");
}

#[rate_limited("3/min", name = "it.replace.login", crate = sluicegate_axum)]
async fn log_in_by_mail() {}

/// Opened before and after, on routers of their own: one name on one store is one limiter.
#[tokio::test]
async fn a_replacement_holds_for_all_handlers_and_routers_that_name_the_limit() {
    let store = store();
    let first = RateLimitStore::new(&store).open(login).unwrap();
    let narrower = Policy::gcra("it.replace.login", "1/min").build().unwrap();
    first.limiter("it.replace.login").unwrap().replace(narrower, Inherit::Reset).unwrap();
    let second = RateLimitStore::new(&store).open(log_in_by_mail).unwrap();
    let app = Router::new()
        .nest("/first", Router::new().route("/", get(login)).layer(first))
        .nest("/second", Router::new().route("/", get(log_in_by_mail)).layer(second));
    assert_eq!(statuses(&app, "/first", 1).await, [200]);
    assert_eq!(statuses(&app, "/second", 1).await, [429]);
}
