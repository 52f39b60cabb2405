//! The part in which layers differ: [`Gate`].
//!
//! The steps of a call come in this order, each once, except `poll` and `reconsider`:
//!
//! ```text
//! begin -> (poll)* -> the service is ready -> reconsider -> enter -> the call -> after | failed
//!    \________\__________________________________\______________________-> refused
//! ```

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Sleep;

use super::service::{ONCE, Queue};
use crate::guard::Place;

/// The part of a layer that treats a call: before it is made, and after its response.
///
/// The parts common to all layers are in [`Guarded`](crate::guard::Guarded) and
/// [`ResponseFuture`](crate::guard::ResponseFuture).
pub trait Gate<Req, Res, E>: Clone + sealed::Sealed {
    /// The response that the caller gets, from the inner service or for a refused call.
    type Response;
    /// The error that the caller gets for an error of the inner service.
    type Error;
    /// The wait of a call.
    type Wait;
    /// The state that an admitted call keeps until its response.
    type Pass;

    /// Polls the inner service for readiness.
    #[doc(hidden)]
    fn ready<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        poll()
    }

    /// Advances as far as possible without waiting. A call that has to wait takes a place in the layer's queue.
    #[doc(hidden)]
    fn begin(&self, request: &Req, place: &mut Place) -> Next<Self, Req, Res, E>;

    /// Waits for one event, and then advances as far as possible.
    #[doc(hidden)]
    fn poll(
        &self,
        wait: &mut Self::Wait,
        request: &mut Req,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Req, Res, E>>;

    /// Called when a call that has waited is about to be made and the service is ready. `Some` takes the permission back.
    #[doc(hidden)]
    fn reconsider(&self, pass: &mut Self::Pass, place: &mut Place) -> Option<Next<Self, Req, Res, E>> {
        _ = (pass, place);
        None
    }

    /// Called just before the call is made, to write something into the request.
    #[doc(hidden)]
    fn enter(&self, pass: &mut Self::Pass, request: &mut Req) {
        _ = (pass, request);
    }

    /// Polls the call that is made, and completes its answer.
    #[doc(hidden)]
    #[inline]
    fn poll_call<F>(
        call: Pin<&mut F>,
        pass: &mut Option<Self::Pass>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::Response, Self::Error>>
    where
        F: Future<Output = Result<Res, E>>,
    {
        let response = ready!(call.poll(cx));
        let pass = pass.take().expect(ONCE);
        Poll::Ready(match response {
            Ok(response) => Ok(Self::after(pass, response)),
            Err(error) => Err(Self::failed_after(pass, error)),
        })
    }

    /// Called when the service has answered.
    #[doc(hidden)]
    fn after(pass: Self::Pass, response: Res) -> Self::Response;

    /// Called when the service has failed, before the call or during it.
    #[doc(hidden)]
    fn failed(error: E) -> Self::Error;

    /// Called when the call was made and has failed.
    #[doc(hidden)]
    fn failed_after(pass: Self::Pass, error: E) -> Self::Error {
        drop(pass);
        Self::failed(error)
    }
}

/// The result of a step of a call through a [`Gate`].
pub type Next<G, Req, Res, E> =
    Step<<G as Gate<Req, Res, E>>::Pass, <G as Gate<Req, Res, E>>::Wait, GateAnswer<G, Req, Res, E>>;

/// The caller's answer.
pub type GateAnswer<G, Req, Res, E> =
    Result<<G as Gate<Req, Res, E>>::Response, <G as Gate<Req, Res, E>>::Error>;

/// The result of a step.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<P, W, A> {
    /// The call proceeds to the service.
    Go(P),
    /// The call has to wait.
    Wait(W),
    /// The service is not called, and the caller gets this answer.
    Refuse(A),
}

impl<P, W, A> Step<P, W, A> {
    /// Maps the state of an admitted call.
    pub(crate) fn map<Q>(self, pass: impl FnOnce(P) -> Q) -> Step<Q, W, A> {
        match self {
            Self::Go(passed) => Step::Go(pass(passed)),
            Self::Wait(wait) => Step::Wait(wait),
            Self::Refuse(answer) => Step::Refuse(answer),
        }
    }
}

pub(crate) mod sealed {
    /// Seals `Gate`: only the layers of our crates implement it.
    pub trait Sealed {}
}

/// The bounds on waiting requests of a layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Waits {
    pub(crate) queue: Queue,
    /// The longest wait for each key and each tier.
    pub longest_lookup: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { queue: Queue::default(), longest_lookup: Duration::from_secs(5) }
    }
}

impl Waits {
    /// A copy with a queue of its own.
    pub(crate) fn apart(&self) -> Self {
        Self { queue: self.queue.another(), longest_lookup: self.longest_lookup }
    }

    /// These bounds, with a queue that also counts the calls waiting in the other queue.
    pub(crate) fn counted_with(&self, other: &Self) -> Self {
        Self { queue: self.queue.counted_with(&other.queue), longest_lookup: self.longest_lookup }
    }
}

/// A key or a tier that is being looked up.
///
/// If it is ready when it is first polled, it takes no place and no timer. The timer starts with the wait,
/// so that each key and each tier has the whole time.
pub struct Lookup<F> {
    found: F,
    /// The deadline; set when the wait starts.
    latest: Option<Pin<Box<Sleep>>>,
}

/// The reason why a call stops waiting for a look-up.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NotFound {
    /// The queue is full.
    QueueFull,
    /// The result did not come within this time.
    TooLate(Duration),
}

impl<F: Future + Unpin> Lookup<F> {
    /// A look-up of the output of this future.
    pub fn new(found: F) -> Self {
        Self { found, latest: None }
    }

    /// The result of the look-up, or the reason why the call stops waiting.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        waits: &Waits,
        place: &mut Place,
    ) -> Poll<Result<F::Output, NotFound>> {
        if let Poll::Ready(found) = Pin::new(&mut self.found).poll(cx) {
            return Poll::Ready(Ok(found));
        }
        if !waits.queue.enter(place) {
            return Poll::Ready(Err(NotFound::QueueFull));
        }
        let latest = self.latest.get_or_insert_with(|| Box::pin(tokio::time::sleep(waits.longest_lookup)));
        ready!(latest.as_mut().poll(cx));
        Poll::Ready(Err(NotFound::TooLate(waits.longest_lookup)))
    }
}

sluicegate_core::debug_as!(Lookup<F> {});
