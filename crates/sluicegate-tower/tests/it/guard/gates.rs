//! All layers behind the one guard, in a state in which the next call to `a` has to wait for a second: one harness for what
//! is the same for all of them.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Ready, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_core::key::AsKey;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_in_flight::InFlight;
use sluicegate_tower::call::CallLimitLayer;
use sluicegate_tower::in_flight::InFlightLayer;
use sluicegate_tower::key::{Extraction, RequestView, key_fn};
use sluicegate_tower::outgoing::OutgoingLayer;
use sluicegate_tower::{KeyExtractor, Limit, RateLimitLayer};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::Body;

/// Of a call behind any layer, only whether it was answered with 200.
pub(crate) type Passed = BoxCloneService<Request<()>, (), String>;

/// What a call to `a` has to wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    RequestsTurn,
    RequestsKey,
    CallsTurn,
    OutgoingTurn,
    ServersWord,
    Permit,
    PermitsKey,
}

pub(crate) const KINDS: [Kind; 7] = [
    Kind::RequestsTurn,
    Kind::RequestsKey,
    Kind::CallsTurn,
    Kind::OutgoingTurn,
    Kind::ServersWord,
    Kind::Permit,
    Kind::PermitsKey,
];

impl Kind {
    /// How long the next call waits after one that was dropped when its own wait was over.
    pub(crate) fn again(self) -> Duration {
        match self {
            // What was spent stays spent; a key is looked up for each request.
            Self::RequestsTurn | Self::CallsTurn | Self::OutgoingTurn => WAIT,
            Self::RequestsKey | Self::PermitsKey => WAIT,
            Self::ServersWord | Self::Permit => Duration::ZERO,
        }
    }
}

pub(crate) struct Gate {
    pub(crate) service: Passed,
    /// How many calls have a place in the layer's queue, if it has one.
    pub(crate) waiting: Box<dyn Fn() -> Option<usize> + Send>,
}

pub(crate) const WAIT: Duration = Duration::from_secs(1);

/// One call a second, and whoever comes too early waits.
pub(crate) fn waits() -> PolicyBuilder {
    Policy::gcra("waits", "1/s").wait_up_to(Duration::from_secs(60))
}

pub(crate) fn to(host: &str) -> Request<()> {
    Request::get(format!("https://{host}/")).body(()).unwrap()
}

pub(crate) fn host(request: &Request<()>) -> String {
    request.uri().host().unwrap_or_default().to_owned()
}

pub(crate) fn by_host() -> impl KeyExtractor {
    key_fn(|request: RequestView<'_>| Some(request.uri.host()?.to_owned()))
}

/// The host as the key, after a second for `a`.
struct Late;

impl KeyExtractor for Late {
    fn extract(&self, request: RequestView<'_>) -> Extraction {
        let host = request.uri.host().unwrap_or_default().to_owned();
        Extraction::pending(async move {
            if host == "a" {
                tokio::time::sleep(WAIT).await;
            }
            Ok(host.into())
        })
    }
}

/// A layer around `inner`, and a store that answers as that of `limiter`.
pub(crate) async fn gate<S>(kind: Kind, limiter: fn(PolicyBuilder) -> RateLimiter, inner: S) -> Gate
where
    S: Service<Request<()>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Display + Send,
    S::Future: Send,
{
    let free = || Policy::gcra("free", "100/s");
    let (service, waiting): (_, Box<dyn Fn() -> Option<usize> + Send>) = match kind {
        Kind::RequestsTurn | Kind::RequestsKey => {
            let layer = RateLimitLayer::new(match kind {
                Kind::RequestsTurn => Limit::new(taken(limiter(waits()), "a").await).key(by_host()),
                _ => Limit::new(limiter(free())).key(Late),
            });
            (passed(layer.layer(inner)), Box::new(move || Some(layer.waiting())))
        }
        Kind::CallsTurn => {
            let layer = CallLimitLayer::new(taken(limiter(waits()), "a").await, host);
            (passed(layer.layer(inner)), Box::new(move || Some(layer.waiting())))
        }
        Kind::OutgoingTurn => {
            let layer = OutgoingLayer::new().limit(taken(limiter(waits()), ("a", 443)).await);
            (passed(layer.layer(inner)), Box::new(move || Some(layer.waiting())))
        }
        Kind::ServersWord => {
            let layer = OutgoingLayer::new();
            layer.layer(service_fn(full)).oneshot(to("a")).await.unwrap();
            (passed(layer.layer(inner)), Box::new(move || Some(layer.waiting())))
        }
        Kind::Permit => {
            let one = InFlight::new("one", 1).unwrap();
            let held = one.try_acquire("a").unwrap();
            tokio::spawn(async move {
                tokio::time::sleep(WAIT).await;
                drop(held);
            });
            let layer = InFlightLayer::new(one).key(by_host()).wait_up_to(Duration::from_secs(60));
            (passed(layer.layer(inner)), Box::new(|| None))
        }
        Kind::PermitsKey => {
            let layer = InFlightLayer::new(InFlight::new("many", 100).unwrap()).key(Late);
            (passed(layer.layer(inner)), Box::new(|| None))
        }
    };
    Gate { service, waiting }
}

/// The limiter, whose bucket for this key is empty now.
async fn taken(limiter: RateLimiter, key: impl AsKey) -> RateLimiter {
    assert!(limiter.check(key).await.unwrap().is_allowed());
    limiter
}

/// A server that is full for a second.
fn full(_: Request<()>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::builder().status(429).header("retry-after", "1").body(Body::default()).unwrap()))
}

pub(crate) fn passed<S, B>(service: S) -> Passed
where
    S: Service<Request<()>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Display,
    S::Future: Send,
    B: Send + 'static,
{
    let only_200 = |result: Result<Response<B>, String>| match result?.status() {
        StatusCode::OK => Ok(()),
        status => Err(status.to_string()),
    };
    service.map_err(|error| error.to_string()).map_result(only_200).boxed_clone()
}
