//! What the layer is measured on: a bare service and an axum router, requests from 10,000 peers, and the same limits
//! by us and by `tower_governor`.
#![allow(dead_code, reason = "each bench is a crate of its own and uses a part of this")]

use std::convert::Infallible;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::get;
use governor::clock::QuantaInstant;
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use http::StatusCode;
use sluicegate::clock::Clock;
use sluicegate::policy::PolicyBuilder;
use sluicegate::rate_limit::RateLimitLayerBuilder;
use sluicegate::store::Store;
use sluicegate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tower::{Service, ServiceExt, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor;

const PEERS: u32 = 10_000;

/// Units a second, and the burst: more than a peer spends, and numbers as usual headers show them.
const BURST: u32 = 1_000;

const HOUR: Duration = Duration::from_secs(3_600);

/// governor's clock under our trait: the same counter, scaled in the same way.
struct QuantaClock(quanta::Clock);

impl Clock for QuantaClock {
    #[inline]
    fn now_us(&self) -> u64 {
        self.0.delta_as_nanos(0, self.0.raw()) / 1_000
    }
}

/// A limit by peer address, on the default clock, that lets every request pass.
pub(crate) fn generous() -> RateLimitLayerBuilder {
    generous_on(MemoryStore::new())
}

/// The same, on this store.
pub(crate) fn generous_on(store: impl Into<Arc<dyn Store>>) -> RateLimitLayerBuilder {
    layer(generous_policy(), store)
}

/// The same, on a clock that costs as much as governor's.
pub(crate) fn generous_with_cheap_clock() -> RateLimitLayerBuilder {
    let store = MemoryStore::builder().clock(QuantaClock(quanta::Clock::new())).build();
    generous_on(store.expect("the capacity is possible"))
}

/// A limit that one peer does not exhaust, however fast its requests come over sockets.
pub(crate) fn roomy() -> RateLimitLayerBuilder {
    layer(Policy::gcra("roomy", Quota::per_second(1_000_000).burst(u64::from(BURST))), MemoryStore::new())
}

/// A limit that refuses every request of a peer but the first.
pub(crate) fn strict() -> RateLimitLayerBuilder {
    strict_on(MemoryStore::new())
}

/// The same, on this store.
pub(crate) fn strict_on(store: impl Into<Arc<dyn Store>>) -> RateLimitLayerBuilder {
    layer(strict_policy(), store)
}

/// The policy of that limit.
pub(crate) fn strict_policy() -> PolicyBuilder {
    Policy::gcra("strict", "1/h")
}

/// The policy of the first of these limits.
pub(crate) fn generous_policy() -> PolicyBuilder {
    Policy::gcra("generous", Quota::per_second(u64::from(BURST)))
}

pub(crate) fn layer(policy: PolicyBuilder, store: impl Into<Arc<dyn Store>>) -> RateLimitLayerBuilder {
    RateLimitLayer::builder(policy.on(store).expect("the policy is possible"))
}

type Governor<M> = GovernorLayer<PeerIpKeyExtractor, M, Body>;

/// `tower_governor`, letting every request pass, without headers.
pub(crate) fn governor() -> Governor<NoOpMiddleware<QuantaInstant>> {
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_millisecond(1).burst_size(BURST).finish();
    GovernorLayer::new(config.expect("the quota is possible"))
}

/// The same, with all headers that it has.
pub(crate) fn governor_with_headers() -> Governor<StateInformationMiddleware> {
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_millisecond(1).burst_size(BURST).use_headers().finish();
    GovernorLayer::new(config.expect("the quota is possible"))
}

/// The same, which one peer does not exhaust over sockets.
pub(crate) fn roomy_governor() -> Governor<StateInformationMiddleware> {
    let mut config = GovernorConfigBuilder::default();
    let config = config.period(Duration::from_micros(1)).burst_size(BURST).use_headers().finish();
    GovernorLayer::new(config.expect("the quota is possible"))
}

/// The same, refusing every request of a peer but the first.
pub(crate) fn strict_governor() -> Governor<StateInformationMiddleware> {
    let mut config = GovernorConfigBuilder::default();
    let config = config.period(HOUR).burst_size(1).use_headers().finish();
    GovernorLayer::new(config.expect("the quota is possible"))
}

/// A service without a framework.
pub(crate) fn bare()
-> impl Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static {
    service_fn(async |_: Request| Ok(Response::new(Body::from("hello"))))
}

/// A router with one route.
pub(crate) fn router() -> Router {
    Router::new().route("/hello", get(async || "hello"))
}

/// A side of a comparison that sends requests of one peer after another, which carry the peer's address as
/// `extension`. Building the request is part of the work: otherwise requests would have to be kept ready in memory.
///
/// Every peer has sent its first request when this returns, and has been answered with `expected` after that.
pub(crate) fn side<E, B>(
    extension: fn(SocketAddr) -> E,
    expected: StatusCode,
    send: impl FnMut(Request) -> Response<B>,
) -> impl FnMut(u64)
where
    E: Clone + Send + Sync + 'static,
{
    side_of(PEERS, extension, expected, send)
}

/// The same, of so many peers.
pub(crate) fn side_of<E, B>(
    peers: u32,
    extension: fn(SocketAddr) -> E,
    expected: StatusCode,
    mut send: impl FnMut(Request) -> Response<B>,
) -> impl FnMut(u64)
where
    E: Clone + Send + Sync + 'static,
{
    let peers = addresses(peers);
    let mut send = move |peer| {
        let request = Request::builder().uri("/hello").extension(extension(peer)).body(Body::empty());
        send(request.expect("the request is valid"))
    };
    for peer in &peers {
        send(*peer);
        assert_eq!(send(*peer).status(), expected);
    }
    let mut at = 0;
    move |times| {
        for _ in 0..times {
            black_box(send(peers[at]));
            at = if at + 1 == peers.len() { 0 } else { at + 1 };
        }
    }
}

/// Sends to a service.
pub(crate) fn calling<B>(
    mut service: impl Service<Request, Response = Response<B>, Error = Infallible>,
) -> impl FnMut(Request) -> Response<B> {
    move |request| now(service.call(request))
}

/// Sends to a clone of a router, as a server does for each of its connections.
pub(crate) fn routing(app: Router) -> impl FnMut(Request) -> Response {
    // As `axum::serve` has it done: without this, a router makes its services anew for each request.
    let app: Router = app.with_state(());
    move |request| now(app.clone().oneshot(request))
}

/// Nothing here ever waits, so no runtime is needed, and none is measured.
fn now<T>(future: impl Future<Output = Result<T, Infallible>>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => panic!("a service waits"),
    }
}

/// Addresses that share no pattern with a hash function.
fn addresses(count: u32) -> Vec<SocketAddr> {
    let spread = |index: u32| Ipv4Addr::from(index.wrapping_mul(0x9e37_79b1) | 0x0100_0000);
    (0..count).map(|index| SocketAddr::from((spread(index), 40_000))).collect()
}
