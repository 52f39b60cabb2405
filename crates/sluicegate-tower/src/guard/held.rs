//! A call that has to wait: [`HeldCall`].
//!
//! It polls a clone of the service, so it holds no readiness while it waits.

use std::task::{Context, Poll, ready};

use tower_service::Service;

use crate::guard::Place;
use crate::guard::gate::{Gate, GateAnswer, Step};

/// The answer of a layer to a request of such a service.
pub(super) type AnswerOf<S, Req, L> =
    GateAnswer<L, Req, <S as Service<Req>>::Response, <S as Service<Req>>::Error>;

/// A call that cannot be made yet.
pub(super) struct HeldCall<S, Req, L, W, P> {
    layer: L,
    service: S,
    request: Req,
    /// The place of a waiting call, until the call is made. Dropped before the turn, so that the place is free when the turn
    /// is.
    place: Place,
    until: Until<W, P>,
}

/// The event that the call waits for.
enum Until<W, P> {
    Passed(W),
    /// It may be made, once the service is ready.
    Ready(P),
}

impl<S, Req, L> HeldCall<S, Req, L, L::Wait, L::Pass>
where
    S: Service<Req> + Clone,
    L: Gate<Req, S::Response, S::Error>,
{
    pub(super) fn new(layer: L, service: S, request: Req, wait: L::Wait, place: Place) -> Self {
        Self { layer, service, request, place, until: Until::Passed(wait) }
    }

    /// Waits until the call can be made, or is refused.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerOf<S, Req, L>>> {
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
                            // Frees the readiness for other calls.
                            *service = service.clone();
                            next
                        }
                    }
                }
            };
            // A turn that has come leaves its queue here, whether the service is ready or not.
            *until = match next {
                Step::Go(pass) => Until::Ready(pass),
                Step::Wait(wait) => Until::Passed(wait),
                Step::Refuse(answer) => return Poll::Ready(Err(answer)),
            };
        }
    }

    /// Makes the call, if it may be.
    pub(super) fn call(self) -> Option<(S::Future, L::Pass)> {
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
