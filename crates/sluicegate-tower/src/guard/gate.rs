//! The part in which layers differ: [`Gate`].
//!
//! The steps of a call come in this order, and each of them once, `poll` and `reconsider` aside:
//!
//! ```text
//! begin -> (poll)* -> the service is ready -> reconsider -> enter -> the call -> after | failed
//!    \________\__________________________________\______________________-> refused
//! ```

use std::task::{Context, Poll};

use crate::guard::Place;

/// The part of a layer that treats a call: before it is made, and after its response.
///
/// All else is the same for all of them, and is that of [`Guarded`](crate::guard::Guarded) and
/// [`ResponseFuture`](crate::guard::ResponseFuture).
pub trait Gate<Req, Res, E>: Clone + sealed::Sealed {
    /// The caller's response, of the service inside and of a call that is refused.
    type Response;
    /// The caller's error for an error of the service inside.
    type Error;
    /// The wait of a call.
    type Wait;
    /// The state that a call which may be made keeps until its response.
    type Pass;

    /// Goes as far as it can without waiting. A call that has to wait takes a place in the layer's queue.
    #[doc(hidden)]
    fn begin(&self, request: &Req, place: &mut Place) -> Next<Self, Req, Res, E>;

    /// Waits for one thing, and goes on from there as far as it can.
    #[doc(hidden)]
    fn poll(
        &self,
        wait: &mut Self::Wait,
        request: &Req,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Req, Res, E>>;

    /// A call that has waited is about to be made: the service is ready. `Some` takes back that it may be.
    #[doc(hidden)]
    fn reconsider(&self, pass: &mut Self::Pass, place: &mut Place) -> Option<Next<Self, Req, Res, E>> {
        _ = (pass, place);
        None
    }

    /// The call is made now: the last moment to write something into the request.
    #[doc(hidden)]
    fn enter(&self, pass: &mut Self::Pass, request: &mut Req) {
        _ = (pass, request);
    }

    /// The service has answered.
    #[doc(hidden)]
    fn after(pass: Self::Pass, response: Res) -> Self::Response;

    /// The service has failed, before the call or at it.
    #[doc(hidden)]
    fn failed(error: E) -> Self::Error;
}

/// The result of a step of a call through a [`Gate`].
pub type Next<G, Req, Res, E> =
    Step<<G as Gate<Req, Res, E>>::Pass, <G as Gate<Req, Res, E>>::Wait, Answer<G, Req, Res, E>>;

/// The caller's answer.
pub type Answer<G, Req, Res, E> = Result<<G as Gate<Req, Res, E>>::Response, <G as Gate<Req, Res, E>>::Error>;

/// The result of a step.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<P, W, A> {
    /// On to the service.
    Go(P),
    /// Something has to be waited for.
    Wait(W),
    /// The service is not called, and this is what the caller gets.
    Refuse(A),
}

impl<P, W, A> Step<P, W, A> {
    /// The same step, with something else to keep of a call that may be made.
    pub(crate) fn map<Q>(self, pass: impl FnOnce(P) -> Q) -> Step<Q, W, A> {
        match self {
            Self::Go(passed) => Step::Go(pass(passed)),
            Self::Wait(wait) => Step::Wait(wait),
            Self::Refuse(answer) => Step::Refuse(answer),
        }
    }
}

pub(crate) mod sealed {
    /// The layers of our crates are the gates that there are.
    pub trait Sealed {}
}
