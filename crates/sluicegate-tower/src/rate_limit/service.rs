//! The service: [`RateLimit`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::guard::inner::{for_later, inner_accessors};
use crate::key::RequestView;
use crate::rate_limit::future::{Passed, ResponseFuture};
use crate::rate_limit::gate::{Gate, Next};
use crate::rate_limit::shared::Shared;
use crate::respond::problem::ProblemJson;
use crate::respond::refusal::Respond;

/// A service behind limits; made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Works for every request and response body. A denial is a response, never an error, and the inner service is then not
/// called. It is ready when the inner service is. Waiting for a turn happens in the response future, which gives up that
/// readiness for as long as it waits.
pub struct RateLimit<S, R = ProblemJson> {
    inner: S,
    shared: Arc<Shared<R>>,
}

impl<S, R> RateLimit<S, R> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<R>>) -> Self {
        Self { inner, shared }
    }

    inner_accessors!("The service behind the limits.");
}

impl<S: fmt::Debug, R> fmt::Debug for RateLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).field("limits", &self.shared).finish()
    }
}

impl<S: Clone, R> Clone for RateLimit<S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S, R, B, ResB> Service<Request<B>> for RateLimit<S, R>
where
    S: Service<Request<B>, Response = Response<ResB>> + Clone,
    R: Respond<ResB>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let mut gate = Gate::default();
        match gate.enter(&self.shared, RequestView::from(&request)) {
            // Decided at once, so the value that was polled ready is called here, and nothing is cloned.
            Next::Go(marked) => {
                let passed = Passed::enter(marked, &mut request, &self.shared);
                ResponseFuture::calling(self.inner.call(request), passed)
            }
            Next::Refuse(response) => ResponseFuture::refused(response),
            Next::Wait(step) => {
                let service = for_later(&mut self.inner);
                ResponseFuture::waiting(step, gate, request, service, Arc::clone(&self.shared))
            }
        }
    }
}
