//! The future of a call: [`ResponseFuture`].
//!
//! A small state machine around the service's own future: waiting, calling, or refused. Only a call
//! that has to wait takes a box; one that is decided at once is the inner future and a pass beside
//! it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::guard::Place;
use crate::guard::gate::{Answer, Gate, Step};

pin_project! {
    /// The response of a [`Guarded`](crate::guard::Guarded) service.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the call is not made; its place in the queue is free, and the turn that it waited for is
    /// given back. Dropped before a store has answered, it may have spent or not, as [`Store`](sluicegate_core::Store)
    /// says. Dropped when its turn has come, be the service inside ready or not, what was spent stays spent: otherwise
    /// clients could dodge their limit by hanging up. Permits are given back whenever it is dropped.
    ///
    /// # Panics
    /// When polled again after it was ready, and when it has to wait for a key, a permit or a turn outside of a tokio
    /// runtime that has its timer enabled.
    pub struct ResponseFuture<S, Req, L>
    where
        S: Service<Req>,
        L: Gate<Req, S::Response, S::Error>,
    {
        #[pin]
        state: State<S::Future, Held<S, Req, L, L::Wait, L::Pass>, L::Pass, AnswerOf<S, Req, L>>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, H, P, A> {
        // In a box, because it is large and rare.
        Waiting { held: Option<Box<H>> },
        Calling { #[pin] inner: F, pass: Option<P> },
        Refused { answer: Option<A> },
    }
}

type AnswerOf<S, Req, L> = Answer<L, Req, <S as Service<Req>>::Response, <S as Service<Req>>::Error>;

/// A call that cannot be made yet.
struct Held<S, Req, L, W, P> {
    layer: L,
    service: S,
    request: Req,
    until: Until<W, P>,
    /// The place of a call that waits, for as long as it is not made.
    place: Place,
}

/// Until when it waits.
enum Until<W, P> {
    Passed(W),
    /// It may be made, once the service is ready.
    Ready(P),
}

impl<S, Req, L> ResponseFuture<S, Req, L>
where
    S: Service<Req>,
    L: Gate<Req, S::Response, S::Error>,
{
    pub(crate) fn waiting(layer: L, service: S, request: Req, wait: L::Wait, place: Place) -> Self {
        let held = Box::new(Held { layer, service, request, until: Until::Passed(wait), place });
        Self { state: State::Waiting { held: Some(held) } }
    }

    #[inline]
    pub(super) fn calling(inner: S::Future, pass: L::Pass) -> Self {
        Self { state: State::Calling { inner, pass: Some(pass) } }
    }

    pub(crate) fn refused(answer: AnswerOf<S, Req, L>) -> Self {
        Self { state: State::Refused { answer: Some(answer) } }
    }
}

impl<S, Req, L> Held<S, Req, L, L::Wait, L::Pass>
where
    S: Service<Req> + Clone,
    L: Gate<Req, S::Response, S::Error>,
{
    /// Waits until the call can be made, or is refused.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerOf<S, Req, L>>> {
        let Self { layer, service, request, until, place } = self;
        loop {
            let next = match until {
                Until::Passed(wait) => ready!(layer.poll(wait, request, place, cx)),
                Until::Ready(pass) => {
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        return Poll::Ready(Err(Err(L::failed(error))));
                    }
                    match layer.reconsider(pass, place) {
                        None => return Poll::Ready(Ok(())),
                        Some(next) => {
                            // Others may have its readiness now.
                            *service = service.clone();
                            next
                        }
                    }
                }
            };
            // A turn that has come leaves its queue here, whenever the service is ready.
            *until = match next {
                Step::Go(pass) => Until::Ready(pass),
                Step::Wait(wait) => Until::Passed(wait),
                Step::Refuse(answer) => return Poll::Ready(Err(answer)),
            };
        }
    }

    /// Makes the call, if it may be.
    fn call(self) -> Option<(S::Future, L::Pass)> {
        let Self { layer, mut service, mut request, until, place: _ } = self;
        match until {
            Until::Ready(mut pass) => {
                layer.enter(&mut pass, &mut request);
                Some((service.call(request), pass))
            }
            Until::Passed(_) => None,
        }
    }
}

impl<S, Req, L> Future for ResponseFuture<S, Req, L>
where
    S: Service<Req> + Clone,
    L: Gate<Req, S::Response, S::Error>,
{
    type Output = Result<L::Response, L::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let following = match state.as_mut().project() {
                StateProj::Waiting { held } => {
                    let waiting = held.as_mut().expect("a waiting call is replaced when its wait ends");
                    match ready!(waiting.poll(cx)) {
                        Ok(()) => {
                            let called = held.take().and_then(|held| held.call());
                            let (inner, pass) = called.expect("a call is ready when it has passed");
                            State::Calling { inner, pass: Some(pass) }
                        }
                        Err(answer) => State::Refused { answer: Some(answer) },
                    }
                }
                StateProj::Calling { inner, pass } => {
                    let response = ready!(inner.poll(cx));
                    let pass = pass.take().expect(ONCE);
                    return Poll::Ready(match response {
                        Ok(response) => Ok(L::after(pass, response)),
                        Err(error) => Err(L::failed(error)),
                    });
                }
                StateProj::Refused { answer } => return Poll::Ready(answer.take().expect(ONCE)),
            };
            state.set(following);
        }
    }
}

const ONCE: &str = "a response future is polled until it is ready, once";

impl<S, Req, L> fmt::Debug for ResponseFuture<S, Req, L>
where
    S: Service<Req>,
    L: Gate<Req, S::Response, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "ResponseFuture(waiting)",
            State::Calling { .. } => "ResponseFuture(calling)",
            State::Refused { .. } => "ResponseFuture(refused)",
        })
    }
}
