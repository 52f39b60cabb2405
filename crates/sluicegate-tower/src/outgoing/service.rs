//! The service: [`Outgoing`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use crate::call::CallError;
use crate::guard::inner::{for_later, inner_accessors};
use crate::outgoing::future::{Departure, Next};
use crate::outgoing::layer::Shared;
use crate::outgoing::{HttpWire, OutgoingFuture, Wire};

/// A client that waits; made by [`OutgoingLayer`](crate::outgoing::OutgoingLayer).
///
/// It is ready when the client is. Waiting happens in the future of the call, which gives up that readiness for as long as
/// it waits.
pub struct Outgoing<S, W = HttpWire> {
    inner: S,
    shared: Arc<Shared<W>>,
}

impl<S, W> Outgoing<S, W> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<W>>) -> Self {
        Self { inner, shared }
    }

    inner_accessors!("The client.");
}

impl<S: Clone, W> Clone for Outgoing<S, W> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, W> fmt::Debug for Outgoing<S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("inner", &self.inner).field("settings", &self.shared).finish()
    }
}

impl<S, W, Req> Service<Req> for Outgoing<S, W>
where
    S: Service<Req> + Clone,
    W: Wire<Req, S::Response>,
{
    type Response = S::Response;
    type Error = CallError<S::Error>;
    type Future = OutgoingFuture<S, Req, W>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(CallError::Inner)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let mut departure = Departure::new(self.shared.wire.key(&request), self.shared.longest);
        match departure.begin(&self.shared) {
            // Nothing to wait for, so the value that was polled ready is called here, and nothing is cloned.
            Next::Go(_) => OutgoingFuture::calling(self.inner.call(request), departure.key, &self.shared),
            Next::Fail(failure) => OutgoingFuture::failed(failure, &self.shared),
            Next::Wait => {
                let client = for_later(&mut self.inner);
                OutgoingFuture::waiting(departure, client, request, &self.shared)
            }
        }
    }
}
