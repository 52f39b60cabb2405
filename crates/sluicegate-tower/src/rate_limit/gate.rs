//! How a request goes through the layer's limits: the layer as a [`Gate`].

use std::task::{Context, Poll};

use http::{Request, Response};

use crate::admission::admitted::Admitted;
use crate::admission::way::{End, Waiting};
use crate::guard::{Gate, Next, Place, Step, sealed};
use crate::rate_limit::layer::RateLimitLayer;
use crate::respond::refusal::Respond;

impl<R> sealed::Sealed for RateLimitLayer<R> {}

/// A denial is a response, never an error.
impl<R, B, ResB, E> Gate<Request<B>, Response<ResB>, E> for RateLimitLayer<R>
where
    R: Respond<ResB>,
{
    type Response = Response<ResB>;
    type Error = E;
    type Wait = Box<Waiting>;
    type Pass = Admitted;

    #[inline]
    fn begin(&self, request: &Request<B>, place: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        let limits = self.limits();
        match limits.begin(request.into(), place) {
            Ok(end) => {
                limits.count_route(request.into(), &end);
                self.ends(end, request)
            }
            Err(waiting) => Step::Wait(waiting),
        }
    }

    fn poll(
        &self,
        wait: &mut Box<Waiting>,
        request: &Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        wait.poll(cx, request.into(), place).map(|end| self.ends(end, request))
    }

    #[inline]
    fn enter(&self, pass: &mut Admitted, request: &mut Request<B>) {
        pass.enter(request.extensions_mut());
    }

    #[inline]
    fn after(pass: Admitted, response: Response<ResB>) -> Response<ResB> {
        pass.leave(response)
    }

    fn failed(error: E) -> E {
        error
    }
}

impl<R> RateLimitLayer<R> {
    /// The last step of a request that the limits have decided on.
    #[inline]
    fn ends<B, ResB, E>(&self, end: End, request: &Request<B>) -> Next<Self, Request<B>, Response<ResB>, E>
    where
        R: Respond<ResB>,
    {
        match end {
            Ok(marked) => Step::Go(Admitted::new(marked)),
            Err(refused) => Step::Refuse(Ok(refused.respond(request, self.respond()))),
        }
    }
}
