//! Costs, conditions and refunds that closures and functions find out from the request or the response.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use sluicegate::key::RequestView;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[rate_limited("10/min", cost = |request| if request.uri.query().is_some() { 8 } else { 1 })]
async fn cost() {}

fn is_foreign(request: RequestView<'_>) -> bool {
    !request.headers.contains_key("x-own")
}

#[rate_limited("1/min", only_if = is_foreign)]
async fn condition() {}

#[rate_limited("1/min", refund_if = |head| head.status.is_success())]
async fn refund(Path(status): Path<u16>) -> StatusCode {
    StatusCode::from_u16(status).unwrap()
}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/cost", get(cost))
        .route("/condition", get(condition))
        .route("/refund/{status}", get(refund))
        .with_rate_limits(&MemoryStore::new());
    support::run(async {
        assert_eq!(support::statuses(&app, "/cost?all", 2).await, [200, 429]);
        assert_eq!(support::statuses(&app, "/cost", 3).await, [200, 200, 429]);
        assert_eq!(support::statuses(&app, "/condition", 2).await, [200, 429]);
        for _ in 0..3 {
            let own = Request::get("/condition").header("x-own", "1").body(Default::default()).unwrap();
            assert_eq!(support::send(&app, own).await.status, 200);
        }
        assert_eq!(support::statuses(&app, "/refund/200", 3).await, [200, 200, 200]);
        assert_eq!(support::statuses(&app, "/refund/401", 2).await, [401, 429]);
    });
}
