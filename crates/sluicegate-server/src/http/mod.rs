//! The HTTP API.

mod answer;
mod ask;
mod body;
mod call;
mod described;
mod key;
mod openapi;
mod pages;
mod problem;
mod proxy;
mod settle;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::future::join_all;
use http::StatusCode;

use self::answer::HttpReply;
use self::ask::Verb;
use self::call::{HttpCall, Settlement};
use self::problem::CallProblem;
use crate::app::App;
use crate::sending::InProgress;

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
        .route("/metrics", get(pages::metrics))
        .route_layer(bounds())
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), with_secret));
    let proxies = proxy::routes()
        .route_layer(bounds())
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), proxy::if_named));
    // Without bounds, because it costs nothing to answer them. Probes are answered under any load, or a busy process would be restarted.
    let open = Router::new()
        .route("/openapi.json", get(pages::openapi))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(pages::ready));
    let mut router = asked.merge(proxies).merge(open).with_state(Arc::clone(&app));
    if let Some(page) = pages::status(&app) {
        let page = page.route_layer(bounds());
        let password = middleware::from_fn_with_state(Arc::clone(&app), pages::with_password);
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
    match app.access.lets(request.headers()) {
        true => next.run(request).await,
        false => CallProblem::new(
            StatusCode::UNAUTHORIZED,
            "this server requires its secret: send it as Authorization: Bearer",
        )
        .into_response(),
    }
}

/// Bounds the number of requests and the time of each. It is inside of what lets callers in, so that nobody else takes a permit.
async fn within_bounds(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Ok(in_progress) = Arc::clone(&app.in_progress).try_acquire_owned() else {
        let most = app.bounds.requests;
        return CallProblem::temporary(format!(
            "{most} requests are in progress, the most that this server accepts"
        ))
        .into_response();
    };
    let longest = app.bounds.request;
    let mut response = tokio::time::timeout(longest, next.run(request)).await.unwrap_or_else(|_| {
        CallProblem::temporary(format!("this took longer than {longest:?}, the time for a request"))
            .into_response()
    });
    response.extensions_mut().insert(InProgress::new(in_progress));
    response
}

async fn settle(State(app): State<Arc<App>>, request: Request) -> Response {
    let end = async {
        let settlement: Settlement = body::read(&app.bounds, request).await?;
        settle::settle(&app, &settlement).await
    };
    end.await.map_or_else(IntoResponse::into_response, |end| end.response(&app.rules.limits()))
}

/// Performs a call, or each call of a batch.
async fn ask(app: Arc<App>, verb: Verb, request: Request) -> Response {
    let call: HttpCall = match body::read(&app.bounds, request).await {
        Ok(call) => call,
        Err(problem) => return problem.into_response(),
    };
    // One snapshot of the rules for all of them.
    let limits = app.rules.limits();
    match call.batch(&app.bounds) {
        Ok(None) => {
            let end = ask::ask(&app, &limits, verb, &call).await;
            end.map_or_else(IntoResponse::into_response, |end| end.response(&limits))
        }
        Ok(Some(calls)) => {
            let answers = calls.iter().map(async |call| {
                let end = ask::ask(&app, &limits, verb, call).await;
                end.map_or_else(|problem| problem.in_batch(), HttpReply::json)
            });
            answer::batch(join_all(answers).await)
        }
        Err(problem) => problem.into_response(),
    }
}
