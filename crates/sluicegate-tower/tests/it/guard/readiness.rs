//! Tower's contract, for every layer here: only the value that was polled ready is called.

use std::fmt::Debug;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use sluicegate_core::Policy;
use sluicegate_core::in_flight::InFlight;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_tower::call::CallLimitLayer;
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::key::key_fn;
use sluicegate_tower::outgoing::OutgoingLayer;
use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt};

use crate::support::strict::Strict;
use crate::support::{Body, limiter, slow};

fn request() -> Request<()> {
    Request::get("https://api.example.org/").body(()).unwrap()
}

/// Sends requests one after another, from clones made before and after the poll, and many at once. All must pass.
async fn passes_in_every_order<S>(mut service: S)
where
    S: Service<Request<()>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Debug + Send,
{
    for _ in 0..3 {
        service.ready().await.unwrap().call(request()).await.unwrap();
    }
    service.ready().await.unwrap();
    let mut clone = service.clone();
    let first = service.call(request());
    clone.ready().await.unwrap();
    // The response of the first is not asked for until the second has been called.
    let second = clone.call(request());
    let (first, second) = tokio::join!(first, second);
    drop((first.unwrap(), second.unwrap()));
    let mut many = JoinSet::new();
    for _ in 0..8 {
        let one = service.clone().oneshot(request());
        many.spawn(async { one.await.is_ok() });
    }
    assert_eq!(many.join_all().await, [true; 8]);
}

fn waits() -> PolicyBuilder {
    Policy::gcra("waits", "2/s burst 1").wait_up_to(Duration::from_secs(60))
}

fn host(_: &Request<()>) -> &'static str {
    "host"
}

#[tokio::test(start_paused = true)]
async fn a_limited_call_is_made_only_when_the_service_is_ready() {
    for limiter in [limiter(Policy::gcra("free", "100/s")), limiter(waits()), slow(waits())] {
        passes_in_every_order(CallLimitLayer::new(limiter, host).layer(Strict::default())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_out_only_when_the_client_is_ready() {
    passes_in_every_order(OutgoingLayer::new().layer(Strict::default())).await;
    for limiter in [limiter(Policy::gcra("free", "100/s")), limiter(waits()), slow(waits())] {
        passes_in_every_order(OutgoingLayer::new().limit(limiter).layer(Strict::default())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_flight_is_one_that_the_service_was_ready_for() {
    let key = || key_fn(|request| Some(request.uri.path().to_owned()));
    let free = InFlightLayer::new(InFlight::new("free", 100).unwrap()).key(key());
    passes_in_every_order(free.layer(Strict::default())).await;
    let waits = InFlightLayer::new(InFlight::new("waits", 2).unwrap()).key(key());
    passes_in_every_order(waits.wait_up_to(Duration::from_secs(60)).layer(Strict::default())).await;
}

/// A service behind the layer is ready when the one inside is, and fails to be with its error.
macro_rules! forwards_readiness {
    ($layer:expr) => {{
        let (mut service, mut handle) =
            tower_test::mock::spawn_layer::<Request<()>, http::Response<Body>, _>($layer);
        handle.allow(0);
        assert!(service.poll_ready().is_pending());
        handle.allow(1);
        assert!(service.poll_ready().is_ready());
        handle.send_error("the inner service is gone");
        let Poll::Ready(Err(error)) = service.poll_ready() else { panic!("the error does not come through") };
        assert_eq!(error.to_string(), "the inner service is gone");
    }};
}

#[tokio::test]
async fn each_is_ready_when_the_inner_service_is() {
    let limiter = limiter(Policy::gcra("api", "1/s"));
    forwards_readiness!(tower::layer::layer_fn(|inner| {
        let layer = CallLimitLayer::new(limiter.clone(), host);
        tower::util::MapErr::new(layer.layer(inner), |error: sluicegate_tower::call::CallError<_>| {
            error.into_inner().unwrap()
        })
    }));
    forwards_readiness!(tower::layer::layer_fn(|inner| {
        tower::util::MapErr::new(
            OutgoingLayer::new().layer(inner),
            |error: sluicegate_tower::call::CallError<_>| error.into_inner().unwrap(),
        )
    }));
    let in_flight = InFlightLayer::new(InFlight::new("api", 1).unwrap());
    forwards_readiness!(tower::layer::layer_fn(move |inner| {
        // The handle's type knows the mock's own responses only.
        tower::util::MapResponse::new(in_flight.layer(inner), |_| http::Response::new(Body::default()))
    }));
}
