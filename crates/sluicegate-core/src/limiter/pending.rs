//! A request that waits for its turn, and the limiters that it waits for: [`PendingTurn`].

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::handle::RateLimiter;
use super::together::report;
use crate::decision::Decision;
use crate::key::Key;
use crate::receipt::Receipt;
use crate::store::{DecisionFuture, Mode, spawn};
use crate::wait::{AskCosts, LineKey, Queues, ReservedTurn, SurplusTurn, TurnPlace};

/// One waiting request, with its limits and its place.
pub(super) struct PendingTurn {
    /// Its own decision. It proceeds with this one, although it may proceed at a turn that another request has reserved.
    decision: Option<Decision>,
    /// The asks of the decision that it waits for.
    asks: SmallVec<[u8; 1]>,
    /// The limiters of these asks, in the same order.
    limiters: SmallVec<[RateLimiter; 1]>,
    place: Arc<TurnPlace>,
    /// The units that its other limiters count already, and give back if it leaves: those of policies that keep accounts.
    counted: Vec<(RateLimiter, Key, Receipt)>,
    /// Counts this request among the requests that wait for the limiter.
    _counted: Arc<()>,
}

impl PendingTurn {
    /// Enters the line of the limits that the request waits for; `at` is the moment of its turn.
    pub(super) fn new(
        decision: Decision,
        limits: impl IntoIterator<Item = (RateLimiter, Key, u64)>,
        at: Instant,
    ) -> Self {
        let by = decision.decided_by();
        let (mut line, mut costs) = (LineKey { limits: SmallVec::new(), by }, AskCosts::new());
        let mut turn = ReservedTurn { spent_us: decision.spent_us(), receipts: SmallVec::new() };
        let (mut asks, mut limiters, mut counted) = (SmallVec::new(), SmallVec::new(), Vec::new());
        for (ask, (limiter, key, cost)) in (0_u8..).zip(limits) {
            let receipt = decision.receipt(ask.into());
            if decision.delays(ask) {
                line.limits.push((limiter.identity(), key));
                costs.push(cost);
                turn.receipts.push(receipt);
                asks.push(ask);
                limiters.push(limiter);
            } else if let Some(receipt) = receipt.filter(|_| limiter.policy().gives_back()) {
                counted.push((limiter, key, receipt));
            }
        }
        let first: &RateLimiter = &limiters[0];
        let place = Arc::new(first.queues().enter(line, costs, at, turn));
        let _counted = Arc::clone(&first.handle.waiting);
        let pending = Self { decision: Some(decision), asks, limiters, place, counted, _counted };
        pending.give_back_turns();
        pending
    }

    /// The decision of the request, if its turn has come; otherwise the time until which to wait.
    pub(super) fn poll(&mut self, waker: &Waker) -> Result<Decision, Instant> {
        let turn = self.queues().poll(&self.place, waker)?;
        let receipts = self.asks.iter().copied().zip(turn.receipts);
        let decision = self.decision.take().expect("a turn comes once");
        Ok(decision.at_turn(turn.spent_us, receipts))
    }

    /// The latest moment at which the request proceeds.
    pub(super) fn at_latest(&self) -> Instant {
        self.place.at_latest()
    }

    pub(super) fn leave(&self) {
        if !self.queues().leave(&self.place) {
            return;
        }
        if !self.counted.is_empty() {
            let spends = self.counted.iter().map(|(limiter, key, receipt)| (limiter, key, receipt));
            // The store starts at once; its answer is not needed here.
            drop(report(spends, Mode::Refund));
        }
        self.give_back_turns();
    }

    /// Gives back the turns of the line that no request needs, if nobody does.
    fn give_back_turns(&self) {
        let Some(first) = self.queues().start_returns(&self.place) else { return };
        let place = Arc::clone(&self.place);
        let returns = TurnReturns { limiters: self.limiters.clone(), place, is_over: false };
        let mut returns = Box::pin(returns.give_back(first));
        // Memory answers at once. Without a runtime, the store is asked about the first turn only.
        if returns.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
            && let Ok(runtime) = Handle::try_current()
        {
            spawn(&runtime, returns);
        }
    }

    /// The queues in which the request waits for its turn.
    fn queues(&self) -> &Queues {
        self.limiters[0].queues()
    }
}

/// Gives back the turns of a line, one after the other: the store takes back only its last turn, and over a network one return may
/// overtake another.
struct TurnReturns {
    limiters: SmallVec<[RateLimiter; 1]>,
    place: Arc<TurnPlace>,
    is_over: bool,
}

impl TurnReturns {
    async fn give_back(mut self, first: SurplusTurn) {
        let mut next = Some(first);
        while let Some(surplus) = next {
            let answer = self.report(&surplus.1.1).await;
            // Without an answer it is unknown whether the turn was taken back: it is lost rather than used twice.
            let kept = answer.is_ok_and(|decision| !decision.is_allowed()).then_some(surplus);
            next = self.limiters[0].queues().next_return(&self.place, kept);
        }
        self.is_over = true;
    }

    fn report(&self, turn: &ReservedTurn) -> DecisionFuture {
        let keys = self.place.line.limits.iter().map(|(_, key)| key);
        let spends = self.limiters.iter().zip(keys).zip(&turn.receipts);
        report(
            spends.filter_map(|((limiter, key), receipt)| Some((limiter, key, receipt.as_ref()?))),
            Mode::Return,
        )
    }
}

impl Drop for TurnReturns {
    /// Its runtime may end before the store has answered.
    fn drop(&mut self) {
        if !self.is_over {
            self.limiters[0].queues().stop_returns(&self.place);
        }
    }
}
