//! The HTTP API.

mod answer;
mod call;
mod described;
mod key;
mod object;
mod openapi;
mod problem;
mod proxy;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use futures_util::future::join_all;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

pub(crate) use self::problem::CallProblem;
use crate::app::{App, InProgress, refuse_stranger};
use crate::connection::CallerMark;
use crate::http::answer::HttpReply;
use crate::http::call::{HttpCall, Settlement, Verb};
use crate::http::object::Object;

/// Everything that is served over HTTP.
pub(crate) fn router(app: Arc<App>) -> Router {
    let of = |verb| post(move |State(app): State<Arc<App>>, request: Request| ask(app, verb, request));
    let bounds = || middleware::from_fn_with_state(Arc::clone(&app), within_bounds);
    let asked = Router::new()
        .route("/v1/check", of(Verb::Check))
        .route("/v1/peek", of(Verb::Peek))
        .route("/v1/reserve", of(Verb::Reserve))
        .route("/v1/settle", post(settle))
        .route("/v1/refund", of(Verb::Refund))
        .route("/v1/reset", of(Verb::Reset))
        .route("/metrics", get(metrics))
        .route_layer(bounds())
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), with_secret));
    let proxies =
        proxy::routes().route_layer(middleware::from_fn_with_state(Arc::clone(&app), proxy::if_named));
    // Without bounds, because it costs nothing to answer them. Probes are answered under any load, or a busy process would be restarted.
    let open = Router::new()
        .route("/openapi.json", get(openapi))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready));
    let mut router = asked.merge(proxies).merge(open).with_state(Arc::clone(&app));
    if let Some(page) = status(&app) {
        let page = page.route_layer(bounds());
        let password = middleware::from_fn_with_state(Arc::clone(&app), with_password);
        router = router.merge(page.route_layer(password));
    }
    router
        .fallback(|| async {
            CallProblem::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path: /openapi.json has the paths",
            )
        })
        .method_not_allowed_fallback(|| async {
            CallProblem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path has another method: see /openapi.json",
            )
        })
}

/// Requires the secret, if one is set.
async fn with_secret(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.access.lets(request.headers()) {
        CallerMark::let_in(request.extensions());
        return next.run(request).await;
    }
    refuse_stranger(request.extensions().get());
    CallProblem::new(
        StatusCode::UNAUTHORIZED,
        "this server requires its secret: send it as Authorization: Bearer",
    )
    .into_response()
}

/// Bounds the number of requests and the time of each. It is inside of what lets callers in, so that nobody else takes a permit.
async fn within_bounds(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    bounded(&app, next.run(request)).await.unwrap_or_else(IntoResponse::into_response)
}

/// The response, within the bounds.
async fn bounded(app: &App, response: impl Future<Output = Response>) -> Result<Response, CallProblem> {
    let in_progress = Arc::clone(&app.in_progress).try_acquire_owned().map_err(|_| {
        let most = app.bounds.requests;
        CallProblem::temporary(format!("{most} requests are in progress, the most that this server accepts"))
    })?;
    let longest = app.bounds.request;
    let mut response = tokio::time::timeout(longest, response).await.map_err(|_| {
        CallProblem::temporary(format!("this took longer than {longest:?}, the time for a request"))
    })?;
    response.extensions_mut().insert(InProgress::new(in_progress));
    Ok(response)
}

async fn settle(State(app): State<Arc<App>>, request: Request) -> Response {
    let end = async {
        let settlement: Settlement = call::read(&app.bounds, request).await?;
        call::settle(&app, &settlement).await
    };
    end.await.map_or_else(IntoResponse::into_response, |end| end.response(&app.rules.limits()))
}

/// Performs a call, or each call of a batch.
async fn ask(app: Arc<App>, verb: Verb, request: Request) -> Response {
    let call: HttpCall = match call::read(&app.bounds, request).await {
        Ok(call) => call,
        Err(problem) => return problem.into_response(),
    };
    // One snapshot of the rules for all of them.
    let limits = app.rules.limits();
    match call.batch(&app.bounds) {
        Ok(None) => {
            let end = call::ask(&app, &limits, verb, &call).await;
            end.map_or_else(IntoResponse::into_response, |end| end.response(&limits))
        }
        Ok(Some(calls)) => {
            let answers = calls.iter().map(async |Object(call)| {
                let end = call::ask(&app, &limits, verb, call).await;
                end.map_or_else(|problem| problem.in_batch(), HttpReply::json)
            });
            answer::batch(join_all(answers).await)
        }
        Err(problem) => problem.into_response(),
    }
}

// Readiness, metrics, the status page and the OpenAPI document.

/// `/readyz`.
async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.ready.why_not() {
        None => "ready\n".into_response(),
        Some(why) => CallProblem::temporary(why).into_response(),
    }
}

/// `/metrics`, in the text format of Prometheus.
async fn metrics(State(app): State<Arc<App>>) -> Response {
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
async fn openapi() -> Response {
    crate::http::answer::response(StatusCode::OK, "application/json", crate::http::openapi::document())
}

/// The status page, if there is one.
fn status(app: &App) -> Option<Router> {
    let page = app.page.as_ref()?;
    Some(Router::new().nest_service("/status", page.clone()).route_service("/status.json", page.clone()))
}

/// Requires the secret as the password, if one is set.
async fn with_password(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.access.is_open() || app.access.operator(request.headers()).is_some() {
        CallerMark::let_in(request.extensions());
        return next.run(request).await;
    }
    refuse_stranger(request.extensions().get());
    let mut response = CallProblem::new(
        StatusCode::UNAUTHORIZED,
        "log in with any user name and the secret of this server as the password",
    )
    .into_response();
    let basic = HeaderValue::from_static("Basic realm=\"sluicegate\", charset=\"UTF-8\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, basic);
    response
}
