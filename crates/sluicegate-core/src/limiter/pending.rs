//! A request that waits for its turn, and the limiters that it waits for: [`PendingTurn`] and [`AwaitedLimits`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::handle::RateLimiter;
use super::together::report;
use crate::decision::{AskIndices, Decision};
use crate::key::Key;
use crate::receipt::Receipt;
use crate::store::{DecisionFuture, Mode, spawn};
use crate::wait::{
    AskCosts, LimitersOfTurn, LineKeys, Queues, RequestParts, TurnPlace, TurnReceipts, UnitsHeld,
};

/// One waiting request, with its limits and its place.
pub(super) struct PendingTurn {
    limits: AwaitedLimits,
    place: TurnPlace,
    /// Only if other limits take part in it.
    own: Option<Box<OwnParts>>,
    /// Counts this request among the requests that wait for the limiter.
    _counted: Arc<()>,
}

/// The part of a request that stays its own, whichever turn it takes.
struct OwnParts {
    /// The decision of the limits that it does not wait for, if any.
    decision: Option<Decision>,
    /// The indices among the asks of the limits that it waits for, and of the others.
    asks: AskIndices,
    others: AskIndices,
    held: Option<Arc<UnitsOfTurn>>,
}

impl OwnParts {
    /// The decision of the request at this turn.
    fn at(&mut self, turn: Decision) -> Decision {
        match self.decision.take() {
            Some(own) => own.at_turn(turn, (&self.others, &self.asks)),
            None => turn.of_asks(&self.asks),
        }
    }
}

/// Units that limits hold for a request, with their receipts.
struct UnitsOfTurn(SmallVec<[(RateLimiter, Key, Receipt); 1]>);

impl UnitsOfTurn {
    fn report(&self, mode: Mode) {
        let turns = self.0.iter().map(|(limiter, key, receipt)| (limiter, key, receipt));
        // The store starts at once; its answer is not needed here.
        drop(report(turns, mode));
    }
}

impl UnitsHeld for UnitsOfTurn {
    fn depart(&self) {
        self.report(Mode::Depart);
    }
}

impl PendingTurn {
    fn at(place: TurnPlace, limits: AwaitedLimits, own: Option<Box<OwnParts>>) -> Self {
        Self { _counted: Arc::clone(&limits.limiters[0].handle.waiting), limits, place, own }
    }

    pub(super) fn poll(&mut self, waker: &Waker) -> Result<Box<Decision>, Instant> {
        let decision = self.limits.queues().poll(&self.limits, &self.place, waker)?;
        if let Some(own) = &mut self.own {
            return Ok(Box::new(own.at(*decision)));
        }
        Ok(decision)
    }

    /// The latest moment at which the request proceeds.
    pub(super) fn at_latest(&self) -> Instant {
        self.place.at_latest()
    }

    pub(super) fn leave(&self) {
        let is_waiting = self.limits.queues().leave(&self.limits, &self.place);
        let held = self.own.as_ref().and_then(|own| own.held.as_ref());
        if let Some(held) = held.filter(|_| is_waiting) {
            held.report(Mode::Return);
        }
    }
}

/// The limiters that the request waits for, in the order of the asks.
#[derive(Clone)]
pub(super) struct AwaitedLimits {
    limiters: SmallVec<[RateLimiter; 1]>,
    line: LineKeys,
    costs: AskCosts,
}

impl AwaitedLimits {
    /// These limits, if any.
    pub(super) fn new(limits: impl IntoIterator<Item = (RateLimiter, Key, u64)>) -> Option<Self> {
        let (mut limiters, mut line, mut costs) = (SmallVec::new(), Vec::with_capacity(1), AskCosts::new());
        for (limiter, key, cost) in limits {
            line.push((limiter.identity(), key));
            limiters.push(limiter);
            costs.push(cost);
        }
        (!limiters.is_empty()).then(|| Self { limiters, line: line.into(), costs })
    }

    /// The queues in which the request waits for its turn.
    fn queues(&self) -> &Queues {
        self.limiters[0].queues()
    }

    pub(super) fn enter(self, at: Instant, decision: Box<Decision>) -> PendingTurn {
        let (mut limits, decision, own) = self.parted(decision);
        limits.line = limits.queues().shared(&limits.line);
        let beside = own.as_ref().and_then(|(own, free_before)| {
            let held = Arc::clone(own.held.as_ref()?);
            Some(RequestParts { held, ready_at: at.checked_sub(*free_before).unwrap_or(at) })
        });
        let place = limits.queues().enter(&limits, at, decision, beside);
        PendingTurn::at(place, limits, own.map(|(own, _)| Box::new(own)))
    }

    /// The limits that the request waits for, with their decision; and the rest, with the time before the turn at which it would
    /// have let it go.
    fn parted(self, decision: Box<Decision>) -> (Self, Box<Decision>, Option<(OwnParts, Duration)>) {
        let mut own =
            OwnParts { decision: None, asks: AskIndices::new(), others: AskIndices::new(), held: None };
        let (mut held, mut ready_us) = (SmallVec::new(), 0);
        for ask in 0..self.limiters.len() {
            let receipt = decision.receipt(ask);
            let waits = receipt.as_ref().is_some_and(|receipt| !receipt.is_held());
            let places = if waits { &mut own.asks } else { &mut own.others };
            places.push(u8::try_from(ask).unwrap_or(u8::MAX));
            if let Some(receipt) = receipt.filter(|_| !waits) {
                ready_us = receipt.ready_us().max(ready_us);
                held.push((self.limiters[ask].clone(), self.line[ask].1.clone(), receipt));
            }
        }
        if own.asks.is_empty() || own.others.is_empty() {
            return (self, decision, None);
        }
        let free_before = Duration::from_micros(decision.spent_us().saturating_sub(ready_us));
        own.held = (!held.is_empty()).then(|| Arc::new(UnitsOfTurn(held)));
        let (waited, others) = decision.parted(&own.asks, &own.others);
        own.decision = others;
        let of = |ask: &u8| usize::from(*ask);
        let limits = Self {
            limiters: own.asks.iter().map(|ask| self.limiters[of(ask)].clone()).collect(),
            line: own.asks.iter().map(|ask| self.line[of(ask)].clone()).collect(),
            costs: own.asks.iter().map(|ask| self.costs[of(ask)]).collect(),
        };
        (limits, Box::new(waited), Some((own, free_before)))
    }

    pub(super) fn enter_left(self, until: Instant) -> Option<PendingTurn> {
        let place = self.queues().enter_left(&self, until)?;
        Some(PendingTurn::at(place, self, None))
    }
}

impl LimitersOfTurn for AwaitedLimits {
    fn line(&self) -> &LineKeys {
        &self.line
    }

    fn costs(&self) -> &AskCosts {
        &self.costs
    }

    fn give_up(&self, turns: &TurnReceipts) -> DecisionFuture {
        let turns = turns.iter();
        report(turns.map(|(ask, receipt)| (&self.limiters[*ask], &self.line[*ask].1, receipt)), Mode::Return)
    }

    fn attend(&self, number: u64) -> bool {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return false };
        spawn(&runtime, Box::pin(Returns { limits: self.clone(), number }));
        true
    }
}

/// Waits for the store's answers about turns that were given up: each turn that the store takes back may free the turn before it, and
/// there may be no later request that would check.
struct Returns {
    limits: AwaitedLimits,
    number: u64,
}

impl Future for Returns {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.limits.queues().poll_returns(&self.limits, self.number, cx.waker())
    }
}

impl Drop for Returns {
    /// Its runtime may end before the store has answered.
    fn drop(&mut self) {
        self.limits.queues().is_unattended(&self.limits.line, self.number);
    }
}
