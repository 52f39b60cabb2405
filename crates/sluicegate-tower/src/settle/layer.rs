//! Limits that settle by the body of the response: [`SettlingLayer`].

use std::fmt;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;

use crate::guard::{Gate, Guarded, Next, Place, Step, sealed};
use crate::limits::{Admitted, LimitsHandle};
use crate::rate_limit::{LayerWait, RateLimitLayer};
use crate::respond::{ProblemJson, Respond};
use crate::settle::body::SettlingBody;

/// A [`RateLimitLayer`] that reads the bodies of responses as they pass, for limits that [settle](crate::Limit::settle) by them, and applies
/// their [bandwidth](crate::bandwidth) limits: made by [`RateLimitLayer::settling`].
///
/// The body type of responses is [`SettlingBody`] instead of the inner service's. A response that settles nothing passes
/// through without being read.
pub struct SettlingLayer<R = ProblemJson>(RateLimitLayer<R>);

impl<R> SettlingLayer<R> {
    /// The limits of this layer, to inspect them, to explain a request, and to swap them while the layer serves.
    pub fn limits_handle(&self) -> LimitsHandle {
        self.0.limits_handle()
    }
}

impl<R> From<RateLimitLayer<R>> for SettlingLayer<R> {
    fn from(layer: RateLimitLayer<R>) -> Self {
        Self(layer)
    }
}

impl<S, R> Layer<S> for SettlingLayer<R> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, Self(self.0.apart()))
    }
}

impl<R> sealed::Sealed for SettlingLayer<R> {}

impl<R, B, ResB, E> Gate<Request<B>, Response<ResB>, E> for SettlingLayer<R>
where
    R: Respond<ResB>,
    ResB: Body,
{
    type Response = Response<SettlingBody<ResB>>;
    type Error = E;
    type Wait = LayerWait<ResB>;
    type Pass = Admitted;

    #[inline]
    fn ready<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        Gate::<Request<B>, Response<ResB>, E>::ready(&self.0, poll)
    }

    #[inline]
    fn begin(&self, request: &Request<B>, place: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        passing(self.0.begin(request, place))
    }

    fn poll(
        &self,
        wait: &mut Self::Wait,
        request: &mut Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        self.0.poll(wait, request, place, cx).map(passing)
    }

    #[inline]
    fn enter(&self, pass: &mut Admitted, request: &mut Request<B>) {
        Gate::<Request<B>, Response<ResB>, E>::enter(&self.0, pass, request);
    }

    #[inline]
    fn after(pass: Admitted, response: Response<ResB>) -> Self::Response {
        pass.leave_settling(response)
    }

    fn failed(error: E) -> E {
        error
    }
}

/// Gives the refusal of a step a body that settles nothing.
fn passing<P, W, B, E>(
    step: Step<P, W, Result<Response<B>, E>>,
) -> Step<P, W, Result<Response<SettlingBody<B>>, E>> {
    match step {
        Step::Go(pass) => Step::Go(pass),
        Step::Wait(wait) => Step::Wait(wait),
        Step::Refuse(answer) => Step::Refuse(answer.map(|response| response.map(SettlingBody::plain))),
    }
}

impl<R> Clone for SettlingLayer<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> fmt::Debug for SettlingLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SettlingLayer").field(&self.0).finish()
    }
}
