//! The questions that every algorithm answers about its state: [`Shape`], and the numbers of the answers: [`Balance`].
//!
//! Adding an algorithm is one file with an `impl Shape`, a line in the list of
//! [`Rule`](super::Rule)s, and an arm there, and a name in `quota.rs`. Code outside of this
//! folder asks these questions rather than which algorithm a rule is.

use std::num::{NonZeroU64, NonZeroU128};

use super::{Rule, Slot, Spent, State};
use crate::text::words;

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

/// The integers of a rule, for stores that decide in another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    kind: u8,
    starts_short: bool,
    numbers: [u64; Self::MOST],
}

impl Numbers {
    /// The most numbers that a rule has.
    pub const MOST: usize = 6;

    /// Stands for a level that is never reached.
    pub const NONE: u64 = u64::MAX;

    pub(super) fn new(kind: u8, numbers: [u64; Self::MOST]) -> Self {
        Self { kind, starts_short: false, numbers }
    }

    /// The numbers of this bucket for newcomers that lack this many units.
    pub(super) fn of_newcomers(mut self, missing: u64) -> Self {
        self.starts_short = true;
        self.numbers[Self::MOST - 1] = missing;
        self
    }

    /// The numbers of these windows by the periods of a calendar.
    pub(super) fn in_calendar(mut self, id: u32) -> Self {
        self.kind = 5;
        self.numbers[Self::MOST - 2] = id.into();
        self
    }

    /// The number of the algorithm: 1 for GCRA, 2 for fixed windows, 3 for sliding counters, 4 for sliding logs, 5 for windows of a
    /// calendar.
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

/// How the keys of a replaced policy start under the new one. Written `spent`, `reset`, `as-is`, `proportional` and `additive`.
///
/// Each key is converted as it was at the moment of the replacement, whichever request comes first: from then on its units come back at
/// the new rate, and a look or a refusal changes nothing. A key with quotas of its own keeps them until it spends by others. On Redis a
/// key that spends nothing after the replacement is forgotten when its units would have come back under the old policy, and a process
/// that begins with another policy converts keys as they were after their last change.
///
/// A quota inherits from the quota with the same rule; if there is none, from the quota with the same
/// id; if there is none, from the quota that has counted most. A quota with an unchanged rule is not
/// touched at all. A memory store follows a key through up to 32 replacements between two of its
/// requests.
///
/// # What a key has left
/// A key that has spent 60 of 100 units an hour, when the limit becomes 50 or 200:
///
/// | | of 50 | of 200 | take it when |
/// |---|---|---|---|
/// | [`Spent`](Self::Spent) | none, and a debt of 10 | 140 | the limit changes and the past counts: the default |
/// | [`Reset`](Self::Reset) | 50 | 200 | the old numbers were wrong, or all debts should be forgiven |
/// | [`AsIs`](Self::AsIs) | 40 | 40 | units were bought, and are neither given nor taken away |
/// | [`Proportional`](Self::Proportional) | 20 | 80 | the unit itself has changed |
/// | [`Additive`](Self::Additive) | 40 | 140 | an upgrade adds units, and a downgrade takes none |
///
/// All but [`Spent`](Self::Spent) are Bucket4j's (`TokensInheritanceStrategy`).
///
/// ```
/// use sluicegate_core::limiter::Inherit::{self, *};
/// use sluicegate_core::{MemoryStore, Policy};
///
/// let left = |inherit: Inherit, limit: &str| {
///     let plan = Policy::fixed_window("plan", "100/h").on(&MemoryStore::new())?;
///     plan.check("ada").cost(60).now().expect("memory answers at once")?;
///     plan.replace(Policy::fixed_window("plan", limit).build()?, inherit)?;
///     let decision = plan.peek("ada").now().expect("memory answers at once")?;
///     Ok::<_, Box<dyn std::error::Error>>(decision.remaining())
/// };
/// for (inherit, of_50, of_200) in
///     [(Spent, 0, 140), (Reset, 50, 200), (AsIs, 40, 40), (Proportional, 20, 80), (Additive, 40, 140)]
/// {
///     assert_eq!((left(inherit, "50/h")?, left(inherit, "200/h")?), (of_50, of_200), "{inherit}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Inherit {
    /// With the spent units: 50 of 100 become 50 of 10, a debt of 40. No key gains by the replacement, whatever
    /// the old and the new algorithm. A debt under a fixed window ends with the window, and
    /// under a sliding counter or log it is forgotten after its periods.
    #[default]
    Spent,
    /// With no past: every key has the whole new burst, or the units that an unknown key [starts](crate::Quota::starting_with) with.
    Reset,
    /// With the units that remained, up to the new burst.
    AsIs,
    /// With the remaining part of the burst, in proportion.
    Proportional,
    /// With the units that remained, plus the growth of the burst.
    Additive,
}

words!(Inherit decides "how keys start under a policy that replaces another":
    "spent" => Spent, "reset" => Reset, "as-is" => AsIs, "proportional" => Proportional, "additive" => Additive);

/// Units as an exact fraction: `parts / per_unit`, negative for a debt.
///
/// ```
/// use sluicegate_core::algorithm::Units;
///
/// assert_eq!(Units::whole(40).missing_of(100), 60);
/// assert_eq!(Units::whole(-10).missing_of(100), 110); // a debt
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    parts: i128,
    per_unit: i128,
}

impl Units {
    /// A whole number of units.
    pub fn whole(units: i128) -> Self {
        Self { parts: units, per_unit: 1 }
    }

    fn scaled(self, numerator: u64, denominator: u64) -> Self {
        Self {
            parts: self.parts.saturating_mul(numerator.into()),
            per_unit: self.per_unit.saturating_mul(denominator.into()),
        }
    }

    fn plus(self, units: u64) -> Self {
        Self { parts: self.parts.saturating_add(self.per_unit.saturating_mul(units.into())), ..self }
    }

    fn minus(self, units: u64) -> Self {
        Self { parts: self.parts.saturating_sub(self.per_unit.saturating_mul(units.into())), ..self }
    }

    /// Rounded down, towards debt.
    fn floor(self) -> i128 {
        self.parts.div_euclid(self.per_unit)
    }

    /// The whole units that are missing from `capacity`, rounded up.
    pub fn missing_of(self, capacity: u64) -> u64 {
        missing(self.floor(), capacity)
    }

    /// The units in parts, `per_unit` parts to a unit, rounded down.
    fn in_parts(self, per_unit: u64) -> i128 {
        self.parts.saturating_mul(per_unit.into()).div_euclid(self.per_unit)
    }
}

impl Inherit {
    /// The units that a key with `available` of `old` capacity has left of `new`; `None` if it has all of them.
    ///
    /// As Bucket4j's `TokensInheritanceStrategy`: proportional shares are rounded down, additive growth adds the
    /// difference, shrinking keeps what fits.
    pub fn units(self, available: Units, old: u64, new: u64) -> Option<Units> {
        let units = match self {
            Self::Reset => return None,
            // `Rule::converted` does this with finer precision.
            Self::Spent => available.plus(new).minus(old),
            Self::Proportional => available.scaled(new, old),
            Self::Additive => available.plus(new.saturating_sub(old)),
            Self::AsIs => available,
        };
        (units.floor() < i128::from(new)).then_some(units)
    }
}

impl Rule {
    /// The units that a key has available, with fractions where the algorithm has them. Not for the sliding log.
    pub fn available(&self, state: State, now_us: u64) -> Units {
        let per_unit = i128::from(self.per_unit());
        let full = i128::from(self.capacity()).saturating_mul(per_unit);
        Units { parts: full.saturating_sub(self.level(state, now_us).into()), per_unit }
    }

    /// The state of a key with `available` units from `now_us` on. Only GCRA keeps fractions.
    pub fn state_with(&self, available: Units, now_us: u64) -> State {
        let full = self.capacity().saturating_mul(self.per_unit());
        self.at_level(missing(available.in_parts(self.per_unit()), full), now_us)
    }

    /// The state under this rule of a key that has `state` under another rule: spent units stay spent, whatever the
    /// ceiling. Not for the sliding log, where the old rule's [`outstanding`](Self::outstanding) units start as one entry.
    ///
    /// Between two GCRA rules the level keeps its number of units, rounded up; the same arrival time would mean another number
    /// of units. Windows with the same borders and counters with the same period are unchanged. All other states
    /// start with the counted units, rounded up.
    ///
    /// ```
    /// use sluicegate_core::algorithm::{Rule, State};
    /// use sluicegate_core::{Algorithm, Quota};
    ///
    /// let old = Rule::new(Algorithm::Gcra, Quota::per_hour(60))?;
    /// let new = Rule::new(Algorithm::Gcra, Quota::per_hour(120))?;
    /// let state = old.spend(State::REST, 0, 0, 30);
    /// // Thirty units stay thirty, and drain twice as fast from now on.
    /// let state = new.converted(&old, state, 0);
    /// assert_eq!(new.used(state, 0), 30);
    /// assert_eq!(new.reset_after_us(state, 0), 15 * 60 * 1_000_000);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    #[must_use]
    pub fn converted(&self, from: &Self, state: State, now_us: u64) -> State {
        let carried = if self == from { Some(state) } else { self.carried(from, state, now_us) };
        carried.unwrap_or_else(|| self.holding(from.outstanding(state, now_us), now_us))
    }

    /// The state of a known key that has spent `units` at `now_us`, whatever the ceiling.
    #[must_use]
    pub fn holding(&self, units: u64, now_us: u64) -> State {
        let full = self.full(now_us);
        if units == 0 { full } else { self.spend(full, now_us, now_us, units) }
    }
}

fn missing(available: i128, of: u64) -> u64 {
    u64::try_from(i128::from(of).saturating_sub(available).max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Quota};

    fn gcra(limit: u64) -> Rule {
        Rule::new(Algorithm::Gcra, Quota::new(limit, std::time::Duration::from_secs(8))).unwrap()
    }

    /// Bucket4j's "proportional rounding" and "proportional negative": 6 per 8 becomes 3 per 8 after three eighths.
    #[test]
    fn proportional_shares_round_towards_debt_and_keep_the_fraction() {
        let old = gcra(6);
        for (charged, whole, parts_of_8) in [(6, 1, 1), (11, -2, 5)] {
            let (state, _) = old.charge(State::REST, 0, charged);
            let kept = Inherit::Proportional.units(old.available(state, 3_000_000), 6, 3).unwrap();
            assert_eq!(kept.floor(), whole);
            assert_eq!(kept.in_parts(8) - whole * 8, parts_of_8);
        }
    }
}
