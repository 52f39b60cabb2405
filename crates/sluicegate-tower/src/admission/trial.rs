//! One request's ask of a policy in shadow.
//!
//! The verdict may come before the response or after it, and the response may give the units
//! back. The later of the two gives them back; the mutex orders the two.

use std::mem;
use std::sync::{Mutex, MutexGuard};

use sluicegate_core::limiter::Receipt;
use sluicegate_core::support::lock;
use sluicegate_core::{Decision, Key, RateLimiter};

use crate::limits::finding::RequestAsk;
use crate::limits::plan::LimitPlan;

/// A request's ask of a policy in shadow, so that it can be given back as if the policy were enforced.
#[derive(Debug)]
pub(crate) struct Trial {
    /// The index of its limit.
    pub(crate) limit: usize,
    pub(crate) limiter: RateLimiter,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    state: Mutex<TrialState>,
}

/// The verdict may come after the response.
#[derive(Debug)]
enum TrialState {
    Asked,
    /// The verdict is pending, and this many units of its spend have to be given back.
    GivenBack(u64),
    Spent(Receipt),
    /// The spend was given back, or the meter has it.
    Over,
    /// The ask was refused, or not counted.
    Unspent,
}

impl Trial {
    pub(crate) fn new(plan: &LimitPlan, asked: RequestAsk) -> Self {
        let limiter = asked.limiter(plan).clone();
        let RequestAsk { limit, key, cost, .. } = asked;
        Self { limit, limiter, key, cost, state: Mutex::new(TrialState::Asked) }
    }

    /// Records the verdict and its spend.
    pub(super) fn settle(&self, decision: Option<&mut Decision>) {
        let is_spent =
            decision.as_ref().is_some_and(|decision| decision.is_allowed() && decision.is_counted());
        let receipt = decision.and_then(|decision| decision.take_receipt(0));
        let mut state = self.state();
        *state = match (&*state, receipt) {
            (TrialState::Asked, Some(receipt)) => TrialState::Spent(receipt),
            (TrialState::GivenBack(units), Some(receipt)) => self.refund(receipt, *units),
            _ if is_spent => TrialState::Over,
            _ => TrialState::Unspent,
        };
    }

    /// Gives up to this many units of the spend back, now or when the verdict comes.
    pub(super) fn give_back(&self, units: u64) {
        let mut state = self.state();
        *state = match mem::replace(&mut *state, TrialState::Over) {
            TrialState::Asked => TrialState::GivenBack(units),
            TrialState::GivenBack(before) => TrialState::GivenBack(before.saturating_add(units)),
            TrialState::Spent(receipt) => self.refund(receipt, units),
            over => over,
        };
    }

    /// Whether the verdict has come, and the ask has spent nothing.
    pub(super) fn is_unspent(&self) -> bool {
        matches!(*self.state(), TrialState::Unspent)
    }

    /// Returns the receipt of the spend, if the verdict has arrived.
    pub(crate) fn take_receipt(&self) -> Option<Receipt> {
        let mut state = self.state();
        match mem::replace(&mut *state, TrialState::Over) {
            TrialState::Spent(receipt) => Some(receipt),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Gives units of a receipt back, and keeps the rest.
    fn refund(&self, mut receipt: Receipt, units: u64) -> TrialState {
        let rest = receipt.split(units);
        // The store starts at once; its answer is not awaited.
        drop(self.limiter.refund(&self.key, units).of(&mut receipt).start());
        rest.map_or(TrialState::Over, TrialState::Spent)
    }

    fn state(&self) -> MutexGuard<'_, TrialState> {
        lock(&self.state)
    }
}
