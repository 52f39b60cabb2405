//! The service: [`LimitInFlight`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::UPGRADE;
use http::request::Parts;
use http::{Method, Request, Response};
use tower_service::Service;

use crate::guard::inner::{for_later, inner_accessors};
use crate::in_flight::future::{Entry, Next};
use crate::in_flight::layer::Shared;
use crate::in_flight::{HeldPermit, InFlightFuture, InFlightProblem, PermitBody};
use crate::respond::refusal::Respond;

/// A service that has so many requests of a key under way at once; made by [`InFlightLayer`](crate::in_flight::InFlightLayer).
///
/// It is ready when the inner service is. Waiting for a permit happens in the response future, which gives up that readiness
/// for as long as it waits.
pub struct LimitInFlight<S, R = InFlightProblem> {
    inner: S,
    shared: Arc<Shared<R>>,
}

impl<S, R> LimitInFlight<S, R> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<R>>) -> Self {
        Self { inner, shared }
    }

    inner_accessors!("The service behind the limit.");
}

impl<S: Clone, R> Clone for LimitInFlight<S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for LimitInFlight<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, shared } = self;
        f.debug_struct("LimitInFlight").field("inner", inner).field("in_flight", &shared.in_flight).finish()
    }
}

impl<S, R, B, ResB> Service<Request<B>> for LimitInFlight<S, R>
where
    S: Service<Request<B>, Response = Response<ResB>> + Clone,
    R: Respond<ResB>,
{
    type Response = Response<PermitBody<ResB>>;
    type Error = S::Error;
    type Future = InFlightFuture<S, B, R, ResB>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match Entry::begin(&self.shared, &parts) {
            Next::Go(permit) => {
                let request = Request::from_parts(carry(parts, permit.as_ref()), body);
                InFlightFuture::calling(self.inner.call(request), permit, Arc::clone(&self.shared))
            }
            Next::Refuse(response) => InFlightFuture::refused(response),
            Next::Wait(entry) => {
                let service = for_later(&mut self.inner);
                InFlightFuture::waiting(entry, parts, body, service, Arc::clone(&self.shared))
            }
        }
    }
}

/// A request that asks for an upgrade carries its permit, for whoever will have the connection.
pub(crate) fn carry(mut parts: Parts, permit: Option<&HeldPermit>) -> Parts {
    let upgrades = parts.method == Method::CONNECT || parts.headers.contains_key(UPGRADE);
    if let Some(permit) = permit.filter(|_| upgrades) {
        permit.clone().enter(&mut parts.extensions);
    }
    parts
}
