//! Arguments that are taken apart, ignored, changed, optional, or allowed to fail.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use std::collections::HashMap;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, State};
use axum::routing::get;
use sluicegate::{Decided, MemoryStore, RateLimitExt, rate_limited};

#[rate_limited("9/min")]
async fn apart(
    State((left, right)): State<(u8, u8)>,
    Path((a, b)): Path<(String, String)>,
    mut query: Query<HashMap<String, String>>,
    _: Query<HashMap<String, String>>,
) -> String {
    query.insert("more".to_owned(), String::new());
    format!("{left} {right} {a} {b} {}", query.len())
}

#[rate_limited("9/min")]
async fn may_fail(path: Result<Path<u8>, PathRejection>, decided: Option<Decided>) -> String {
    format!("{} {}", path.is_ok(), decided.is_some())
}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/apart/{a}/{b}", get(apart))
        .route("/may_fail/{id}", get(may_fail))
        .with_rate_limits(&MemoryStore::new())
        .with_state((1, 2));
    support::run(async {
        assert_eq!(support::get(&app, "/apart/x/y?one=1").await.text, "1 2 x y 2");
        assert_eq!(support::get(&app, "/may_fail/nine").await.text, "false true");
    });
}
