//! The questions that every algorithm answers about its state: [`Shape`].
//!
//! Adding an algorithm is one file with an `impl Shape`, a line in the list of
//! [`Rule`](super::Rule)s, a name in `choice.rs` and an arm in `Rule::new`. Code outside of this
//! folder asks these questions rather than which algorithm a rule is.

use std::num::{NonZeroU64, NonZeroU128};

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

    /// The state without a turn that has not come; it may be at rest by now.
    fn take_back(&self, _state: State, _turn: &Spent) -> Option<State> {
        None
    }

    /// See [`Rule::heavier`](super::Rule::heavier).
    fn heavier(&self, one: State, other: State, now_us: u64) -> State {
        std::cmp::max_by_key(one, other, |state| self.weight(*state, now_us))
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

    /// The state of a newcomer from now on, where newcomers start with less than a burst.
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

    /// The state with this level, as far as the ceiling allows.
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

/// `value * times / by`, rounded down, whatever the product.
///
/// For spans and units whose product may exceed 64 bits.
pub(super) fn quotient(value: u64, times: NonZeroU64, by: NonZeroU64) -> u64 {
    let product = u128::from(value).saturating_mul(times.get().into());
    u64::try_from(product / NonZeroU128::from(by)).unwrap_or(u64::MAX)
}

/// The result of a cost that was to be spent at once, and what remains.
pub(crate) struct Looked {
    /// Whether it fitted. If not, `state` is the state from before.
    pub(crate) passed: bool,
    pub(crate) state: State,
    pub(crate) left: Left,
}

/// Receives the new state as soon as it is known, or `None` if the state stays. The numbers come later, so that no other request
/// waits for them behind a lock.
// A trait instead of a closure: closures are not always inlined.
pub(crate) trait SpendState {
    fn settle(self, after: Option<State>);
}

impl SpendState for () {
    #[inline]
    fn settle(self, _after: Option<State>) {}
}

/// The rest of a quota after a cost that was to be spent at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    pub(crate) remaining: u64,
    pub(crate) reset_after_us: u64,
    /// The time until one unit more remains, or until the cost that did not fit would.
    pub(crate) available_after_us: u64,
}

/// The integers of a rule, for stores that decide in another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    kind: u8,
    starts_short: bool,
    count: usize,
    numbers: [u64; Self::MOST],
}

impl Numbers {
    /// The most numbers that a rule has.
    pub const MOST: usize = 6;

    /// Stands for a level that is never reached.
    pub const NONE: u64 = u64::MAX;

    pub(super) fn new(kind: u8) -> Self {
        Self { kind, starts_short: false, count: 0, numbers: [0; Self::MOST] }
    }

    pub(super) fn then(mut self, number: u64) -> Self {
        if let Some(next) = self.numbers.get_mut(self.count) {
            *next = number;
            self.count = self.count.saturating_add(1);
        }
        self
    }

    /// The numbers of this bucket where newcomers lack this many units.
    pub(super) fn of_newcomers(mut self, missing: u64) -> Self {
        self.starts_short = true;
        if let Some(last) = self.numbers.last_mut() {
            *last = missing;
        }
        self
    }

    /// The number of the algorithm: 1 for GCRA, 2 for fixed windows, 3 for sliding counters, 4 for sliding logs.
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Whether [newcomers](super::Starting) lack units of a burst; the last number then says how many.
    pub fn starts_short(&self) -> bool {
        self.starts_short
    }

    /// The numbers, in the order that the algorithm's type names them; behind them zeros. [`NONE`](Self::NONE) stands for a
    /// level that is never reached.
    pub fn all(&self) -> [u64; Self::MOST] {
        self.numbers
    }
}
