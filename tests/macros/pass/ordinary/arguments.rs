//! No argument, and up to the sixteen that axum takes, the last with the body.
#![deny(warnings)]

#[path = "../../support.rs"]
mod support;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Json, OriginalUri, Path, Query, Request, State};
use axum::http::{HeaderMap, Method, Uri, Version};
use axum::routing::{get, post};
use sluicegate::{Decided, MemoryStore, RateLimitExt, rate_limited};

#[derive(Clone)]
struct App(&'static str);

#[rate_limited("1/min")]
async fn none() {}

#[rate_limited("1/min")]
async fn state(State(app): State<App>) -> &'static str {
    app.0
}

#[rate_limited("1/min")]
async fn json(
    State(app): State<App>,
    headers: HeaderMap,
    Json(text): Json<String>,
) -> Result<Json<String>, String> {
    assert!(headers.contains_key("content-type"));
    Ok(Json(format!("{} {text}", app.0)))
}

#[rate_limited("1/min")]
async fn whole(request: Request) -> String {
    request.uri().to_string()
}

#[rate_limited("2/min")]
async fn decided(Path(id): Path<u64>, decided: Decided) -> String {
    format!("{id}: {} left", decided.remaining())
}

#[rate_limited("1/min")]
#[allow(clippy::too_many_arguments)]
async fn sixteen(
    _: State<App>,
    _: State<App>,
    _: State<App>,
    _: State<App>,
    _: State<App>,
    _: Method,
    _: Uri,
    _: Version,
    _: HeaderMap,
    _: OriginalUri,
    _: Query<Vec<(String, String)>>,
    _: Option<axum::extract::MatchedPath>,
    _: Result<Query<u8>, axum::extract::rejection::QueryRejection>,
    _: State<App>,
    _: State<App>,
    body: Bytes,
) -> String {
    format!("{} bytes", body.len())
}

pub(crate) fn main() {
    let app: Router = Router::new()
        .route("/none", get(none))
        .route("/state", get(state))
        .route("/json", post(json))
        .route("/whole", get(whole))
        .route("/decided/{id}", get(decided))
        .route("/sixteen", post(sixteen))
        .with_rate_limits(&MemoryStore::new())
        .with_state(App("the state"));
    support::run(async {
        assert_eq!(support::statuses(&app, "/none", 2).await, [200, 429]);
        assert_eq!(support::get(&app, "/state").await.text, "the state");
        assert_eq!(support::get(&app, "/whole?a").await.text, "/whole?a");
        assert_eq!(support::get(&app, "/decided/7").await.text, "7: 1 left");
        let request = axum::http::Request::post("/json").header("content-type", "application/json");
        let answer = support::send(&app, request.body(Body::from("\"and body\"")).unwrap()).await;
        assert_eq!(answer.text, "\"the state and body\"");
        let request = axum::http::Request::post("/sixteen").body(Body::from("12345")).unwrap();
        assert_eq!(support::send(&app, request).await.text, "5 bytes");
    });
}
