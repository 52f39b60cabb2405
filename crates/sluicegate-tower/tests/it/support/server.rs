//! Stores in tokio's time and such that fail, and servers on a socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::{Ask, DecisionFuture, Limiters, PreparedPolicy};
use sluicegate_core::{ConfigError, MemoryStore, Policy, RateLimiter, Store, StoreError};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower::Service;

/// The time that tokio's paused clock shows.
pub(crate) struct Paused(pub(crate) Instant);

impl Clock for Paused {
    fn now_us(&self) -> u64 {
        u64::try_from((super::START + self.0.elapsed()).as_micros()).unwrap()
    }
}

/// The policy on a store of its own, whose time is tokio's.
pub(crate) fn limiter(policy: PolicyBuilder) -> RateLimiter {
    let store = MemoryStore::builder().capacity(1_000).clock(Paused(Instant::now())).build().unwrap();
    policy.on(&store).unwrap()
}

/// A store that gives no answer, now or once the task has been polled again.
pub(crate) struct Broken {
    at_once: bool,
    limiters: Limiters,
}

impl Store for Broken {
    fn limiters(&self) -> &Limiters {
        &self.limiters
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        _: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        Ok(PreparedPolicy::new(policy, Arc::new(())))
    }

    fn decide(&self, _: &[Ask<'_>]) -> DecisionFuture {
        let error = || Err(StoreError::new(StoreErrorKind::Unavailable));
        if self.at_once {
            return DecisionFuture::ready(error());
        }
        DecisionFuture::pending(async move {
            tokio::task::yield_now().await;
            error()
        })
    }
}

pub(crate) fn broken(policy: PolicyBuilder, at_once: bool) -> RateLimiter {
    policy.on(Arc::new(Broken { at_once, limiters: Limiters::default() }) as Arc<dyn Store>).unwrap()
}

/// A store in memory whose answers take another poll.
pub(crate) struct Slow(Arc<dyn Store>, Limiters);

impl Store for Slow {
    fn limiters(&self) -> &Limiters {
        &self.1
    }

    fn open(
        &self,
        policy: Arc<Policy>,
        replaces: Option<(&PreparedPolicy, Inherit)>,
    ) -> Result<PreparedPolicy, ConfigError> {
        self.0.open(policy, replaces)
    }

    fn decide(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        let verdict = self.0.decide(asks);
        DecisionFuture::pending(async move {
            tokio::task::yield_now().await;
            verdict.await
        })
    }
}

/// The policy on a store in memory whose answers take another poll, and whose time is tokio's.
pub(crate) fn slow(policy: PolicyBuilder) -> RateLimiter {
    let store = MemoryStore::builder().capacity(1_000).clock(Paused(Instant::now())).build().unwrap();
    policy.on(Arc::new(Slow((&store).into(), Limiters::default())) as Arc<dyn Store>).unwrap()
}

/// Which protocol a server speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Http1,
    /// Over a transport that takes one buffer at a time, as TLS may: hyper copies what it sends.
    Http1Copying,
    Http2,
}

/// A hyper server on a free port, without a router, that lives as long as the test.
pub(crate) async fn serve<S, B>(protocol: Protocol, service: S) -> SocketAddr
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (io, service) = (TokioIo::new(stream), TowerToHyperService::new(service.clone()));
            tokio::spawn(async move {
                // A client that goes away is no failure of the server.
                let _ = match protocol {
                    Protocol::Http1 | Protocol::Http1Copying => {
                        let mut connection = hyper::server::conn::http1::Builder::new();
                        connection.writev(matches!(protocol, Protocol::Http1));
                        connection.serve_connection(io, service).with_upgrades().await
                    }
                    Protocol::Http2 => {
                        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        connection.serve_connection(io, service).await
                    }
                };
            });
        }
    });
    address
}
