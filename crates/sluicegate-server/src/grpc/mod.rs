//! Envoy's rate limit service, version 3, and gRPC health.

mod answer;
mod call;
mod decide;
mod health;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http::HeaderValue;
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::app::{App, InProgress};
use crate::grpc::call::EnvoyCall;

/// The header field in which a response without a body has its status.
const STATUS: &str = "grpc-status";

/// The service, for any number of connections.
struct EnvoyService(Arc<App>);

/// Everything that is served over gRPC.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let service = RateLimitServiceServer::new(EnvoyService(Arc::clone(app)));
    let service = service.max_decoding_message_size(app.bounds.body);
    let bounded = Router::new()
        .route_service(&path_of(&service), service)
        .layer(middleware::from_fn_with_state(Arc::clone(app), guarded));
    // Probes are answered under any load.
    let health = health::service(&app.ready);
    Router::new()
        .route_service(&path_of(&health), health)
        .merge(bounded)
        .fallback(|| async { refuse(Status::unimplemented("this server has no such method")) })
}

fn path_of<S: NamedService>(_: &S) -> String {
    format!("/{}/{{*method}}", S::NAME)
}

/// Requires the secret, and bounds the number of calls and the time of each.
async fn guarded(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if !app.access.lets(request.headers()) {
        return refuse(Status::unauthenticated(
            "this server requires its secret: send it in the metadata, as authorization: Bearer",
        ));
    }
    let Ok(in_progress) = Arc::clone(&app.in_progress).try_acquire_owned() else {
        let most = app.bounds.requests;
        return refuse(Status::resource_exhausted(format!(
            "{most} requests are in progress, the most that this server accepts"
        )));
    };
    let longest = app.bounds.request;
    let Ok(mut response) = tokio::time::timeout(longest, next.run(request)).await else {
        let text = format!("this took longer than {longest:?}, the time for a request");
        return refuse(Status::deadline_exceeded(text));
    };
    // tonic reports a message that is too large with this code; nothing else here does.
    let too_large = HeaderValue::from(Code::OutOfRange as i32);
    match response.headers().get(STATUS) == Some(&too_large) {
        true => refuse(Status::resource_exhausted(format!(
            "the message has more than {} bytes, the most that this server accepts",
            app.bounds.body
        ))),
        false => {
            response.extensions_mut().insert(InProgress::new(in_progress));
            response
        }
    }
}

fn refuse(status: Status) -> Response {
    status.into_http::<axum::body::Body>().into_response()
}

#[tonic::async_trait]
impl RateLimitService for EnvoyService {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let Self(app) = self;
        let call = EnvoyCall::read(request.into_inner(), &app.bounds)?;
        // One snapshot of the rules for all descriptors.
        let limits = app.rules.limits();
        let answer = decide::decide(app, &limits, call).await?;
        Ok(tonic::Response::new(answer.response(&limits)))
    }
}
