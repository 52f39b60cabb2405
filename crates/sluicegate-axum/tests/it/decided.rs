//! What handlers are told.

use axum::Router;
use axum::routing::get;
use sluicegate_axum::{Decided, RateLimitExt};
use sluicegate_core::Policy;

use crate::support::{request, send, store};

#[tokio::test]
async fn a_handler_sees_its_decision_and_without_one_answers_500() {
    async fn strict(decided: Decided) -> String {
        format!("{} by {}", decided.remaining(), decided.policy().unwrap().name())
    }
    async fn lenient(decided: Option<Decided>) -> String {
        decided.is_some().to_string()
    }
    let limiter = Policy::gcra("search", "5/min").on(store()).unwrap();
    let limited = Router::new().route("/", get(strict).rate_limit(limiter));
    assert_eq!(send(&limited, request("/", 1, None)).await.body, "4 by search");
    let seen = send(&Router::new().route("/", get(lenient)), request("/", 1, None)).await;
    assert_eq!((seen.status.as_u16(), &*seen.body), (200, "false"));
    let seen = send(&Router::new().route("/", get(strict)), request("/", 1, None)).await;
    assert_eq!((seen.status.as_u16(), &*seen.body), (500, "this server cannot tell which limits apply"));
}
