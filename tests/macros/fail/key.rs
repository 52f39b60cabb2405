//! Keys that are none.

use axum::Extension;
use axum::extract::Path;
use sluicegate::rate_limited;

use sluicegate::key::HeaderKey;

#[rate_limited("5/min", key = "x-api-key")]
async fn text() {}

#[rate_limited("5/min", key = HeaderKey::new)]
async fn constructor() {}

#[rate_limited("5/min", key = HeaderKey::new("x-api-key").ok())]
async fn option() {}

#[rate_limited("5/min", key = id)]
async fn argument(Path(id): Path<u64>) {
    _ = id;
}

#[rate_limited("5/min", key = User)]
async fn type_of_an_argument(Extension(_): Extension<User>) {}

#[derive(Clone)]
struct User;

fn main() {}
