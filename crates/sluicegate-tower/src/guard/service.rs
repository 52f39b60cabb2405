//! The service and its future: [`Guarded`] and [`ResponseFuture`].
//!
//! The future is a small state machine around the service's own future: waiting, calling, or refused. Only a call
//! that has to wait is boxed; a call that is decided at once is the inner future with a pass.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::gate::GateAnswer;
use crate::guard::gate::{Gate, Step};

/// A service behind a layer of this crate, `L`.
///
/// It is ready when the inner service is. A call that may be made at once uses the polled readiness. A call
/// that has to wait does so in the [`ResponseFuture`], and gives up that readiness, so that its permit, place or connection is
/// free for calls that need not wait.
///
/// # Cloning
/// A clone shares the layer's buckets, queue and counts, and clones the inner service. Servers
/// clone a service for each connection, so all shared state is behind one `Arc` in the
/// layer.
#[derive(Clone, Debug)]
pub struct Guarded<S, L> {
    inner: S,
    layer: L,
}

impl<S, L> Guarded<S, L> {
    #[doc(hidden)]
    pub fn new(inner: S, layer: L) -> Self {
        Self { inner, layer }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, L, Req> Service<Req> for Guarded<S, L>
where
    S: Service<Req> + Clone,
    L: Gate<Req, S::Response, S::Error>,
{
    type Response = L::Response;
    type Error = L::Error;
    type Future = ResponseFuture<S, Req, L>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.layer.ready(|| self.inner.poll_ready(cx)).map_err(L::failed)
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        let mut place = Place::default();
        let state = match self.layer.begin(&request, &mut place) {
            // Decided at once, so the value that was polled ready is called here, without a clone. Its future may be large, so it is
            // written where it stays.
            Step::Go(mut pass) => {
                self.layer.enter(&mut pass, &mut request);
                return ResponseFuture {
                    state: State::Calling { inner: self.inner.call(request), pass: Some(pass) },
                };
            }
            Step::Wait(wait) => {
                // Drops the value that was polled ready: waiting calls once used up a `ConcurrencyLimit` inside.
                let later = self.inner.clone();
                self.inner = later.clone();
                let held = HeldCall::new(self.layer.clone(), later, request, wait, place);
                State::Waiting { held: Some(Box::new(held)) }
            }
            Step::Refuse(answer) => State::Refused { answer: Some(answer) },
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The response of a [`Guarded`](crate::guard::Guarded) service.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the call is not made; its place in the queue is free, and the turn that it waited for is
    /// given back. If it is dropped before a store has answered, it may have spent or not, as [`Store`](sluicegate_core::Store)
    /// says. If it is dropped after its turn has come, whether the inner service is ready or not, the units stay spent: otherwise
    /// clients could dodge their limit by hanging up. Permits are always given back.
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
        state: State<S::Future, HeldCall<S, Req, L, L::Wait, L::Pass>, L::Pass, AnswerOf<S, Req, L>>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, H, P, A> {
        // Boxed, because it is large and rare.
        Waiting { held: Option<Box<H>> },
        Calling { #[pin] inner: F, pass: Option<P> },
        Refused { answer: Option<A> },
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
                    return L::poll_call(inner, pass, cx);
                }
                StateProj::Refused { answer } => return Poll::Ready(answer.take().expect(ONCE)),
            };
            state.set(following);
        }
    }
}

pub(crate) const ONCE: &str = "a response future is polled until it is ready, once";

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

/// The waiting calls of a layer, counted. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    longest: usize,
    waiting: Arc<AtomicUsize>,
}

/// The place in the queue of a call that has to wait, if it has one.
pub type Place = Option<Taken>;

/// A taken place; it is free again when this is dropped.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only a queue has one")]
pub struct Taken(Arc<AtomicUsize>);

impl Default for Queue {
    fn default() -> Self {
        Self::up_to(10_000)
    }
}

impl Queue {
    pub(crate) fn up_to(longest: usize) -> Self {
        Self { longest, waiting: Arc::default() }
    }

    /// Another queue of the same length.
    pub(crate) fn another(&self) -> Self {
        Self::up_to(self.longest)
    }

    /// A queue of this length that also counts the calls waiting in the other one.
    pub(crate) fn counted_with(&self, other: &Self) -> Self {
        Self { longest: self.longest, waiting: Arc::clone(&other.waiting) }
    }

    /// Takes a place for a call that has none yet. Returns whether the call has a place now.
    pub(crate) fn enter(&self, place: &mut Place) -> bool {
        if place.is_none() {
            let one_more = |waiting| (waiting < self.longest).then_some(waiting + 1);
            // Relaxed: it is a count and guards nothing else.
            let entered = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
            *place = entered.ok().map(|_| Taken(Arc::clone(&self.waiting)));
        }
        place.is_some()
    }

    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: as above.
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
