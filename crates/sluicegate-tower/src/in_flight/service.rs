//! The service: [`LimitInFlight`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::UPGRADE;
use http::{Method, Request, Response};
use tower_service::Service;

use crate::guard::inner::{for_later, inner_accessors};
use crate::in_flight::future::{Entry, Next};
use crate::in_flight::layer::Shared;
use crate::in_flight::{HeldPermit, InFlightFuture, InFlightProblem, PermitBody};
use crate::key::RequestView;
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match Entry::begin(&self.shared, RequestView::from(&request)) {
            Next::Go(permit) => {
                carry(&mut request, permit.as_ref());
                InFlightFuture::calling(self.inner.call(request), permit, Arc::clone(&self.shared))
            }
            Next::Refuse(response) => InFlightFuture::refused(response),
            Next::Wait(entry) => {
                let service = for_later(&mut self.inner);
                InFlightFuture::waiting(entry, request, service, Arc::clone(&self.shared))
            }
        }
    }
}

/// A request that asks for an upgrade carries its permit, for whoever will have the connection.
pub(crate) fn carry<B>(request: &mut Request<B>, permit: Option<&HeldPermit>) {
    let upgrades = request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE);
    if let Some(permit) = permit.filter(|_| upgrades) {
        permit.clone().enter(request.extensions_mut());
    }
}
