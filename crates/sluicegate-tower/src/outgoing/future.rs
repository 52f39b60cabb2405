//! The future of a call that goes out: [`OutgoingFuture`].

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use sluicegate_core::{Decision, Key};
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use crate::call::{Admission, Admitted, CallError};
use crate::guard::queue::Place;
use crate::outgoing::Wire;
use crate::outgoing::layer::Shared;

/// A call before it is made.
pub(crate) struct Departure {
    pub(crate) key: Key,
    /// The last moment at which it may be made.
    latest: Instant,
    step: Step,
    /// The place of a call that has to wait, for as long as it is not made.
    place: Option<Place>,
}

/// What it waits for.
enum Step {
    Nothing,
    /// The server wants to be left alone.
    Hold(Pin<Box<Sleep>>),
    /// Its turn under a limit of ours.
    Turn(Box<Admission>),
    /// The client, for its turn has come. With what was spent on it.
    Client(Option<Box<Decision>>),
}

/// What a step led to.
pub(crate) enum Next {
    /// With what was spent on it.
    Go(Option<Decision>),
    Fail(Failure),
    Wait,
}

/// Why a call is not made.
pub(crate) type Failure = CallError<std::convert::Infallible>;

impl Departure {
    pub(crate) fn new(key: Key, longest: Duration) -> Self {
        let now = Instant::now();
        // What cannot be represented is a long time.
        let latest = now.checked_add(longest).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365 * 30));
        Self { key, latest, step: Step::Nothing, place: None }
    }

    /// Goes as far as it can without waiting: first until the server can be called, then for a turn, so that those who
    /// waited for the same server do not all go at once.
    pub(crate) fn begin<W>(&mut self, shared: &Shared<W>) -> Next {
        let now = Instant::now();
        if let Some(until) = shared.holds.until(&self.key, now) {
            if until > self.latest {
                return Next::Fail(CallError::HeldOff(until - now));
            }
            if !shared.queue.enter(&mut self.place) {
                return Next::Fail(CallError::QueueFull(until - now));
            }
            self.step = Step::Hold(Box::pin(tokio::time::sleep_until(until)));
            return Next::Wait;
        }
        let Some(limiter) = &shared.limiter else { return Next::Go(None) };
        let longest = self.latest.saturating_duration_since(now);
        let key = self.key.clone();
        match Admission::begin(limiter, key, 1, Some(longest), &shared.queue, &mut self.place) {
            Admitted::Go(decision) => Next::Go(decision),
            Admitted::Refuse(refused) => Next::Fail(refused.into()),
            Admitted::Wait(admission) => {
                self.step = Step::Turn(admission);
                Next::Wait
            }
        }
    }

    /// Waits until the call may be made. Asked again, it says whether that is still so.
    fn poll<W>(&mut self, cx: &mut Context<'_>, shared: &Shared<W>) -> Poll<Result<(), Failure>> {
        loop {
            match &mut self.step {
                Step::Nothing => {}
                Step::Hold(sleep) => ready!(sleep.as_mut().poll(cx)),
                Step::Turn(admission) => {
                    let decision = ready!(admission.poll(cx, &shared.queue, &mut self.place))?;
                    self.step = Step::Client(decision.map(Box::new));
                    continue;
                }
                Step::Client(decision) => {
                    if !is_held(shared, &self.key) {
                        return Poll::Ready(Ok(()));
                    }
                    // The server has had enough in the meantime: this turn is of no use.
                    let receipt = decision.as_mut().and_then(|decision| decision.take_receipt(0));
                    if let (Some(limiter), Some(mut receipt)) = (&shared.limiter, receipt) {
                        // The store begins with it at once; nobody has to wait for its answer.
                        drop(limiter.refund_of(&mut receipt, &self.key, 1));
                    }
                }
            }
            self.step = Step::Nothing;
            match self.begin(shared) {
                Next::Go(decision) => {
                    self.step = Step::Client(decision.map(Box::new));
                    return Poll::Ready(Ok(()));
                }
                Next::Fail(failure) => return Poll::Ready(Err(failure)),
                Next::Wait => {}
            }
        }
    }
}

/// Whether the server wants to be left alone.
fn is_held<W>(shared: &Shared<W>, key: &Key) -> bool {
    shared.holds.until(key, Instant::now()).is_some()
}

const REPLACED: &str = "a waiting call is replaced when its wait ends";

pin_project! {
    /// The response of an [`Outgoing`](crate::outgoing::Outgoing).
    ///
    /// # Cancel safety
    /// Dropped while it waits for its turn, no call is made and the turn is given back. Dropped when the turn has come and
    /// the client is not ready, no call is made and what was spent stays spent. Dropped later, what the server says about its
    /// limits is lost with the response.
    ///
    /// # Panics
    /// When polled again after it was ready, and when it has to wait outside of a tokio runtime that has its timer enabled.
    pub struct OutgoingFuture<S, Req, W>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, Req, S::Future>,
        shared: Arc<Shared<W>>,
        request: PhantomData<fn(Req)>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req, F> {
        Waiting { departure: Departure, call: Option<(S, Req)> },
        Calling { #[pin] inner: F, key: Key },
        Failed { failure: Option<Failure> },
    }
}

impl<S, Req, W> OutgoingFuture<S, Req, W>
where
    S: Service<Req>,
{
    pub(crate) fn waiting(departure: Departure, service: S, request: Req, shared: &Arc<Shared<W>>) -> Self {
        Self::of(State::Waiting { departure, call: Some((service, request)) }, shared)
    }

    pub(crate) fn calling(inner: S::Future, key: Key, shared: &Arc<Shared<W>>) -> Self {
        Self::of(State::Calling { inner, key }, shared)
    }

    pub(crate) fn failed(failure: Failure, shared: &Arc<Shared<W>>) -> Self {
        Self::of(State::Failed { failure: Some(failure) }, shared)
    }

    fn of(state: State<S, Req, S::Future>, shared: &Arc<Shared<W>>) -> Self {
        Self { state, shared: Arc::clone(shared), request: PhantomData }
    }
}

impl<S, Req, W> Future for OutgoingFuture<S, Req, W>
where
    S: Service<Req> + Clone,
    W: Wire<Req, S::Response>,
{
    type Output = Result<S::Response, CallError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut state = this.state;
        loop {
            let following = match state.as_mut().project() {
                StateProj::Waiting { departure, call } => match ready!(departure.poll(cx, this.shared)) {
                    Ok(()) => {
                        let (client, _) = call.as_mut().expect(REPLACED);
                        ready!(client.poll_ready(cx)).map_err(CallError::Inner)?;
                        if is_held(this.shared, &departure.key) {
                            // The server has had enough while the client was not ready. Others may have it now.
                            *client = client.clone();
                            continue;
                        }
                        let (mut client, request) = call.take().expect(REPLACED);
                        State::Calling { inner: client.call(request), key: departure.key.clone() }
                    }
                    Err(failure) => State::Failed { failure: Some(failure) },
                },
                StateProj::Calling { inner, key } => {
                    let response = ready!(inner.poll(cx)).map_err(CallError::Inner)?;
                    this.shared.heed::<Req, _>(key, &response);
                    return Poll::Ready(Ok(response));
                }
                StateProj::Failed { failure } => {
                    let failure = failure.take().expect("a call is polled until it is ready, once");
                    return Poll::Ready(Err(failure.of_call()));
                }
            };
            state.set(following);
        }
    }
}

impl<S, Req, W> fmt::Debug for OutgoingFuture<S, Req, W>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "OutgoingFuture(waiting)",
            State::Calling { .. } => "OutgoingFuture(calling)",
            State::Failed { .. } => "OutgoingFuture(failed)",
        })
    }
}
