//! The steps of a request through the limits of a [`RateLimitLayer`], as through any [`Gate`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};

use crate::admission::admitted::Admitted;
use crate::admission::refused::{Answering, Refused};
use crate::admission::way::{HeldRequest, Reached};
use crate::guard::service::ONCE;
use crate::guard::{Gate, Next, Place, Step, sealed};
use crate::rate_limit::layer::RateLimitLayer;
use crate::respond::refusal::Respond;

impl<R> sealed::Sealed for RateLimitLayer<R> {}

/// The wait of a request, or of the response to a refused request.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the guard has one")]
#[non_exhaustive]
pub enum LayerWait<B> {
    /// The request is not decided yet, or its turn has not come.
    Way(Box<HeldRequest>),
    /// The responder waits for something.
    Answer(Box<Answering<B>>),
}

/// A denial is a response, never an error.
impl<R, B, ResB, E> Gate<Request<B>, Response<ResB>, E> for RateLimitLayer<R>
where
    R: Respond<ResB>,
{
    type Response = Response<ResB>;
    type Error = E;
    type Wait = LayerWait<ResB>;
    type Pass = Admitted;

    #[inline]
    fn ready<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        self.0.within.ask(&self.0.limits, poll)
    }

    #[inline]
    fn begin(&self, request: &Request<B>, place: &mut Place) -> Next<Self, Request<B>, Response<ResB>, E> {
        match self.0.limits.begin(request.into(), place) {
            Reached::Admitted(admitted) => Step::Go(admitted),
            Reached::Refused(refused) => self.answer(refused, request),
            Reached::Waits(held) => Step::Wait(LayerWait::Way(held)),
        }
    }

    fn poll(
        &self,
        wait: &mut LayerWait<ResB>,
        request: &mut Request<B>,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        let request = &*request;
        match wait {
            LayerWait::Way(waiting) => {
                Poll::Ready(match ready!(waiting.poll(cx, request.into(), place)) {
                    Ok(admitted) => Step::Go(admitted),
                    Err(refused) => {
                        // The responder takes a place in another queue.
                        *place = Place::default();
                        self.answer(refused, request)
                    }
                })
            }
            LayerWait::Answer(answering) => {
                let answer = answering.poll(cx, request.into(), &*self.0.respond, place);
                answer.map(|response| Step::Refuse(Ok(response)))
            }
        }
    }

    #[inline]
    fn enter(&self, pass: &mut Admitted, request: &mut Request<B>) {
        pass.announce(request.extensions_mut(), self.0.tells_handlers);
    }

    #[inline]
    fn after(pass: Admitted, response: Response<ResB>) -> Response<ResB> {
        pass.leave(response)
    }

    #[inline]
    fn poll_call<F>(
        call: Pin<&mut F>,
        pass: &mut Option<Admitted>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<ResB>, E>>
    where
        F: Future<Output = Result<Response<ResB>, E>>,
    {
        let mut polled = call.poll(cx);
        // In place, because a response is large.
        if let Poll::Ready(answer) = &mut polled {
            let pass = pass.take().expect(ONCE);
            if let Ok(response) = answer {
                pass.finish(response);
            }
        }
        polled
    }

    fn failed(error: E) -> E {
        error
    }
}

impl<R> RateLimitLayer<R> {
    /// Answers a request that the limits have refused.
    #[cold]
    fn answer<B, ResB, E>(
        &self,
        refused: Box<Refused>,
        request: &Request<B>,
    ) -> Next<Self, Request<B>, Response<ResB>, E>
    where
        R: Respond<ResB>,
    {
        let refused = refused.with(self.0.within.limits(), request.into());
        match refused.answer(request.into(), &*self.0.respond) {
            Ok(response) => Step::Refuse(Ok(response)),
            Err(answering) => Step::Wait(LayerWait::Answer(Box::new(answering))),
        }
    }
}
