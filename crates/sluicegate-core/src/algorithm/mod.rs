//! The algorithms, as pure functions from state, time and cost to new state. For authors of stores.
//!
//! Everyone else names an [`Algorithm`] in a policy and never meets this module. A store keeps one
//! [`State`] (two integers) per key and quota, and asks the quota's [`Rule`] three things: when would this cost
//! pass ([`Rule::slot`]), what is the state after it ([`Rule::spend`]), and what is left ([`Rule::remaining`]).
//! The sliding log, whose state is a list, is the one exception; see [`SlidingLog`].
//!
//! All arithmetic is on integers below 2^53, so that the same rules run as Lua inside Redis with the same results.
//!
//! ```
//! use sluicegate_core::algorithm::{Rule, State};
//! use sluicegate_core::{Algorithm, Quota};
//!
//! let rule = Rule::new(Algorithm::Gcra, Quota::per_second(2))?;
//! let mut state = State::REST;
//! for _ in 0..2 {
//!     assert_eq!(rule.slot(state, 0, 1).opens_us, 0); // passes now
//!     state = rule.spend(state, 0, 0, 1);
//! }
//! assert_eq!(rule.slot(state, 0, 1).opens_us, 500_000); // would pass in half a second
//! assert_eq!(rule.remaining(state, 0), 0);
//! # Ok::<(), sluicegate_core::ConfigError>(())
//! ```
#![warn(clippy::arithmetic_side_effects)]

mod checked;
mod choice;
mod fixed_window;
mod gcra;
mod inherit;
mod leaky_bucket;
mod sliding_counter;
mod sliding_log;
mod token_bucket;

use self::checked::Checked;
pub use self::choice::{Algorithm, Anchor, Drain, Refill};
pub use self::fixed_window::FixedWindow;
pub use self::gcra::Gcra;
pub use self::inherit::{Inherit, Units};
pub use self::sliding_counter::SlidingCounter;
pub use self::sliding_log::SlidingLog;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;

/// A moment that never comes: no wait makes this cost fit.
pub const NEVER: u64 = u64::MAX;

/// The longest period, and the longest time in which a burst may refill: ten years of 365 days.
pub const LONGEST_US: u64 = 315_360_000_000_000;

/// How far into the future a debt can reach before it saturates: thirty years.
const DEBT_HORIZON_US: u64 = 3 * LONGEST_US;

/// Products of cost and time stay at or below this, so that twice as much is exact in a double: room for a debt.
const EXACT: u64 = 1 << 52;

/// What is remembered of one key under one quota: the moment it is back at rest, and one number more.
///
/// Every rule can rebuild its state from these two, and every state says in the same way how long it still matters:
/// at `until_us` a store may forget it without changing any later decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// When the key is back at rest, in microseconds of the store's clock; 0 for a key at rest.
    pub until_us: u64,
    /// What else the rule needs: a remainder, a count, two counts.
    pub aux: u64,
}

impl State {
    /// A key that has never been seen, or not for long enough.
    pub const REST: Self = Self { until_us: 0, aux: 0 };

    /// A state as it was stored.
    pub const fn new(until_us: u64, aux: u64) -> Self {
        Self { until_us, aux }
    }

    /// Set in `aux` when a turn was reserved ahead of time: until then, nobody may overtake it.
    const CLOSED: u64 = 1 << 63;

    fn is_closed(self) -> bool {
        self.aux & Self::CLOSED != 0
    }

    fn count(self) -> u64 {
        self.aux & !Self::CLOSED
    }
}

/// When a cost could pass if nothing else arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// When it is let in: the current time if at once, [`NEVER`] if it can never fit.
    pub opens_us: u64,
    /// When it may go on: later than `opens_us` only in a leaky bucket that shapes.
    pub departs_us: u64,
}

impl Slot {
    /// It is let in at this moment, and may go on at once.
    pub const fn at(us: u64) -> Self {
        Self { opens_us: us, departs_us: us }
    }
}

/// What a cost found when it was spent, and left behind: what it takes to give exactly that back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores put it together")]
pub struct Spent {
    /// When it began to count, in microseconds of the store's clock.
    pub at_us: u64,
    /// Units that were spent, as far as they took effect and were not given back since.
    pub cost: u64,
    /// The level that it found ([`Rule::level`]).
    pub found: u64,
    /// How much was given back to the bucket since, by [`Rule::give_back`].
    pub given_since: u64,
    /// The state before.
    pub before: State,
    /// The state after.
    pub after: State,
}

/// One quota under one algorithm, reduced to the integers that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// GCRA, the greedy token bucket and the leaky bucket.
    Gcra(Gcra),
    /// The fixed window and the token buckets that refill at intervals.
    FixedWindow(FixedWindow),
    /// The sliding window counter.
    SlidingCounter(SlidingCounter),
    /// The sliding window log, whose state is a list of entries and not a [`State`].
    SlidingLog(SlidingLog),
}

/// Sends a call to whichever rule this is; the log, which has no [`State`], answers as given.
macro_rules! dispatch {
    ($self:expr, $rule:ident => $call:expr, log => $log:expr) => {
        match $self {
            Rule::Gcra($rule) => $call,
            Rule::FixedWindow($rule) => $call,
            Rule::SlidingCounter($rule) => $call,
            Rule::SlidingLog(_) => $log,
        }
    };
}

impl Rule {
    /// Reduces a quota to the integers of its algorithm.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Quota`] for zeros and spans that are too long, [`ConfigErrorKind::Burst`] for a burst in
    /// windows, [`ConfigErrorKind::Inexact`] for what cannot be kept in exact integers. The message names the value and the bound.
    pub fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, ConfigError> {
        let checked = Checked::new(quota)?;
        if algorithm.is_window() && quota.burst_size() != quota.limit() {
            return Err(ConfigError::new(
                ConfigErrorKind::Burst,
                format!(
                    "{algorithm} knows no burst, but the quota is {quota}: leave the burst out, or use a token bucket or GCRA"
                ),
            ));
        }
        Ok(match algorithm {
            Algorithm::FixedWindow(anchor) => {
                Self::FixedWindow(FixedWindow::new(checked, anchor.is_aligned())?)
            }
            Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::new(checked)?),
            Algorithm::SlidingCounter => Self::SlidingCounter(SlidingCounter::new(checked)?),
            Algorithm::TokenBucket(refill) => token_bucket::rule(checked, refill)?,
            Algorithm::LeakyBucket(drain) => leaky_bucket::rule(checked, drain)?,
            Algorithm::Gcra => Self::Gcra(Gcra::new(checked)?),
        })
    }

    /// When `cost` would pass if nothing else arrived.
    #[inline]
    pub fn slot(&self, state: State, now_us: u64, cost: u64) -> Slot {
        dispatch!(self, rule => rule.slot(state, now_us, cost), log => Slot::at(now_us))
    }

    /// The state after `cost` went on at `at_us`, which is `now_us` or a reserved turn later than that.
    #[inline]
    pub fn spend(&self, state: State, now_us: u64, at_us: u64, cost: u64) -> State {
        dispatch!(self, rule => rule.spend(state, now_us, at_us, cost), log => state)
    }

    /// The state after `cost` was spent whether it fits or not, and how many units of it took effect: what does not fit
    /// is a debt, up to [`debt_ceiling`](Self::debt_ceiling).
    #[inline]
    pub fn charge(&self, state: State, now_us: u64, cost: u64) -> (State, u64) {
        dispatch!(self, rule => rule.charge(state, now_us, cost), log => (state, 0))
    }

    /// The same rule with another ceiling for debts, in units; at least its capacity.
    pub(crate) fn with_debt(self, units: u64) -> Self {
        let units = units.max(self.capacity());
        match self {
            Self::Gcra(rule) => Self::Gcra(rule.with_debt(units)),
            Self::FixedWindow(rule) => Self::FixedWindow(rule.with_debt(units)),
            Self::SlidingCounter(rule) => Self::SlidingCounter(rule.with_debt(units)),
            Self::SlidingLog(rule) => Self::SlidingLog(rule.with_debt(units)),
        }
    }

    /// The units above which a charge is forgotten: ten bursts or ten limits, whichever is more, or what the policy says,
    /// as far as that is exact.
    pub fn debt_ceiling(&self) -> u64 {
        match self {
            Self::Gcra(rule) => rule.ceiling() / rule.spacing(),
            Self::FixedWindow(rule) => rule.ceiling(),
            Self::SlidingCounter(rule) => rule.ceiling(),
            Self::SlidingLog(rule) => rule.ceiling(),
        }
    }

    /// The state after `cost`, spent `ago_us` before, was given back as far as it still counts; never better than at
    /// rest, and never better than had it not been spent.
    #[inline]
    pub fn refund(&self, state: State, now_us: u64, ago_us: u64, cost: u64) -> State {
        dispatch!(self, rule => rule.refund(state, now_us, ago_us, cost), log => state)
    }

    /// The state after up to `give` units of what was spent were given back, and how much that was, in the measure of
    /// [`level`](Self::level). Units drain in the order in which they came, so nothing comes back that has drained.
    pub fn give_back(&self, state: State, now_us: u64, spent: &Spent, give: u64) -> (State, u64) {
        dispatch!(self, rule => rule.give_back(state, now_us, spent, give), log => (state, 0))
    }

    /// The state without a turn that has not come; `None` if a later one may depend on it.
    pub fn take_back(&self, state: State, now_us: u64, turn: &Spent) -> Option<State> {
        let state = match self {
            Self::Gcra(_) => (state == turn.after).then_some(turn.before),
            Self::FixedWindow(rule) => rule.take_back(state, turn),
            Self::SlidingCounter(rule) => rule.take_back(state, turn),
            Self::SlidingLog(_) => None,
        };
        state.map(|state| if state.until_us <= now_us { State::REST } else { state })
    }

    /// A state that lets nothing pass at any moment that one of these two would not: the heavier one, or what is as heavy as
    /// both. Of two states that are not at rest.
    pub(crate) fn heavier(&self, one: State, other: State, now_us: u64) -> State {
        match self {
            Self::Gcra(_) => std::cmp::max_by_key(one, other, |state| (state.until_us, !state.aux)),
            Self::FixedWindow(rule) => rule.heavier(one, other, now_us),
            Self::SlidingCounter(rule) => rule.heavier(one, other, now_us),
            Self::SlidingLog(_) => one,
        }
    }

    /// How full the bucket is, in the finest measure of its rule: parts of a unit under GCRA, whole units otherwise.
    #[inline]
    pub fn level(&self, state: State, now_us: u64) -> u64 {
        match self {
            Self::Gcra(rule) => rule.level(state, now_us),
            rule => rule.used(state, now_us),
        }
    }

    /// How many units would pass now, rounded down.
    #[inline]
    pub fn remaining(&self, state: State, now_us: u64) -> u64 {
        dispatch!(self, rule => rule.remaining(state, now_us), log => 0)
    }

    /// How many units are counted against the capacity, rounded up; more than it for a debt.
    pub fn used(&self, state: State, now_us: u64) -> u64 {
        match self {
            Self::Gcra(rule) => rule.used(state, now_us),
            Self::FixedWindow(rule) => rule.used(state, now_us),
            Self::SlidingCounter(rule) => rule.used(state, now_us),
            Self::SlidingLog(_) => 0,
        }
    }

    /// Microseconds until the whole capacity is back.
    #[inline]
    pub fn reset_after_us(&self, state: State, now_us: u64) -> u64 {
        dispatch!(self, rule => rule.reset_after_us(state, now_us), log => 0)
    }

    /// How many units pass at once from rest: the burst of a bucket, the limit of a window.
    #[inline]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Gcra(rule) => rule.burst(),
            Self::FixedWindow(rule) => rule.burst(),
            Self::SlidingCounter(rule) => rule.limit(),
            Self::SlidingLog(rule) => rule.limit(),
        }
    }

    /// Whether what is let in waits its turn inside: a leaky bucket that shapes.
    #[inline]
    pub fn is_queue(&self) -> bool {
        matches!(self, Self::Gcra(rule) if rule.undelayed() != u64::MAX)
    }

    /// How far ahead a state can reach that comes from spending alone, without debts and reserved turns.
    pub fn longest_spend_us(&self) -> u64 {
        match self {
            Self::Gcra(rule) => rule.refill_us(),
            Self::FixedWindow(rule) => rule.refill_us(),
            Self::SlidingCounter(rule) => rule.period_us().get().saturating_mul(2),
            Self::SlidingLog(rule) => rule.period_us().get(),
        }
    }

    /// Whether `aux` is always below 4,096, so that a state fits one 64-bit word beside a 52-bit time.
    pub fn fits_one_word(&self) -> bool {
        matches!(self, Self::Gcra(rule) if rule.ticks().get() <= 4_096)
    }
}

#[cfg(test)]
mod tests;
