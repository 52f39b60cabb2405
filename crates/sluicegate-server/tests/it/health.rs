//! The gRPC health service.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{RULES, Served};

#[tokio::test]
async fn health_needs_no_secret_and_tells_of_the_end() {
    let mut served = Served::with(RULES, |builder| builder.secret("0123456789abcdef")).await;
    let endpoint = tonic::transport::Endpoint::new(format!("http://{}", served.grpc)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let of = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let mut watched = client.watch(of("")).await.unwrap().into_inner();
    let mut first = watched.message().await.unwrap().unwrap().status();
    if first == ServingStatus::NotServing {
        first = watched.message().await.unwrap().unwrap().status();
    }
    assert_eq!(first, ServingStatus::Serving);
    for service in ["", SERVICE_NAME] {
        assert_eq!(client.check(of(service)).await.unwrap().into_inner().status(), ServingStatus::Serving);
    }
    assert_eq!(client.check(of("other")).await.unwrap_err().code(), Code::NotFound);
    let mut unknown = client.watch(of("other")).await.unwrap().into_inner();
    assert_eq!(unknown.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);

    served.stop();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(watched.message().await.unwrap().is_none(), "so that the connection can close");
    assert!(unknown.message().await.unwrap().is_none());
    assert_eq!(served.ended().await, 0, "no connection was cut off");
}
