//! What handlers are told.

use axum::Router;
use axum::extract::FromRequestParts;
use axum::routing::get;
use sluicegate_axum::{Decided, NotLimited, RateLimitExt};
use sluicegate_core::Policy;
use sluicegate_tower::RateLimitLayer;

use crate::support::{request, send, store};

#[tokio::test]
async fn a_handler_sees_the_decision_of_a_layer_that_tells_it_and_without_one_answers_500() {
    async fn strict(decided: Decided) -> String {
        format!("{} by {}", decided.remaining(), decided.policy().unwrap().name())
    }
    async fn lenient(decided: Option<Decided>) -> String {
        decided.is_some().to_string()
    }
    let limiter = Policy::gcra("search", "5/min").on(store()).unwrap();
    let telling = RateLimitLayer::new(limiter.clone()).decided();
    let limited = Router::new().route("/", get(strict).rate_limit(telling));
    assert_eq!(send(&limited, request("/", 1, None)).await.body, "4 by search");
    let not_asked = Router::new().route("/", get(strict).rate_limit(limiter));
    assert_eq!(send(&not_asked, request("/", 1, None)).await.status.as_u16(), 500);
    let (mut parts, ()) = axum::http::Request::new(()).into_parts();
    let not_limited: NotLimited = Decided::from_request_parts(&mut parts, &()).await.unwrap_err();
    assert!(not_limited.to_string().contains("`.rate_limit(RateLimitLayer::new(limit).decided())`"));
    let seen = send(&Router::new().route("/", get(lenient)), request("/", 1, None)).await;
    assert_eq!((seen.status.as_u16(), &*seen.body), (200, "false"));
    let seen = send(&Router::new().route("/", get(strict)), request("/", 1, None)).await;
    assert_eq!((seen.status.as_u16(), &*seen.body), (500, "this server cannot tell which limits apply"));
}
