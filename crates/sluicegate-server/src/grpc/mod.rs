//! Envoy's rate limit service, version 3, and gRPC health.
//!
//! Envoy takes every status of gRPC for an outage, in which it may let requests pass. So a call that cannot be read or decided is answered with
//! `OVER_LIMIT`: no client can write something that makes an outage of it.

mod answer;
mod call;
mod decide;
mod health;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use tonic::Status;
use tonic::server::NamedService;

use crate::app::{App, InProgress, refuse_stranger};
use crate::connection::CallerMark;
use crate::grpc::call::EnvoyCall;

/// The only method.
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The trailer with the status of a call.
const STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The bytes in front of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Everything that is served over gRPC.
pub(crate) fn router(app: &Arc<App>) -> Router {
    // Probes are answered under any load.
    let health = health::service(&app.ready);
    Router::new()
        .route_service(&path_of(&health), health)
        .route(METHOD, any(should_rate_limit).with_state(Arc::clone(app)))
        .fallback(|| async { refuse(Status::unimplemented("this server has no such method")) })
}

fn path_of<S: NamedService>(_: &S) -> String {
    format!("/{}/{{*method}}", S::NAME)
}

/// Requires the secret, and bounds the number of calls and the time of each.
async fn should_rate_limit(State(app): State<Arc<App>>, request: Request) -> Response {
    if !app.access.lets(request.headers()) {
        refuse_stranger(request.extensions().get());
        return refuse(Status::unauthenticated(
            "this server requires its secret: send it in the metadata, as authorization: Bearer",
        ));
    }
    CallerMark::let_in(request.extensions());
    let Ok(in_progress) = Arc::clone(&app.in_progress).try_acquire_owned() else {
        let most = app.bounds.requests;
        return response(&answer::over_limit(&format!(
            "{most} requests are in progress, the most that this server accepts"
        )));
    };
    let longest = app.bounds.request;
    let mut response = match tokio::time::timeout(longest, decide(&app, request.into_body())).await {
        Ok(Ok(answer)) => response(&answer),
        Ok(Err(status)) => refuse(status),
        Err(_) => {
            let text = format!("this took longer than {longest:?}, the time for a request");
            refuse(Status::deadline_exceeded(text))
        }
    };
    response.extensions_mut().insert(InProgress::new(in_progress));
    response
}

/// Decides the call in this body. Only a store that is away makes it an error.
async fn decide(app: &App, body: Body) -> Result<RateLimitResponse, Status> {
    let call = match EnvoyCall::read(body, &app.bounds).await {
        Ok(call) => call,
        Err(problem) => return Ok(answer::over_limit(&problem)),
    };
    // One snapshot of the rules for all descriptors.
    let limits = app.rules.limits();
    match decide::decide(app, &limits, call).await {
        Ok(answers) => Ok(answers.response(&limits)),
        Err(error) if error.may_succeed_later() => Err(Status::unavailable(error.to_string())),
        Err(error) => Ok(answer::over_limit(&error.to_string())),
    }
}

/// A message as gRPC frames it.
fn response(answer: &RateLimitResponse) -> Response {
    let length = answer.encoded_len();
    let mut frame = Vec::with_capacity(PREFIX + length);
    frame.push(0);
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    answer.encode(&mut frame).expect("a vector has room");
    let trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from(frame)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn refuse(status: Status) -> Response {
    status.into_http::<Body>().into_response()
}
