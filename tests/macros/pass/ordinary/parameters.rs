//! All parameters together, with numbers, constants and a trailing comma.
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

const COST: u64 = 2;

#[rate_limited(
    "100/h",
    "10/min burst 4",
    name = "upload.v1",
    algorithm = "token-bucket",
    key = HeaderKey::new("x-api-key"),
    cost = 2,
    on_exceeded = "wait 1 ms",
    on_missing_key = 401,
    on_outage = "deny",
)]
async fn upload() {}

#[rate_limited(algorithm = "sliding-counter", cost = COST, on_exceeded = "deny", on_missing_key = "share", on_outage = "local", "5/min")]
async fn in_any_order() {}

#[rate_limited("1/min", on_missing_key = "skip", on_outage = "allow", key = HeaderKey::new("x-api-key"))]
async fn skipping() {}

pub(crate) fn main() {
    let limits =
        RateLimitStore::new(&MemoryStore::new()).configure(|limits| limits.headers(HeaderFields::All));
    let app: Router = Router::new()
        .route("/upload", get(upload))
        .route("/order", get(in_any_order))
        .route("/skipping", get(skipping))
        .layer(limits);
    support::run(async {
        assert_eq!(support::get(&app, "/upload").await.status, 401);
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let request = Request::get("/upload").header("x-api-key", "k").body(Default::default()).unwrap();
            let answer = support::send(&app, request).await;
            assert_eq!(
                answer.headers["ratelimit-policy"],
                "\"upload.v1.1h\";q=100;w=3600, \"upload.v1.1min\";q=4;w=24"
            );
            statuses.push(answer.status);
        }
        assert_eq!(statuses, [200, 200, 429], "the burst is two requests");
        assert_eq!(support::statuses(&app, "/order", 3).await, [200, 200, 429]);
        assert_eq!(support::statuses(&app, "/skipping", 3).await, [200, 200, 200]);
    });
}
