//! Windows of a calendar, whose lengths differ.

use super::shape::{Looked, Shape, SpendState};
use super::{FixedWindow, NEVER, Numbers, Slot, Spent, StartingWindow, State};
use crate::calendar::CalendarPeriod;

/// A fixed window, or a bucket that is refilled at borders, whose windows are periods of a [calendar](CalendarPeriod).
///
/// It is the algorithm of equal windows on another clock. On the third day of the seventh period that clock shows seven times the longest
/// period plus three days. It never stops and never goes back; it only jumps at the end of a shorter period. Units that are carried
/// over come and go at borders of the calendar, however long the periods between them are, and a debt ends with its period. States
/// have real times.
///
/// # Source
/// As [`FixedWindow`]. The calendar is that of the crate `jiff`.
///
/// # Rounding
/// None.
///
/// # State
/// As [`FixedWindow`].
///
/// # Example
/// A hundred a month: February begins 31 days after January, and March 28 days later.
///
/// ```
/// use sluicegate_core::algorithm::{Rule, State};
/// use sluicegate_core::{Algorithm, Quota};
///
/// const DAY: u64 = 86_400 * 1_000_000;
/// let rule = Rule::new(Algorithm::Gcra, "100/month".parse()?)?;
/// let spent = rule.spend(State::REST, 40 * DAY, 40 * DAY, 100); // the tenth of February 1970
/// assert_eq!(rule.reset_after_us(spent, 40 * DAY), (31 + 28 - 40) * DAY);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InCalendar<S> {
    window: S,
    period: CalendarPeriod,
}

/// A fixed window, or a bucket that is refilled at borders, by the periods of a calendar.
pub type CalendarWindow = InCalendar<FixedWindow>;

/// A token bucket that is refilled at the borders of a calendar, under which newcomers start with less than a burst.
pub type StartingCalendar = InCalendar<StartingWindow>;

impl StartingCalendar {
    /// The bucket alone, in which an unknown key has a whole burst.
    pub(super) fn bucket(&self) -> CalendarWindow {
        InCalendar { window: self.window.bucket(), period: self.period }
    }
}

#[expect(private_bounds, reason = "only the windows that are named above are of this kind")]
impl<S: Shape> InCalendar<S> {
    pub(super) fn new(window: S, period: CalendarPeriod) -> Self {
        Self { window, period }
    }

    /// The borders that a store without a calendar needs to decide at this moment, the first one first: all at which a state that
    /// matters can begin or end, one more before them and two after them.
    pub(super) fn borders(&self, now_us: u64) -> Vec<u64> {
        let lasting = self.window.longest_spend_us() / self.period.longest_us();
        let current = self.period.number(now_us);
        let numbers = current.saturating_sub(lasting)..=current.saturating_add(lasting).saturating_add(2);
        numbers.map(|number| self.period.start_us(number)).collect()
    }

    /// Converts a moment of the calendar to the clock of equal windows.
    fn equal(&self, at_us: u64) -> u64 {
        if at_us == NEVER {
            return NEVER;
        }
        let period = self.period.number(at_us);
        let since_us = at_us.saturating_sub(self.period.start_us(period));
        period.saturating_mul(self.period.longest_us().get()).saturating_add(since_us)
    }

    /// Converts a moment of the clock of equal windows to the calendar.
    fn real(&self, at_us: u64) -> u64 {
        if at_us == NEVER {
            return NEVER;
        }
        let (period, since_us) = (at_us / self.period.longest_us(), at_us % self.period.longest_us());
        let (start_us, end_us) =
            (self.period.start_us(period), self.period.start_us(period.saturating_add(1)));
        start_us.saturating_add(since_us).min(end_us)
    }

    fn equal_state(&self, state: State) -> State {
        if state.until_us == 0 { state } else { State { until_us: self.equal(state.until_us), ..state } }
    }

    fn real_state(&self, state: State) -> State {
        if state.until_us == 0 { state } else { State { until_us: self.real(state.until_us), ..state } }
    }

    fn equal_spent(&self, spent: &Spent) -> Spent {
        Spent {
            at_us: self.equal(spent.at_us),
            before: self.equal_state(spent.before),
            after: self.equal_state(spent.after),
            ..*spent
        }
    }

    /// Converts a span that begins at this moment of the clock of equal windows to the calendar.
    fn real_span(&self, equal_us: u64, span_us: u64) -> u64 {
        self.real(equal_us.saturating_add(span_us)).saturating_sub(self.real(equal_us))
    }
}

/// Converts a state to the calendar and passes it on.
struct Real<S, T>(InCalendar<S>, T);

impl<S: Shape, T: SpendState> SpendState for Real<S, T> {
    fn settle(self, after: Option<State>) {
        self.1.settle(after.map(|state| self.0.real_state(state)));
    }
}

impl<S: Shape> Shape for InCalendar<S> {
    fn capacity(&self) -> u64 {
        self.window.capacity()
    }

    fn with_debt(self, units: u64) -> Self {
        Self { window: self.window.with_debt(units), ..self }
    }

    fn debt_ceiling(&self) -> u64 {
        self.window.debt_ceiling()
    }

    fn longest_spend_us(&self) -> u64 {
        self.window.longest_spend_us()
    }

    fn drains_in(&self, span_us: u64) -> Option<u64> {
        self.window.drains_in(span_us)
    }

    /// Those of windows as long as the longest, and the calendar itself instead of a border.
    fn numbers(&self) -> Numbers {
        self.window.numbers().in_calendar(self.period.id())
    }

    fn words(&self, state: State) -> [u64; 3] {
        let [until_us, count, closed] = self.window.words(self.equal_state(state));
        [self.real(until_us), count, closed]
    }

    fn of_words(&self, [until_us, count, closed]: [u64; 3]) -> State {
        self.real_state(self.window.of_words([self.equal(until_us), count, closed]))
    }

    fn slot(&self, state: State, now_us: u64, cost: u64) -> Slot {
        let slot = self.window.slot(self.equal_state(state), self.equal(now_us), cost);
        Slot::at(self.real(slot.opens_us))
    }

    fn spend(&self, state: State, now_us: u64, at_us: u64, cost: u64) -> State {
        let (now_us, at_us) = (self.equal(now_us), self.equal(at_us));
        self.real_state(self.window.spend(self.equal_state(state), now_us, at_us, cost))
    }

    fn look(&self, state: State, now_us: u64, cost: u64, settle: impl SpendState) -> Option<Looked> {
        let equal_us = self.equal(now_us);
        let looked = self.window.look(self.equal_state(state), equal_us, cost, Real(*self, settle))?;
        let available_after_us = self.real_span(equal_us, looked.available_after_us);
        let (state, remaining) = (self.real_state(looked.state), looked.balance.remaining);
        Some(self.looked(looked.passed, (state, now_us), remaining, available_after_us))
    }

    fn charge(&self, state: State, now_us: u64, cost: u64) -> (State, u64) {
        let (state, taken) = self.window.charge(self.equal_state(state), self.equal(now_us), cost);
        (self.real_state(state), taken)
    }

    fn refund(&self, state: State, now_us: u64, ago_us: u64, cost: u64) -> State {
        let (equal_us, then_us) = (self.equal(now_us), self.equal(now_us.saturating_sub(ago_us)));
        let ago_us = equal_us.saturating_sub(then_us);
        self.real_state(self.window.refund(self.equal_state(state), equal_us, ago_us, cost))
    }

    fn give_back(&self, state: State, now_us: u64, spent: &Spent, give: u64) -> (State, u64) {
        let (state, spent) = (self.equal_state(state), self.equal_spent(spent));
        let (state, given) = self.window.give_back(state, self.equal(now_us), &spent, give);
        (self.real_state(state), given)
    }

    fn take_back(&self, state: State, turn: &Spent) -> Option<State> {
        let state = self.window.take_back(self.equal_state(state), &self.equal_spent(turn))?;
        Some(self.real_state(state))
    }

    fn heavier(&self, one: State, other: State, now_us: u64) -> State {
        let (one, other) = (self.equal_state(one), self.equal_state(other));
        self.real_state(self.window.heavier(one, other, self.equal(now_us)))
    }

    fn used(&self, state: State, now_us: u64) -> u64 {
        self.window.used(self.equal_state(state), self.equal(now_us))
    }

    fn remaining(&self, state: State, now_us: u64) -> u64 {
        self.window.remaining(self.equal_state(state), self.equal(now_us))
    }

    fn carried(&self, from: &Self, state: State, now_us: u64) -> Option<State> {
        let alike = self.period == from.period;
        let carried = || self.window.carried(&from.window, self.equal_state(state), self.equal(now_us));
        alike.then(carried).flatten().map(|state| self.real_state(state))
    }

    fn lease_lasts_us(&self, after: State, at_us: u64, behind: u64) -> u64 {
        let at_us = self.equal(at_us);
        let lasts_us = self.window.lease_lasts_us(self.equal_state(after), at_us, behind);
        // At the border itself, the next period has begun.
        self.real_span(at_us, lasts_us.saturating_add(1)).saturating_sub(1)
    }

    fn outstanding(&self, state: State, now_us: u64) -> u64 {
        self.window.outstanding(self.equal_state(state), self.equal(now_us))
    }

    fn weight(&self, state: State, now_us: u64) -> (u64, u64) {
        self.window.weight(self.equal_state(state), self.equal(now_us))
    }

    fn reset_after_us(&self, state: State, now_us: u64) -> u64 {
        let equal_us = self.equal(now_us);
        self.real_span(equal_us, self.window.reset_after_us(self.equal_state(state), equal_us))
    }

    fn begun(&self, now_us: u64) -> State {
        self.real_state(self.window.begun(self.equal(now_us)))
    }

    fn full(&self, now_us: u64) -> State {
        self.real_state(self.window.full(self.equal(now_us)))
    }

    fn plain(&self, state: State, now_us: u64) -> State {
        self.real_state(self.window.plain(self.equal_state(state), self.equal(now_us)))
    }

    fn kept(&self, state: State, now_us: u64) -> State {
        self.real_state(self.window.kept(self.equal_state(state), self.equal(now_us)))
    }

    fn without(&self, state: State, now_us: u64, turn: &Spent) -> Option<State> {
        let (state, turn) = (self.equal_state(state), self.equal_spent(turn));
        Some(self.real_state(self.window.without(state, self.equal(now_us), &turn)?))
    }

    fn at_level(&self, level: u64, now_us: u64) -> State {
        self.real_state(self.window.at_level(level, self.equal(now_us)))
    }
}
