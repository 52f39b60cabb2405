#![deny(warnings)]
use axum::extract::{Json, Path, Query, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::Router;
use sluicegate::{MemoryStore, RateLimitExt, rate_limited};

#[derive(Clone)]
struct App;

#[rate_limited("5/min")]
async fn none() {}

#[rate_limited("5/min")]
async fn one(State(_app): State<App>) -> &'static str {
    "one"
}

#[rate_limited("5/min")]
async fn body(State(_app): State<App>, headers: HeaderMap, Json(text): Json<String>) -> Result<Json<String>, ()> {
    _ = headers;
    Ok(Json(text))
}

#[rate_limited("5/min")]
async fn opaque(Path(id): Path<u64>, Query(pairs): Query<Vec<(String, String)>>) -> impl IntoResponse {
    format!("{id} {pairs:?}")
}

fn main() {
    let _: Router = Router::new()
        .route("/none", get(none))
        .route("/one", get(one))
        .route("/body", post(body))
        .route("/{id}", get(opaque))
        .with_rate_limits(&MemoryStore::new())
        .with_state(App);
}
