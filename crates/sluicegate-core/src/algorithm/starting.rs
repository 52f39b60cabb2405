//! Rules around other rules: buckets in which an unknown key starts with less than a whole burst ([`Starting`]), and windows of a calendar,
//! whose lengths differ ([`InCalendar`]).

use super::shape::{Looked, Shape, SpendState};
use super::{FixedWindow, Gcra, NEVER, Numbers, Slot, Spent, State};
use crate::calendar::CalendarPeriod;

/// A bucket in which an unknown key starts with less than a burst.
///
/// The state is that of the bucket, but ends later: a bucket that is full is kept for as long as a full burst takes to refill
/// ([`Quota::starting_with`](crate::Quota::starting_with) says why), and only a key with a state that has ended is a newcomer. So
/// `State::until_us` also says for this rule when a store may forget the state; and [`State::REST`] stands for an unknown key, not for a
/// full one.
///
/// # Source
/// Bucket4j's `Bandwidth.initialTokens`, with `ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(keep)`, where `keep` is
/// the time in which a full burst refills. Deviation: the time for which a full bucket is kept counts from the moment at which
/// it became full, not from the last write.
///
/// # Rounding
/// None beyond that of the bucket.
///
/// # State
/// The state of the bucket.
///
/// # Example
/// Sixty a minute, but a newcomer may spend only three at once.
///
/// ```
/// use sluicegate_core::algorithm::{Rule, State};
/// use sluicegate_core::{Algorithm, Quota};
///
/// const SECOND: u64 = 1_000_000;
/// let rule = Rule::new(Algorithm::Gcra, Quota::per_minute(60).starting_with(3))?;
/// let known = rule.begun(0);
/// assert_eq!((rule.remaining(State::REST, 0), rule.remaining(known, 0)), (3, 3));
/// assert_eq!(rule.remaining(known, 57 * SECOND), 60);
/// // It was full after 57 seconds, and is kept for a minute more.
/// assert_eq!(known.until_us, 117 * SECOND);
/// assert_eq!(rule.remaining(known, 117 * SECOND), 3);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Starting<S> {
    bucket: S,
    /// The units of a burst that a newcomer lacks; at least one.
    missing: u64,
}

/// GCRA, the greedy token bucket or the leaky bucket, under which newcomers start with less than a burst.
pub type StartingGcra = Starting<Gcra>;

/// A token bucket that refills at intervals, under which newcomers start with less than a burst.
pub type StartingWindow = Starting<FixedWindow>;

#[expect(private_bounds, reason = "only the buckets that are named above are of this kind")]
impl<S: Shape> Starting<S> {
    pub(super) fn new(bucket: S, missing: u64) -> Self {
        Self { bucket, missing }
    }

    /// The bucket alone, in which an unknown key has a whole burst.
    pub(super) fn bucket(&self) -> S {
        self.bucket
    }

    /// The time for which a full bucket is kept, in microseconds.
    fn keep_us(&self) -> u64 {
        self.bucket.longest_spend_us()
    }

    fn newcomer(&self, now_us: u64) -> State {
        self.bucket.spend(State::REST, now_us, now_us, self.missing)
    }

    /// The bucket's own state of a key that is known.
    fn stripped(&self, state: State) -> State {
        if state.aux == 0 && !self.bucket.is_level() {
            // A window without units is at rest, even if the clock has gone back.
            return State::REST;
        }
        State { until_us: state.until_us.saturating_sub(self.keep_us()), ..state }
    }

    /// The spend, with the states of the bucket alone.
    fn told(&self, spent: &Spent) -> Spent {
        Spent { before: self.stripped(spent.before), after: self.stripped(spent.after), ..*spent }
    }

    /// Whether nothing can be given back: an unknown key has spent nothing, and a full one owes nothing.
    fn owes_nothing(&self, state: State, now_us: u64) -> bool {
        state.until_us <= now_us || self.stripped(state).until_us <= now_us
    }
}

impl<S: Shape> Shape for Starting<S> {
    fn capacity(&self) -> u64 {
        self.bucket.capacity()
    }

    fn with_debt(self, units: u64) -> Self {
        Self { bucket: self.bucket.with_debt(units), ..self }
    }

    fn rounding_up(self) -> Self {
        Self { bucket: self.bucket.rounding_up(), ..self }
    }

    fn debt_ceiling(&self) -> u64 {
        self.bucket.debt_ceiling()
    }

    fn longest_spend_us(&self) -> u64 {
        self.bucket.longest_spend_us().saturating_add(self.keep_us())
    }

    fn numbers(&self) -> Numbers {
        self.bucket.numbers().of_newcomers(self.missing)
    }

    /// The words of the bucket's own state; its time is the moment at which the bucket is full. An unknown key has three zeros.
    fn words(&self, state: State) -> [u64; 3] {
        if state == State::REST { [0; 3] } else { self.bucket.words(self.stripped(state)) }
    }

    fn of_words(&self, words: [u64; 3]) -> State {
        if words == [0; 3] { State::REST } else { self.kept(self.bucket.of_words(words), 0) }
    }

    fn slot(&self, state: State, now_us: u64, cost: u64) -> Slot {
        self.bucket.slot(self.plain(state, now_us), now_us, cost)
    }

    fn spend(&self, state: State, now_us: u64, at_us: u64, cost: u64) -> State {
        if cost == 0 {
            return if state.until_us > now_us { state } else { self.begun(now_us) };
        }
        let plain = self.plain(state, now_us);
        self.kept(self.bucket.spend(plain, now_us, at_us, cost), at_us.max(now_us))
    }

    fn charge(&self, state: State, now_us: u64, cost: u64) -> (State, u64) {
        let before = self.plain(state, now_us);
        let (after, taken) = self.bucket.charge(before, now_us, cost);
        let stays = after == before && state.until_us > now_us;
        (if stays { state } else { self.kept(after, now_us) }, taken)
    }

    fn refund(&self, state: State, now_us: u64, ago_us: u64, cost: u64) -> State {
        if self.owes_nothing(state, now_us) {
            return state;
        }
        self.kept(self.bucket.refund(self.stripped(state), now_us, ago_us, cost), now_us)
    }

    fn give_back(&self, state: State, now_us: u64, spent: &Spent, give: u64) -> (State, u64) {
        if self.owes_nothing(state, now_us) {
            return (state, 0);
        }
        let (plain, given) = self.bucket.give_back(self.stripped(state), now_us, &self.told(spent), give);
        (self.kept(plain, now_us), given)
    }

    fn begun(&self, now_us: u64) -> State {
        self.kept(self.newcomer(now_us), now_us)
    }

    fn full(&self, now_us: u64) -> State {
        self.kept(State::REST, now_us)
    }

    fn plain(&self, state: State, now_us: u64) -> State {
        if state.until_us <= now_us { self.newcomer(now_us) } else { self.stripped(state) }
    }

    fn kept(&self, state: State, now_us: u64) -> State {
        let rests_us = state.until_us.max(self.bucket.floor_us(now_us));
        State { until_us: rests_us.saturating_add(self.keep_us()), ..state }
    }

    fn without(&self, state: State, now_us: u64, turn: &Spent) -> Option<State> {
        let plain = self.bucket.take_back(self.stripped(state), &self.told(turn))?;
        Some(if plain.until_us <= now_us { self.full(now_us) } else { self.kept(plain, now_us) })
    }

    fn remaining(&self, state: State, now_us: u64) -> u64 {
        self.bucket.remaining(self.plain(state, now_us), now_us)
    }

    fn used(&self, state: State, now_us: u64) -> u64 {
        self.bucket.used(self.plain(state, now_us), now_us)
    }

    fn reset_after_us(&self, state: State, now_us: u64) -> u64 {
        self.bucket.reset_after_us(self.plain(state, now_us), now_us)
    }

    fn level(&self, state: State, now_us: u64) -> u64 {
        self.bucket.level(self.plain(state, now_us), now_us)
    }

    fn per_unit(&self) -> u64 {
        self.bucket.per_unit()
    }

    fn at_level(&self, level: u64, now_us: u64) -> State {
        self.kept(self.bucket.at_level(level, now_us), now_us)
    }

    fn outstanding(&self, state: State, now_us: u64) -> u64 {
        self.bucket.outstanding(self.plain(state, now_us), now_us)
    }

    fn weight(&self, state: State, now_us: u64) -> (u64, u64) {
        self.bucket.weight(self.plain(state, now_us), now_us)
    }

    fn drains_in(&self, span_us: u64) -> Option<u64> {
        self.bucket.drains_in(span_us)
    }

    fn is_level(&self) -> bool {
        self.bucket.is_level()
    }

    fn is_queue(&self) -> bool {
        self.bucket.is_queue()
    }

    fn aux_bound(&self) -> u64 {
        self.bucket.aux_bound()
    }
}

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
