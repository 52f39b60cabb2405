//! Names: the function's, a raw one, and one that is given because the function's would not do.
#![deny(warnings)]

#[path = "../support.rs"]
mod support;

use axum::Router;
use axum::routing::get;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[rate_limited("1/min")]
async fn with_underscores_2() {}

#[rate_limited("1/min")]
async fn r#move() {}

#[rate_limited("1/min", name = "leading.underscore")]
async fn _leading() {}

fn main() {
    let app: Router = Router::new()
        .route("/underscores", get(with_underscores_2))
        .route("/move", get(r#move))
        .route("/leading", get(_leading))
        .with_rate_limits(&MemoryStore::new());
    support::run(async {
        let policy = support::get(&app, "/underscores").await.headers["ratelimit-policy"].clone();
        assert_eq!(policy, "\"with_underscores_2\";q=1;w=60");
        assert_eq!(support::get(&app, "/move").await.headers["ratelimit-policy"], "\"move\";q=1;w=60");
        assert_eq!(
            support::get(&app, "/leading").await.headers["ratelimit-policy"],
            "\"leading.underscore\";q=1;w=60"
        );
    });
}
