//! The steps of an outgoing call: wait until the server can be called, wait for the turn, and heed the
//! response.
//!
//! A call may take the steps twice: while it waited for its turn, or for its client to be ready, the
//! server may have asked for a pause. Then the call gives its turn back and begins anew, within
//! the same longest wait.
#![expect(unnameable_types, reason = "they are parts of a future that has a name")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_core::limiter::Receipt;
use sluicegate_core::{Decision, Key};
use tokio::time::{Instant, Sleep};

use crate::call::{CallAsk, CallError, CallWait};
use crate::guard::{Gate, Next, Place, Step, sealed};
use crate::outgoing::holds::after;
use crate::outgoing::{OutgoingLayer, Wire};

/// A call before it is made.
#[derive(Clone, Debug)]
pub struct Departure {
    key: Key,
    /// The last moment at which the call may be made.
    latest: Instant,
}

/// The wait of a call.
#[derive(Debug)]
pub enum DepartureWait {
    /// The server has asked for a pause.
    Hold(Departure, Pin<Box<Sleep>>),
    /// The call waits for its turn under our own limit.
    Turn(Departure, CallWait),
}

/// A call that may be made.
#[derive(Debug)]
pub struct Departed<W> {
    departure: Departure,
    /// The spend of the call under our own limit.
    receipt: Option<Receipt>,
    layer: OutgoingLayer<W>,
}

type DepartureStep<W, Res, E> = Step<Departed<W>, DepartureWait, Result<Res, CallError<E>>>;

impl Departure {
    fn new(key: Key, longest: Duration) -> Self {
        Self { key, latest: after(Instant::now(), longest) }
    }
}

impl<W> OutgoingLayer<W> {
    /// Advances as far as possible without waiting: first the hold of the server, then the turn, so that calls that
    /// waited for one server do not all proceed at once.
    fn depart<Res, E>(&self, departure: Departure, place: &mut Place) -> DepartureStep<W, Res, E> {
        let (state, now) = (&*self.state, Instant::now());
        if let Some(until) = state.holds.until(&departure.key, now) {
            if until > departure.latest {
                return Step::Refuse(Err(CallError::HeldOff(until - now)));
            }
            if state.queue.enter(place) {
                return Step::Wait(DepartureWait::Hold(departure, Box::pin(tokio::time::sleep_until(until))));
            }
            return match state.under() {
                Some(under) => under.queue_full(&departure.key, until - now),
                None => Step::Refuse(Err(CallError::QueueFull(until - now))),
            };
        }
        let Some(under) = state.under() else { return self.turned(departure, Step::Go(None)) };
        let longest = Some(departure.latest.saturating_duration_since(now));
        let next = under.begin(CallAsk { key: departure.key.clone(), cost: 1, longest }, place);
        self.turned(departure, next)
    }

    /// Continues with the turn, or waits for it.
    fn turned<Res, E>(
        &self,
        departure: Departure,
        next: Step<Option<Decision>, CallWait, Result<Res, CallError<E>>>,
    ) -> DepartureStep<W, Res, E> {
        match next {
            Step::Go(decision) => {
                let receipt = decision.and_then(|mut decision| decision.take_receipt(0));
                Step::Go(Departed { departure, receipt, layer: self.clone() })
            }
            Step::Wait(wait) => Step::Wait(DepartureWait::Turn(departure, wait)),
            Step::Refuse(answer) => Step::Refuse(answer),
        }
    }
}

impl<W> sealed::Sealed for OutgoingLayer<W> {}

impl<Req, Res, E, W: Wire<Req, Res>> Gate<Req, Res, E> for OutgoingLayer<W> {
    type Response = Res;
    type Error = CallError<E>;
    type Wait = DepartureWait;
    type Pass = Departed<W>;

    fn begin(&self, request: &Req, place: &mut Place) -> Next<Self, Req, Res, E> {
        self.depart(Departure::new(self.wire.key(request), self.state.longest), place)
    }

    fn poll(
        &self,
        wait: &mut DepartureWait,
        _: &mut Req,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Req, Res, E>> {
        Poll::Ready(match wait {
            DepartureWait::Hold(departure, sleep) => {
                ready!(sleep.as_mut().poll(cx));
                self.depart(departure.clone(), place)
            }
            DepartureWait::Turn(departure, admission) => {
                let Some(under) = self.state.under() else { return Poll::Pending };
                let next = ready!(under.poll(admission, place, cx));
                self.turned(departure.clone(), next)
            }
        })
    }

    fn reconsider(&self, pass: &mut Departed<W>, place: &mut Place) -> Option<Next<Self, Req, Res, E>> {
        let Departed { departure, receipt, layer } = pass;
        layer.state.holds.until(&departure.key, Instant::now())?;
        // The server has asked for a pause in the meantime, so this turn is useless.
        if let (Some(limiter), Some(mut receipt)) = (&layer.state.limiter, receipt.take()) {
            // The store starts at once; its answer need not be awaited.
            drop(limiter.refund(&departure.key, 1).of(&mut receipt).start());
        }
        Some(layer.depart(departure.clone(), place))
    }

    fn after(pass: Departed<W>, response: Res) -> Res {
        let Departed { departure, layer, .. } = pass;
        layer.state.heed(&departure.key, Wire::<Req, Res>::head(&*layer.wire, &response));
        response
    }

    fn failed(error: E) -> CallError<E> {
        CallError::Inner(error)
    }
}
