//! Readiness, metrics, the status page and the OpenAPI document.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

use super::problem::CallProblem;
use crate::app::App;

/// `/readyz`.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.ready.why_not() {
        None => "ready\n".into_response(),
        Some(why) => CallProblem::temporary(why).into_response(),
    }
}

/// `/metrics`, in the text format of Prometheus.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let Some(render) = &app.metrics else {
        return CallProblem::new(StatusCode::NOT_FOUND, "this server has no metrics").into_response();
    };
    if let Some(observed) = &app.observed {
        // Gauges that change without a decision are updated now.
        observed.refresh().await;
    }
    let mut response = render().into_response();
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

/// `/openapi.json`.
pub(super) async fn openapi() -> Response {
    super::answer::response(StatusCode::OK, "application/json", super::openapi::document())
}

/// The status page, if there is one.
pub(super) fn status(app: &App) -> Option<Router> {
    let page = app.page.as_ref()?;
    Some(Router::new().nest_service("/status", page.clone()).route_service("/status.json", page.clone()))
}

/// Requires the secret as the password, if one is set.
pub(super) async fn with_password(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.access.is_open() || app.access.operator(request.headers()).is_some() {
        return next.run(request).await;
    }
    let mut response = CallProblem::new(
        StatusCode::UNAUTHORIZED,
        "log in with any user name and the secret of this server as the password",
    )
    .into_response();
    let basic = HeaderValue::from_static("Basic realm=\"sluicegate\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, basic);
    response
}
