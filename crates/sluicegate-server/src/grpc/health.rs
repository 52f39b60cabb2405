//! The gRPC health service, which reports the same state as `/readyz`.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME;
use futures_util::stream;
use futures_util::stream::{BoxStream, StreamExt};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::app::Ready;

struct HealthService(Ready);

/// The service, for the server as a whole and for the rate limit service.
pub(super) fn service(ready: &Ready) -> HealthServer<impl Health> {
    HealthServer::new(HealthService(ready.clone()))
}

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match &*request.into_inner().service {
            "" | SERVICE_NAME => Ok(Response::new(self.0.status())),
            _ => Err(Status::not_found("this server has no such service")),
        }
    }

    /// Sends the status at once, and then each change of it.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let is_known = matches!(&*request.into_inner().service, "" | SERVICE_NAME);
        let statuses = stream::unfold((self.0.clone(), None), move |(ready, told)| async move {
            loop {
                let status = match is_known {
                    true => ready.status(),
                    false => HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() },
                };
                if told != Some(status) {
                    return Some((Ok(status), (ready, Some(status))));
                }
                if ready.is_ending() {
                    return None;
                }
                ready.changed().await;
            }
        });
        Ok(Response::new(statuses.boxed()))
    }
}

impl Ready {
    fn status(&self) -> HealthCheckResponse {
        let status = match self.why_not() {
            None => ServingStatus::Serving,
            Some(_) => ServingStatus::NotServing,
        };
        HealthCheckResponse { status: status.into() }
    }
}
