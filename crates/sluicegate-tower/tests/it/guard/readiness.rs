//! Tower's contract, for every layer here: only the value that was polled ready is called.

use std::task::Poll;

use http::Request;
use sluicegate_core::Policy;
use sluicegate_in_flight::InFlight;
use sluicegate_tower::call::{CallError, CallLimitLayer};
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::outgoing::OutgoingLayer;
use sluicegate_tower::{Limit, RateLimitLayer};
use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt};

use crate::guard::gates::{KINDS, Passed, by_host, gate, host, to};
use crate::support::strict::Strict;
use crate::support::{Body, limiter, slow};

/// Sends requests one after another, from clones made before and after the poll, and many at once. All must pass.
pub(crate) async fn passes_in_every_order(mut service: Passed, request: impl Fn() -> Request<()>) {
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
    first.and(second).unwrap();
    let mut many = JoinSet::new();
    for _ in 0..8 {
        let one = service.clone().oneshot(request());
        many.spawn(async { one.await.is_ok() });
    }
    assert_eq!(many.join_all().await, [true; 8]);
}

#[tokio::test(start_paused = true)]
async fn behind_any_layer_the_service_is_called_only_when_ready() {
    for kind in KINDS {
        for limiter in [limiter, slow] {
            for host in ["a", "b"] {
                passes_in_every_order(gate(kind, limiter, Strict::default()).await.service, || to(host))
                    .await;
            }
        }
    }
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
        tower::util::MapErr::new(layer.layer(inner), |error: CallError<_>| error.into_inner().unwrap())
    }));
    forwards_readiness!(tower::layer::layer_fn(|inner| {
        let layer = OutgoingLayer::new();
        tower::util::MapErr::new(layer.layer(inner), |error: CallError<_>| error.into_inner().unwrap())
    }));
    forwards_readiness!(RateLimitLayer::new(Limit::new(limiter.clone()).key(by_host())));
    let in_flight = InFlightLayer::new(InFlight::new("api", 1).unwrap());
    forwards_readiness!(tower::layer::layer_fn(move |inner| {
        // The handle's type knows the mock's own responses only.
        tower::util::MapResponse::new(in_flight.layer(inner), |_| http::Response::new(Body::default()))
    }));
}
