//! gRPC: real clients and servers of tonic, and what goes over the wire.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use sluicegate_core::{OnOutage, Policy};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::key::{HeaderKey, OnMissingKey};
use sluicegate_tower::respond::{GrpcOr, GrpcStatus, ProblemJson};
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::net::TcpListener;
use tonic::Code;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::support::{Body, broken, limiter};

/// A health service behind a layer, on a socket, and a client of it.
async fn connect<L, B>(layer: L) -> HealthClient<Channel>
where
    L: Layer<Routes> + Clone + Send + 'static,
    L::Service: Service<Request<tonic::body::Body>, Response = Response<B>> + Clone + Send + 'static,
    <L::Service as Service<Request<tonic::body::Body>>>::Future: Send,
    <L::Service as Service<Request<tonic::body::Body>>>::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    HealthClient::new(channel)
}

fn by_client(limit: Limit) -> Limit {
    limit.key(HeaderKey::new("x-client").unwrap())
}

fn check(client: &'static str) -> tonic::Request<HealthCheckRequest> {
    let mut request = tonic::Request::new(HealthCheckRequest::default());
    request.metadata_mut().insert("x-client", client.parse().unwrap());
    request
}

#[tokio::test]
async fn a_client_is_told_when_to_come_back() {
    let limit = by_client(Limit::new(limiter(Policy::fixed_window("calls", "1/h"))));
    let layer = RateLimitLayer::builder(limit).responder(GrpcStatus::new());
    let layer = layer.spread_retry_after_by(|| Duration::from_secs(7_200)).build().unwrap();
    let mut client = connect(layer).await;
    client.check(check("ada")).await.unwrap();
    let refused = client.check(check("ada")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let wait = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(wait > Duration::from_secs(7_260) && wait <= Duration::from_secs(10_800), "{wait:?}");
    assert!(refused.message().starts_with("too many requests: try again in "), "{refused}");
    let quotas = refused.get_details_quota_failure().unwrap().violations;
    assert_eq!(quotas.iter().map(|quota| &*quota.subject).collect::<Vec<_>>(), ["calls"]);
    let pushback = refused.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap();
    assert_eq!(pushback, wait.as_millis().to_string(), "one truth");
    let seconds: u64 = refused.metadata().get("retry-after").unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(seconds, wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
    client.check(check("bob")).await.unwrap();
}

#[tokio::test]
async fn a_stream_is_decided_when_it_begins() {
    let limit = by_client(Limit::new(limiter(Policy::fixed_window("calls", "1/h"))));
    let layer = RateLimitLayer::builder(limit).responder(GrpcStatus::new()).build().unwrap();
    let mut client = connect(layer).await;
    let mut stream = client.watch(check("ada")).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    let refused = client.watch(check("ada")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

/// The second stream waits for the only place; it gets it when the client drops the first.
#[tokio::test]
async fn a_stream_is_in_flight_until_its_client_drops_it() {
    let streams = InFlight::new("streams", 1).unwrap();
    let layer = InFlightLayer::new(streams.clone()).key(HeaderKey::new("x-client").unwrap());
    let at_once = layer.clone().responder(GrpcStatus::new());
    let in_time = layer.responder(GrpcStatus::new()).wait_up_to(Duration::from_secs(3_600));
    let (mut impatient, mut patient) = (connect(at_once).await, connect(in_time).await);
    let mut first = impatient.watch(check("ada")).await.unwrap().into_inner();
    assert!(first.message().await.unwrap().is_some());
    let refused = impatient.watch(check("ada")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.get_details_quota_failure().unwrap().violations[0].subject, "streams");
    let waiting = tokio::spawn(async move { patient.watch(check("ada")).await });
    drop(first);
    let mut second = waiting.await.unwrap().unwrap().into_inner();
    assert!(second.message().await.unwrap().is_some());
    assert_eq!(streams.in_use("ada"), 1);
}

#[tokio::test]
async fn an_outage_is_unavailable() {
    let limit = by_client(Limit::new(broken(Policy::gcra("calls", "1/h").on_outage(OnOutage::Deny), false)));
    let layer = RateLimitLayer::builder(limit).responder(GrpcStatus::new());
    let refused = connect(layer.build().unwrap()).await.check(check("ada")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.message(), "the rate limiter gave no answer");
    assert_eq!(refused.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
    assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
}

#[tokio::test]
async fn what_can_never_pass_is_not_to_be_tried_again() {
    let limiter = limiter(Policy::gcra("calls", "5/h"));
    let limit = by_client(Limit::new(limiter.clone())).cost(5).unwrap();
    // The limit was made smaller while the server ran.
    let smaller = Policy::gcra("calls", "4/h").build().unwrap();
    limiter.replace(smaller, sluicegate_core::limiter::Inherit::Reset).unwrap();
    let layer = RateLimitLayer::builder(limit).responder(GrpcStatus::new()).build().unwrap();
    let refused = connect(layer).await.check(check("ada")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.get_details_retry_info().is_none());
    assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
}

#[tokio::test]
async fn a_missing_key_has_the_code_of_its_status() {
    for (status, code) in [
        (StatusCode::UNAUTHORIZED, Code::Unauthenticated),
        (StatusCode::FORBIDDEN, Code::PermissionDenied),
        (StatusCode::BAD_REQUEST, Code::InvalidArgument),
        (StatusCode::NOT_FOUND, Code::NotFound),
        (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
        (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
        (StatusCode::CONFLICT, Code::FailedPrecondition),
        (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
    ] {
        let limit = by_client(Limit::new(limiter(Policy::gcra("calls", "9/h"))));
        let limit = limit.on_missing_key(OnMissingKey::Reject(status));
        let layer = RateLimitLayer::builder(limit).responder(GrpcStatus::new()).build().unwrap();
        let refused = connect(layer).await.check(HealthCheckRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{status}");
        assert!(!refused.message().is_empty() && refused.details().is_empty());
    }
}

/// The response to the second request of a content type behind a limit of one.
async fn refused(content_type: &'static str) -> Response<Body> {
    let limit = by_client(Limit::new(limiter(Policy::gcra("calls", "1/min"))));
    let layer = RateLimitLayer::builder(limit).responder(GrpcOr::new(ProblemJson::new())).build().unwrap();
    let service = layer
        .layer(service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Body::default())) }));
    let request = || {
        let request = Request::post("/pkg.Service/Method").header("x-client", "ada");
        request.header("content-type", content_type).body(()).unwrap()
    };
    service.clone().oneshot(request()).await.unwrap();
    service.oneshot(request()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn grpc_is_answered_in_kind() {
    for (asked, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("Application/GRPC;charset=utf-8", "application/grpc"),
        ("application/grpc-web", "application/grpc-web+proto"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text+proto"),
        ("application/grpc-web-text+proto", "application/grpc-web-text+proto"),
    ] {
        let response = refused(asked).await;
        assert_eq!(response.status(), StatusCode::OK, "{asked}");
        for (name, value) in [
            ("content-type", answered),
            ("grpc-status", "8"),
            ("grpc-message", "too%20many%20requests:%20try%20again%20in%2060%20s"),
            ("grpc-retry-pushback-ms", "60000"),
            ("retry-after", "60"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(response.headers()[name], value, "{asked}");
        }
        assert!(response.headers().contains_key("grpc-status-details-bin"));
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn what_only_looks_like_grpc_is_not() {
    for asked in [
        "application/grpcfoo",
        "application/grpc-webfoo",
        "application/grpc-",
        "application/json",
        "text/plain; application/grpc",
        "",
    ] {
        let response = refused(asked).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{asked}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert!(!response.headers().contains_key("grpc-status"));
    }
}
