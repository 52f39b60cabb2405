//! The questions that every algorithm answers about its state: [`Shape`], and the numbers of the answers: [`Balance`].
//!
//! Adding an algorithm is one file with an `impl Shape`, a line in the list of
//! [`Rule`](super::Rule)s, and a name and an arm in `choice.rs`. Code outside of this
//! folder asks these questions rather than which algorithm a rule is.

use std::num::{NonZeroU64, NonZeroU128};

use super::numbers::Numbers;
use super::{Slot, Spent, State};

/// An algorithm, reduced to the integers of one quota. The default methods are those of an algorithm without a [`State`], such as
/// the sliding log, whose entries the store keeps.
pub(super) trait Shape: Copy {
    /// See [`Rule::capacity`](super::Rule::capacity).
    fn capacity(&self) -> u64;

    /// This algorithm with another ceiling for debts, in units; the ceiling is at least the capacity.
    fn with_debt(self, units: u64) -> Self;

    /// This algorithm for one of several parts of a quota: it rounds its count up instead of down.
    fn rounding_up(self) -> Self {
        self
    }

    /// See [`Rule::debt_ceiling`](super::Rule::debt_ceiling).
    fn debt_ceiling(&self) -> u64;

    /// See [`Rule::longest_spend_us`](super::Rule::longest_spend_us).
    fn longest_spend_us(&self) -> u64;

    /// See [`Rule::numbers`](super::Rule::numbers).
    fn numbers(&self) -> Numbers;

    /// See [`Rule::words`](super::Rule::words).
    fn words(&self, state: State) -> [u64; 3] {
        [state.until_us, state.aux, 0]
    }

    /// See [`Rule::of_words`](super::Rule::of_words).
    fn of_words(&self, [until_us, aux, _]: [u64; 3]) -> State {
        State::new(until_us, aux)
    }

    /// See [`Rule::slot`](super::Rule::slot).
    #[inline]
    fn slot(&self, _state: State, now_us: u64, _cost: u64) -> Slot {
        Slot::at(now_us)
    }

    /// See [`Rule::spend`](super::Rule::spend).
    #[inline]
    fn spend(&self, state: State, _now_us: u64, _at_us: u64, _cost: u64) -> State {
        state
    }

    /// See [`Rule::spend_now`](super::Rule::spend_now).
    #[inline]
    fn look(&self, _state: State, _now_us: u64, _cost: u64, _settle: impl SpendState) -> Option<Looked> {
        None
    }

    /// See [`Rule::charge`](super::Rule::charge).
    fn charge(&self, state: State, _now_us: u64, _cost: u64) -> (State, u64) {
        (state, 0)
    }

    /// See [`Rule::refund`](super::Rule::refund).
    fn refund(&self, state: State, _now_us: u64, _ago_us: u64, _cost: u64) -> State {
        state
    }

    /// See [`Rule::give_back`](super::Rule::give_back).
    fn give_back(&self, state: State, _now_us: u64, _spent: &Spent, _give: u64) -> (State, u64) {
        (state, 0)
    }

    /// The state without a turn that has not started; it may be at rest by now.
    fn take_back(&self, _state: State, _turn: &Spent) -> Option<State> {
        None
    }

    /// See [`Rule::heavier`](super::Rule::heavier).
    fn heavier(&self, one: State, other: State, now_us: u64) -> State {
        std::cmp::max_by_key(one, other, |state| self.weight(*state, now_us))
    }

    /// All numbers that a decision reports of a state with known remaining units.
    #[inline]
    fn balance(&self, state: State, now_us: u64, remaining: u64) -> Balance {
        Balance { capacity: self.capacity(), remaining, reset_after_us: self.reset_after_us(state, now_us) }
    }

    /// The result of a look that results in this state.
    #[inline]
    fn looked(
        &self,
        passed: bool,
        (state, now_us): (State, u64),
        remaining: u64,
        available_after_us: u64,
    ) -> Looked {
        Looked { passed, state, balance: self.balance(state, now_us, remaining), available_after_us }
    }

    /// See [`Rule::remaining`](super::Rule::remaining).
    #[inline]
    fn remaining(&self, _state: State, _now_us: u64) -> u64 {
        0
    }

    /// See [`Rule::used`](super::Rule::used).
    fn used(&self, _state: State, _now_us: u64) -> u64 {
        0
    }

    /// See [`Rule::reset_after_us`](super::Rule::reset_after_us).
    #[inline]
    fn reset_after_us(&self, state: State, now_us: u64) -> u64 {
        state.until_us.saturating_sub(now_us)
    }

    /// See [`Rule::level`](super::Rule::level).
    #[inline]
    fn level(&self, state: State, now_us: u64) -> u64 {
        self.used(state, now_us)
    }

    /// See [`Rule::per_unit`](super::Rule::per_unit).
    fn per_unit(&self) -> u64 {
        1
    }

    /// Rounds a moment down to the rule's time unit.
    fn floor_us(&self, now_us: u64) -> u64 {
        now_us
    }

    /// The state of a newcomer from now on, if newcomers start with less than a burst.
    fn begun(&self, _now_us: u64) -> State {
        State::REST
    }

    /// The state of a key that is known and owes nothing.
    fn full(&self, _now_us: u64) -> State {
        State::REST
    }

    /// The state that the bucket alone, without newcomers, has for this state.
    fn plain(&self, state: State, _now_us: u64) -> State {
        state
    }

    /// The state for a state of the bucket alone; a bucket at rest counts as full from now on.
    fn kept(&self, state: State, _now_us: u64) -> State {
        state
    }

    /// See [`Rule::take_back`](super::Rule::take_back): if nothing is left, the key owes nothing.
    fn without(&self, state: State, now_us: u64, turn: &Spent) -> Option<State> {
        let state = self.take_back(state, turn)?;
        Some(if state.until_us <= now_us { State::REST } else { state })
    }

    /// The state with this level, limited to the ceiling.
    fn at_level(&self, level: u64, now_us: u64) -> State {
        self.spend(State::REST, now_us, now_us, level)
    }

    /// The state under these numbers that continues a state of `from`; `None` if it has to be made anew.
    fn carried(&self, _from: &Self, _state: State, _now_us: u64) -> Option<State> {
        None
    }

    /// See [`Rule::outstanding`](super::Rule::outstanding).
    fn outstanding(&self, state: State, now_us: u64) -> u64 {
        self.used(state, now_us)
    }

    /// See [`Rule::weight`](super::Rule::weight).
    fn weight(&self, state: State, now_us: u64) -> (u64, u64) {
        (self.outstanding(state, now_us), state.until_us)
    }

    /// See [`Rule::drains_in`](super::Rule::drains_in).
    fn drains_in(&self, _span_us: u64) -> Option<u64> {
        None
    }

    /// See [`Rule::is_level`](super::Rule::is_level).
    fn is_level(&self) -> bool {
        false
    }

    /// See [`Rule::is_queue`](super::Rule::is_queue).
    #[inline]
    fn is_queue(&self) -> bool {
        false
    }

    /// See [`Rule::lease_lasts_us`](super::Rule::lease_lasts_us).
    fn lease_lasts_us(&self, _after: State, _at_us: u64, _behind: u64) -> u64 {
        0
    }

    /// A number that `aux` is always below; `u64::MAX` for a state of two words.
    fn aux_bound(&self) -> u64 {
        u64::MAX
    }
}

/// `value * times / by`, rounded down, however large the product.
///
/// For spans and units whose product may exceed 64 bits.
pub(super) fn quotient(value: u64, times: NonZeroU64, by: NonZeroU64) -> u64 {
    let product = u128::from(value).saturating_mul(times.get().into());
    u64::try_from(product / NonZeroU128::from(by)).unwrap_or(u64::MAX)
}

/// The numbers of one quota: what is left of it. For authors of stores.
///
/// A rule makes them from a state ([`Rule::balance`](super::Rule::balance)), and a decision carries them unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Balance {
    /// Units that pass at once from rest: the limit of a window, the burst of a bucket.
    pub capacity: u64,
    /// Units that would pass now.
    pub remaining: u64,
    /// The time until all of the capacity is back, in microseconds.
    pub reset_after_us: u64,
}

impl Balance {
    /// A quota with all of its capacity.
    #[inline]
    pub fn at_rest(capacity: u64) -> Self {
        Self { capacity, remaining: capacity, reset_after_us: 0 }
    }

    /// The balance of a quota of this capacity that is counted in parts: the sum of the balances of the parts.
    pub fn of_parts(capacity: u64, parts: impl IntoIterator<Item = Self>) -> Self {
        let none = Self { remaining: 0, ..Self::at_rest(capacity) };
        parts.into_iter().fold(none, |whole, part| Self {
            remaining: whole.remaining.saturating_add(part.remaining).min(capacity),
            reset_after_us: whole.reset_after_us.max(part.reset_after_us),
            ..whole
        })
    }

    /// The numbers in the order of the fields, as a store that decides in another language sends them.
    pub fn told([capacity, remaining, reset_after_us]: [u64; 3]) -> Self {
        Self { capacity, remaining, reset_after_us }
    }

    /// These numbers, but with this many units that would pass now.
    #[inline]
    #[must_use]
    pub fn with_remaining(self, remaining: u64) -> Self {
        Self { remaining, ..self }
    }
}

/// The result of an attempt to spend a cost at once, with the remaining units.
pub(crate) struct Looked {
    /// Whether it fitted. If not, `state` is the state from before.
    pub(crate) passed: bool,
    pub(crate) state: State,
    pub(crate) balance: Balance,
    /// The time until one unit more remains, or until the refused cost would fit.
    pub(crate) available_after_us: u64,
}

/// Receives the new state as soon as it is known, or `None` if it is unchanged. The numbers follow later, so that no other request
/// waits for them behind a lock.
// A trait instead of a closure: closures are not always inlined.
pub(crate) trait SpendState {
    fn settle(self, after: Option<State>);
}

impl SpendState for () {
    #[inline]
    fn settle(self, _after: Option<State>) {}
}
