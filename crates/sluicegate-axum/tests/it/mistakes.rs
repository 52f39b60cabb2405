//! Mistakes that the compiler cannot know: each is logged with what to do, once, and a client learns nothing of it.

use axum::Router;
use axum::routing::{get, post};
use sluicegate_axum::{Decided, RateLimitExt, rate_limited};
use sluicegate_core::Policy;
use sluicegate_tests::log::Log;
use sluicegate_tower::key::HeaderKey;

use crate::support::{get as ask, statuses, store};

#[rate_limited("2/min", name = "login", crate = sluicegate_axum)]
async fn login() {}

const TOO_MUCH: u64 = 3;

#[rate_limited("2/min", cost = TOO_MUCH, crate = sluicegate_axum)]
async fn costly() {}

#[rate_limited("2/min", key = HeaderKey::new("no header name"), crate = sluicegate_axum)]
async fn keyless() {}

/// What two requests to a handler without a limit make the log say.
async fn problem(app: &Router, path: &str) -> String {
    let log = Log::of_this_thread();
    for _ in 0..2 {
        let seen = ask(app, path).await;
        assert_eq!((seen.status.as_u16(), &*seen.body), (500, ""));
        assert!(seen.headers.keys().all(|name| name == "content-length"), "{seen:?}");
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("ERROR"), "{lines:?}");
    lines[0].clone()
}

#[tokio::test]
async fn without_a_store_the_log_says_what_to_add() {
    let late = Router::new().with_rate_limits(store()).route("/", get(login));
    let text = problem(&late, "/").await;
    for part in ["it::mistakes::login", "add `.with_rate_limits(&store)` after its routes"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_name_in_use_for_another_policy_is_named_until_it_is_free() {
    let store = store();
    let other = Policy::gcra("login", "9/min").on(&store).unwrap();
    let app = Router::new().route("/", get(login)).with_rate_limits(&store);
    let text = problem(&app, "/").await;
    for part in [
        "it::mistakes::login",
        "policy \"login\": the name is taken",
        "login: 9/min (gcra)",
        "login: 2/min (gcra)",
    ] {
        assert!(text.contains(part), "{text}");
    }
    drop(other);
    assert_eq!(statuses(&app, "/", 3).await, [200, 200, 429]);
}

#[tokio::test]
async fn what_an_expression_gets_wrong_is_found_at_the_first_request() {
    let app =
        Router::new().route("/costly", get(costly)).route("/keyless", get(keyless)).with_rate_limits(store());
    let text = problem(&app, "/costly").await;
    assert!(text.contains("cost 3 is above burst 2 of 2/min"), "{text}");
    let text = problem(&app, "/keyless").await;
    assert!(text.contains("\"no header name\" cannot be the name of a header"), "{text}");
}

#[tokio::test]
async fn a_limit_on_a_router_without_routes_is_logged_with_its_place() {
    let log = Log::of_this_thread();
    let limiter = Policy::gcra("api", "1/min").on(store()).unwrap();
    let early = Router::new().rate_limit(limiter.clone()).route("/", get(|| async {}));
    assert_eq!(statuses(&early, "/", 2).await, [200, 200], "as axum has it");
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in
        ["ERROR", "mistakes.rs", "write it after the routes", "`Router::new().route(..).rate_limit(..)`"]
    {
        assert!(lines[0].contains(part), "{lines:?}");
    }

    let late = Router::new().route("/", get(|| async {})).rate_limit(limiter);
    assert_eq!(statuses(&late, "/", 2).await, [200, 429]);
    _ = Router::<()>::new().with_rate_limits(store());
    assert!(log.lines()[1].contains("`.with_rate_limits(..)` at "), "{:?}", log.lines());
    _ = Router::<()>::new().rate_limit_routes(Policy::gcra("api", "1/min").on(store()).unwrap());
    assert!(log.lines()[2].contains("`.rate_limit_routes(..)` at "), "{:?}", log.lines());
    assert_eq!(log.lines().len(), 3);
}

#[tokio::test]
async fn a_method_that_comes_after_the_limit_has_none() {
    let limiter = Policy::gcra("notes", "1/min").on(store()).unwrap();
    let decided = |_: Decided| async {};
    let app = Router::new().route("/", post(|| async {}).rate_limit(limiter).get(decided));
    let seen = ask(&app, "/").await;
    assert_eq!((seen.status.as_u16(), &*seen.body), (500, "this server cannot tell which limits apply"));
}
