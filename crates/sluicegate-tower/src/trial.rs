//! What one request asked of a policy that is only tried out.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_core::{Key, Mode, RateLimiter};

use crate::asks::Asked;
use crate::plan::Slot;

/// What a request asked of a policy in shadow, so that it can be given back as if the policy were enforced.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) slot: usize,
    pub(crate) limiter: RateLimiter,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    state: Mutex<State>,
}

/// The verdict may come after the response.
#[derive(Clone, Copy, Debug)]
enum State {
    Asked,
    /// Nothing is known yet, and so much is to be given back if it was spent.
    GivenBack(u64),
    /// When it was spent.
    Spent(u64),
    /// It was refused, or given back.
    Over,
}

impl Trial {
    pub(crate) fn new(slots: &[Slot], Asked { slot, key, cost }: Asked) -> Self {
        let limiter = slots[slot].limiter.clone();
        Self { slot, limiter, key, cost, state: Mutex::new(State::Asked) }
    }

    /// Takes note of when it was spent, if it was.
    pub(crate) fn is_known(&self, spent_us: Option<u64>) {
        let mut state = self.state();
        if let (State::GivenBack(units), Some(spent_us)) = (*state, spent_us) {
            self.refund(units, spent_us);
        }
        *state = match (*state, spent_us) {
            (State::Asked, Some(spent_us)) => State::Spent(spent_us),
            _ => State::Over,
        };
    }

    /// Gives so many units back, now or when it is known that they were spent.
    pub(crate) fn give_back(&self, units: u64) {
        let mut state = self.state();
        if let State::Spent(spent_us) = *state {
            self.refund(units, spent_us);
        }
        *state = match *state {
            State::Asked => State::GivenBack(units),
            _ => State::Over,
        };
    }

    /// Units that it has spent as far as is known, and when that was.
    pub(crate) fn spent(&self) -> (u64, Option<u64>) {
        match *self.state() {
            State::Asked => (self.cost, None),
            State::Spent(spent_us) => (self.cost, Some(spent_us)),
            State::GivenBack(_) | State::Over => (0, None),
        }
    }

    fn refund(&self, units: u64, spent_us: u64) {
        let mode = Mode::Refund { spent_us: Some(spent_us) };
        // The store begins with it at once; nobody has to wait for its answer.
        drop(RateLimiter::decide_all([(&self.limiter, &self.key, units, Some(mode))]));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
