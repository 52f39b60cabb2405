//! One quota under one algorithm: [`Rule`], which sends each question to its [`Shape`].
//!
//! An [`Algorithm`] makes a rule of a [`Checked`] quota, or says why it cannot count it.

use std::num::NonZeroU64;

use super::shape::{Balance, Looked, Shape, SpendState};
use super::{
    Algorithm, CalendarWindow, EXACT, FixedWindow, Gcra, InCalendar, LONGEST_US, Numbers, SlidingCounter,
    SlidingLog, Slot, Spent, Starting, StartingCalendar, StartingGcra, StartingWindow, State,
};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::{Anchor, Drain, Quota, Refill};
use crate::text::REFUSE_ALL;

/// Defines `Rule` from the list of its kinds, with the `match` that sends each question to the kind's `Shape`.
macro_rules! rules {
    ($d:tt $($(#[$doc:meta])* $kind:ident),+) => {
        /// One quota under one algorithm, reduced to the integers that it decides with.
        ///
        /// A rule is a pure function: it holds no state and reads no clock. All moments are
        /// microseconds of the store's clock, all costs whole units. Overflow saturates; if a
        /// product would not be exact, [`Rule::new`] refuses the quota.
        ///
        /// # For authors of stores
        /// 1. [`slot`](Self::slot) says when the cost would pass. It passes now if `opens_us <=
        ///    now`.
        /// 2. If the quotas of all asks pass, [`spend`](Self::spend) makes each new state;
        ///    otherwise no state changes.
        /// 3. The [`balance`](Self::balance) of the new state is what the decision reports.
        ///
        /// If newcomers start with less than a burst ([`begins`](Self::begins)), a key that the store does not know has the state
        /// [`begun`](Self::begun) from the first requested spend, granted or not.
        ///
        /// A store that decides in another language sends [`numbers`](Self::numbers) once and keeps
        /// [`words`](Self::words).
        ///
        /// ```
        /// use sluicegate_core::algorithm::{Rule, State};
        /// use sluicegate_core::{Algorithm, Quota};
        ///
        /// let rule = Rule::new(Algorithm::Gcra, Quota::per_second(10).burst(20))?;
        /// assert_eq!((rule.capacity(), rule.debt_ceiling()), (20, 200));
        /// assert_eq!(rule.longest_spend_us(), 2_000_000); // a spent burst is back after two seconds
        ///
        /// // A charge spends whether it fits or not, and returns the number of units that took effect.
        /// let (debtor, taken) = rule.charge(State::REST, 0, 1_000);
        /// assert_eq!((taken, rule.used(debtor, 0), rule.remaining(debtor, 0)), (200, 200, 0));
        ///
        /// // A state that crosses to Redis and back is the same.
        /// assert_eq!(rule.of_words(rule.words(debtor)), debtor);
        /// # Ok::<(), sluicegate_core::ConfigError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$doc])* $kind($kind)),+
        }

        macro_rules! ask {
            ($d rule:expr, $d shape:ident => $d answer:expr) => {
                match $d rule {
                    $(Rule::$kind($d shape) => $d answer),+
                }
            };
        }

        impl Rule {
            /// This rule with another ceiling for debts, in units; the ceiling is at least the capacity.
            pub(crate) fn with_debt(self, units: u64) -> Self {
                let units = units.max(self.capacity());
                match self {
                    $(Self::$kind(shape) => Self::$kind(shape.with_debt(units))),+
                }
            }

            /// This rule for one of several parts of a quota. It rounds its count up, so that all parts together never count less
            /// than the whole.
            pub(crate) fn rounding_up(self) -> Self {
                match self {
                    $(Self::$kind(shape) => Self::$kind(shape.rounding_up())),+
                }
            }

            /// The state that continues a state of another rule of this algorithm, if it can.
            pub(super) fn carried(&self, from: &Self, state: State, now_us: u64) -> Option<State> {
                let (state, from) = (from.plain(state, now_us), from.bucket());
                let state = match (self.bucket(), from) {
                    $((Self::$kind(new), Self::$kind(old)) => new.carried(&old, state, now_us),)+
                    _ => None,
                };
                state.map(|state| self.kept(state, now_us))
            }
        }
    };
}

/// Defines the questions that `Rule` passes on unchanged to the `Shape` of its kind.
macro_rules! questions {
    ($($(#[$meta:meta])* $visible:vis fn $question:ident(&self $(, $with:ident: $type:ty)*) -> $answer:ty;)+) => {
        impl Rule {$(
            $(#[$meta])*
            $visible fn $question(&self $(, $with: $type)*) -> $answer {
                // `SlidingLog` has another `slot`, for stores that keep its entries.
                ask!(self, shape => Shape::$question(shape $(, $with)*))
            }
        )+}
    };
}

rules! { $
    /// GCRA, the greedy token bucket and the leaky bucket.
    Gcra,
    /// The fixed window and the token buckets that refill at intervals.
    FixedWindow,
    /// The sliding window counter.
    SlidingCounter,
    /// The sliding window log, whose state is a list of entries and not a [`State`].
    SlidingLog,
    /// GCRA, the greedy token bucket and the leaky bucket, under which newcomers start with less than a burst.
    StartingGcra,
    /// The token buckets that refill at intervals, under which newcomers start with less than a burst.
    StartingWindow,
    /// The fixed window and the token bucket that is refilled at borders, by the periods of a calendar.
    CalendarWindow,
    /// The token bucket that is refilled at the borders of a calendar, under which newcomers start with less than a burst.
    StartingCalendar
}

impl Rule {
    /// Whether an unknown key starts with less than a burst. If so, a store knows a key from the first
    /// requested spend, and [`State::REST`] stands for a newcomer, not for a full key.
    #[inline]
    pub fn begins(&self) -> bool {
        matches!(self, Self::StartingGcra(_) | Self::StartingWindow(_) | Self::StartingCalendar(_))
    }

    /// The borders of a [calendar](CalendarWindow) that a store without one needs to decide at this moment, in microseconds and in order:
    /// some before, and at least two after it. All other rules have none.
    pub fn borders(&self, now_us: u64) -> Vec<u64> {
        match self {
            Self::CalendarWindow(rule) => rule.borders(now_us),
            Self::StartingCalendar(rule) => rule.borders(now_us),
            _ => Vec::new(),
        }
    }

    /// The rule of the bucket alone, under which newcomers have a whole burst.
    fn bucket(&self) -> Self {
        match self {
            Self::StartingGcra(rule) => Self::Gcra(rule.bucket()),
            Self::StartingWindow(rule) => Self::FixedWindow(rule.bucket()),
            Self::StartingCalendar(rule) => Self::CalendarWindow(rule.bucket()),
            rule => *rule,
        }
    }

    /// Spends at once or not at all: returns the results of [`slot`](Self::slot) and [`spend`](Self::spend), and the remaining units, from
    /// one look at the state. `None` if the caller has to use these two: for a queue, for a cost that can never fit, for a log, and while a
    /// turn is reserved.
    ///
    /// `settle` is called as soon as the state is known, before the numbers are computed.
    #[inline(always)]
    pub(crate) fn spend_now(
        &self,
        state: State,
        now_us: u64,
        cost: u64,
        settle: impl SpendState,
    ) -> Option<Looked> {
        ask!(self, shape => shape.look(state, now_us, cost, settle))
    }

    /// [`spend_now`](Self::spend_now), specialised for GCRA so that the result stays in registers. `None` for other rules, too.
    #[inline]
    pub(crate) fn spend_level_now(
        &self,
        state: State,
        now_us: u64,
        cost: u64,
        settle: impl SpendState,
    ) -> Option<Looked> {
        let Self::Gcra(level) = self else { return None };
        level.look(state, now_us, cost, settle)
    }

    /// [`spend_now`](Self::spend_now) for a GCRA that delays nothing and counts its level in microseconds, without a call. `None` for other
    /// rules, too.
    #[inline(always)]
    pub(crate) fn spend_plainly_now(&self, state: State, now_us: u64, cost: u64) -> Option<Looked> {
        match self {
            Self::Gcra(level) if level.is_plain => level.look_plainly(state, now_us, cost, ()),
            _ => None,
        }
    }

    /// The numbers that a decision reports of a state. The state of a sliding log is made for this question, from the moment at which its
    /// last entry is over and from the units that it counts.
    #[inline]
    pub fn balance(&self, state: State, now_us: u64) -> Balance {
        ask!(self, shape => shape.balance(state, now_us, shape.remaining(state, now_us)))
    }

    /// The state after a refused `cost` is spent nevertheless, up to the capacity.
    pub(crate) fn count_rejected(&self, state: State, now_us: u64, cost: u64) -> State {
        self.with_debt(self.capacity()).charge(state, now_us, cost).0
    }

    /// The state without a turn that has not come; `None` if a later one may depend on it.
    pub fn take_back(&self, state: State, now_us: u64, turn: &Spent) -> Option<State> {
        ask!(self, shape => shape.without(state, now_us, turn))
    }

    /// Whether units can be leased: spent now for later requests ([`Mode::Lease`](crate::store::Mode::Lease)).
    /// A sliding log leases none, because its entries are as old as the requests; nor does a queue, which spaces requests; nor does a
    /// bucket under which newcomers start with less than a burst, because an instance that spends leased units does not know whether
    /// the key has become a newcomer again.
    pub fn can_lease(&self) -> bool {
        self.log().is_none() && !self.is_queue() && !self.begins()
    }

    /// The rule of a sliding log, if it is one; its entries are kept by the store.
    #[inline]
    pub fn log(&self) -> Option<&SlidingLog> {
        match self {
            Self::SlidingLog(log) => Some(log),
            _ => None,
        }
    }

    /// Whether `aux` is always below 4,096, so that a state fits one 64-bit word beside a 52-bit time.
    pub fn fits_one_word(&self) -> bool {
        self.aux_bound() <= 4_096
    }
}

questions! {
    /// The state of a newcomer from now on; [`State::REST`] unless the rule [begins](Self::begins).
    pub fn begun(&self, now_us: u64) -> State;

    /// The state of a key that is known and owes nothing.
    pub(super) fn full(&self, now_us: u64) -> State;

    /// The state that [`bucket`](Self::bucket) has for a state of this rule.
    fn plain(&self, state: State, now_us: u64) -> State;

    /// The state that this rule has for a state of [`bucket`](Self::bucket).
    fn kept(&self, state: State, now_us: u64) -> State;

    /// When `cost` would pass if nothing else arrived: `now_us` if at once, [`NEVER`](super::NEVER)
    /// if it is above the [capacity](Self::capacity). The wait is exact: one microsecond earlier
    /// the same cost would be refused.
    #[inline]
    pub fn slot(&self, state: State, now_us: u64, cost: u64) -> Slot;

    /// The state after `cost` proceeds at `at_us`, which is `now_us` or the later time of a reserved turn.
    #[inline]
    pub fn spend(&self, state: State, now_us: u64, at_us: u64, cost: u64) -> State;

    /// The state after `cost` was spent whether it fits or not, and the number of units that took effect. Units that do not fit
    /// are a debt, up to [`debt_ceiling`](Self::debt_ceiling).
    #[inline]
    pub fn charge(&self, state: State, now_us: u64, cost: u64) -> (State, u64);

    /// The units above which a charge is forgotten: ten bursts or ten limits, whichever is more, or the policy's own ceiling,
    /// limited to exact values.
    pub fn debt_ceiling(&self) -> u64;

    /// The state after `cost`, spent `ago_us` before, was given back, except for units that no longer count; never better than at
    /// rest, and never better than without the spend.
    #[inline]
    pub fn refund(&self, state: State, now_us: u64, ago_us: u64, cost: u64) -> State;

    /// The state after up to `give` units of `spent` were given back, and the amount that was given back, in the measure of
    /// [`level`](Self::level). Units drain in the order of their arrival, and units that have drained are not given back.
    pub fn give_back(&self, state: State, now_us: u64, spent: &Spent, give: u64) -> (State, u64);

    /// The heavier of two states, or a state as heavy as both: at any moment, it refuses every request that one of the two would
    /// refuse. Neither of the two is at rest.
    pub(crate) fn heavier(&self, one: State, other: State, now_us: u64) -> State;

    /// The weight by which a store that has to forget a state compares the keys of one rule. For a level that drains, it is the time to
    /// rest. The keys of a window all come to rest together, so the count comes first for windows.
    pub(crate) fn weight(&self, state: State, now_us: u64) -> (u64, u64);

    /// How full the bucket is, in the finest measure of its rule: parts of a unit under GCRA, whole units otherwise.
    #[inline]
    pub fn level(&self, state: State, now_us: u64) -> u64;

    /// The level of one unit, in the measure of [`level`](Self::level).
    pub fn per_unit(&self) -> u64;

    pub(super) fn at_level(&self, level: u64, now_us: u64) -> State;

    /// The number of units that would pass now, rounded down.
    #[inline]
    pub fn remaining(&self, state: State, now_us: u64) -> u64;

    /// The number of units that count against the capacity, rounded up; more than the capacity for a debt.
    pub fn used(&self, state: State, now_us: u64) -> u64;

    /// The units that are counted, rounded up, including those of turns that are reserved ahead.
    pub fn outstanding(&self, state: State, now_us: u64) -> u64;

    /// The units that come back within this span without other requests: a bucket that is this
    /// far from rest has that many units in it. `None` for windows whose debts end with them, and for sliding
    /// windows, where the past counts less and less by itself.
    pub fn drains_in(&self, span_us: u64) -> Option<u64>;

    /// Microseconds until the whole capacity is back.
    #[inline]
    pub fn reset_after_us(&self, state: State, now_us: u64) -> u64;

    /// The number of units that pass at once from rest: the burst of a bucket, the limit of a window.
    #[inline]
    pub fn capacity(&self) -> u64;

    /// The microseconds after `at_us` in which a leased unit may be spent, when `behind` other units of its lease follow it and the
    /// lease has left the bucket in the state `after`; the last moment is included. For a rule that
    /// [can be leased](Self::can_lease).
    ///
    /// A bucket that drains lets `B + t * L / P` pass in any span of `t` as long as a unit is spent while all of it is still
    /// in the bucket: then no unit leaves the bucket before it is spent, and at most `B` units are in it at once. In a fixed
    /// window and a sliding counter a unit counts the same wherever in its window it is spent, so it lasts as long as the
    /// window.
    pub fn lease_lasts_us(&self, after: State, at_us: u64, behind: u64) -> u64;

    /// Whether requests that are let in wait their turn inside: a leaky bucket that shapes.
    #[inline]
    pub fn is_queue(&self) -> bool;

    /// Whether the state is one level that drains in the order in which units came, and not counts of windows.
    pub fn is_level(&self) -> bool;

    /// The furthest ahead that a state can reach by spends alone, without debts and reserved turns.
    pub fn longest_spend_us(&self) -> u64;

    pub(crate) fn aux_bound(&self) -> u64;

    /// The integers of the rule, for stores that decide in another language.
    pub fn numbers(&self) -> Numbers;

    /// A state as three numbers below 2^53, for stores that decide in another language: the time, and up to two counts.
    pub fn words(&self, state: State) -> [u64; 3];

    /// The state that these [`words`](Self::words) came from.
    pub fn of_words(&self, words: [u64; 3]) -> State;
}

impl Rule {
    /// Reduces a quota to the integers of its algorithm: the algorithm that the quota [names](Quota::counted_by), or else `algorithm`.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Quota`] for zeros, spans that are too long and a start above the burst; [`ConfigErrorKind::Policy`] for a log
    /// in 0 parts or in more than [`MAX_PARTS`](super::SlidingLog::MAX_PARTS); [`ConfigErrorKind::Burst`] for a burst under an algorithm with
    /// windows and a start under an algorithm that starts full; [`ConfigErrorKind::Inexact`] for a quota that cannot be counted in exact
    /// integers. The message names the value and the bound.
    pub fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, ConfigError> {
        let checked = Checked::new(quota)?;
        let algorithm = quota.algorithm().unwrap_or(algorithm);
        if algorithm.is_window() && quota.burst_size() != quota.limit() {
            return Err(ConfigError::new(
                ConfigErrorKind::Burst,
                format!(
                    "{algorithm} does not support a burst, but the quota is {quota}: leave the burst out, or use a token bucket or GCRA"
                ),
            ));
        }
        let missing = missing(algorithm, quota)?;
        Ok(match (algorithm.rule(checked)?, quota.calendar()) {
            (Self::FixedWindow(window), Some(period)) if algorithm.is_aligned() => {
                let window = window.ending_debts();
                match missing {
                    0 => Self::CalendarWindow(InCalendar::new(window, period)),
                    _ => Self::StartingCalendar(InCalendar::new(Starting::new(window, missing), period)),
                }
            }
            (_, Some(period)) => {
                let problem = format!(
                    "{algorithm} has no periods of the calendar, but the quota is for each {period}: use fixed-window, or token-bucket-aligned for what is carried over"
                );
                return Err(ConfigError::new(ConfigErrorKind::Quota, problem));
            }
            (Self::Gcra(bucket), None) if missing > 0 => Self::StartingGcra(Starting::new(bucket, missing)),
            (Self::FixedWindow(bucket), None) if missing > 0 => {
                Self::StartingWindow(Starting::new(bucket, missing))
            }
            (rule, None) => rule,
        })
    }
}

impl Algorithm {
    /// The rule of a quota under this algorithm, without a calendar, and for keys that start full.
    fn rule(self, quota: Checked) -> Result<Rule, ConfigError> {
        let window = |anchor| match anchor {
            Anchor::Epoch => FixedWindow::new(quota, Some(if quota.is_week() { MONDAY_US } else { 0 })),
            Anchor::FirstHit => FixedWindow::new(quota, None),
        };
        let bucket = |queue_above| Gcra::new(quota, queue_above).map(Rule::Gcra);
        match self {
            Self::FixedWindow(anchor) => Ok(Rule::FixedWindow(window(anchor)?.ending_debts())),
            Self::TokenBucket(Refill::Interval) => window(Anchor::FirstHit).map(Rule::FixedWindow),
            Self::TokenBucket(Refill::AlignedInterval) => window(Anchor::Epoch).map(Rule::FixedWindow),
            Self::SlidingLog => SlidingLog::new(quota, None).map(Rule::SlidingLog),
            Self::SlidingLogIn(parts) => SlidingLog::new(quota, Some(parts)).map(Rule::SlidingLog),
            Self::SlidingCounter => SlidingCounter::new(quota).map(Rule::SlidingCounter),
            Self::LeakyBucket(Drain::Queue) => bucket(Some(0)),
            Self::LeakyBucket(Drain::QueueAbove(units)) => bucket(Some(units)),
            Self::Gcra | Self::TokenBucket(Refill::Greedy) | Self::LeakyBucket(Drain::Meter) => bucket(None),
        }
    }
}

/// The first Monday after the Unix epoch, which was a Thursday.
const MONDAY_US: u64 = 4 * 86_400_000_000;

/// The units of a burst that a newcomer lacks.
fn missing(algorithm: Algorithm, quota: Quota) -> Result<u64, ConfigError> {
    let (Some(start), burst) = (quota.start(), quota.burst_size()) else { return Ok(0) };
    let Some(missing) = burst.checked_sub(start) else {
        let problem = format!(
            "{quota} starts a key with {start} units, and its burst is {burst}: more than a burst cannot be given once, because a key at rest is forgotten and would get it again; start with at most {burst}, or use burst {start}"
        );
        return Err(ConfigError::new(ConfigErrorKind::Quota, problem));
    };
    if missing > 0 && !algorithm.can_start_short() {
        let problem = format!(
            "{algorithm} starts full, but the quota is {quota}: leave the start out, or use a token bucket, a leaky bucket that refuses, or GCRA"
        );
        return Err(ConfigError::new(ConfigErrorKind::Burst, problem));
    }
    Ok(missing)
}

/// A quota with valid parts.
///
/// A period that is not a whole number of microseconds is kept as an exact ratio: 1 per 333,333,333 ns is 1,000 per
/// 333,333,333 microseconds. Only `limit` and `period_us` are converted; `quota` stays as it was given.
#[derive(Clone, Copy)]
pub(super) struct Checked {
    pub(super) quota: Quota,
    pub(super) limit: NonZeroU64,
    pub(super) period_us: NonZeroU64,
    pub(super) burst: NonZeroU64,
}

impl Checked {
    pub(super) fn new(quota: Quota) -> Result<Self, ConfigError> {
        let fail = |problem: String| Err(ConfigError::new(ConfigErrorKind::Quota, problem));
        let Some(limit) = NonZeroU64::new(quota.limit()) else {
            return fail(format!("the limit of {quota} is 0, and must be at least 1{REFUSE_ALL}"));
        };
        let Some(burst) = NonZeroU64::new(quota.burst_size()) else {
            return fail(format!("the burst of {quota} is 0, and must be at least 1"));
        };
        let Some(nanos) = NonZeroU64::new(u64::try_from(quota.period().as_nanos()).unwrap_or(u64::MAX))
        else {
            return fail(format!(
                "the period of a quota of {limit} is 0, and must be at least 1 microsecond"
            ));
        };
        if nanos.get() < NANOS.get() {
            return fail(format!("the period of {quota} must be at least 1 microsecond"));
        }
        if nanos.get() / NANOS > LONGEST_US {
            return fail(format!("the period of {quota} is longer than ten years"));
        }
        let divisor = gcd(nanos, NANOS);
        let (times, period_us) = (NANOS.get() / divisor, NonZeroU64::new(nanos.get() / divisor));
        let checked = Self { quota, limit, period_us: period_us.unwrap_or(NonZeroU64::MIN), burst };
        match NonZeroU64::new(times).and_then(|times| limit.checked_mul(times)) {
            Some(limit) => Ok(Self { limit, ..checked }),
            None => Err(checked.inexact("the limit is too large for a period in nanoseconds")),
        }
    }

    /// Whether the period is a week without a calendar. Its windows begin on Mondays.
    pub(super) fn is_week(self) -> bool {
        self.quota.calendar().is_none() && self.period_us.get() == 7 * 86_400_000_000
    }

    /// Checks that the period is a whole number of microseconds, which algorithms with windows need.
    pub(super) fn in_windows(self) -> Result<Self, ConfigError> {
        if self.limit.get() == self.quota.limit() {
            return Ok(self);
        }
        let problem = format!(
            "the period of {} is no whole number of microseconds, as windows need: use a token bucket or GCRA",
            self.quota
        );
        Err(ConfigError::new(ConfigErrorKind::Inexact, problem))
    }

    /// Units above which a charge is forgotten, unless the policy says otherwise.
    ///
    /// Ten times the limit or the burst, whichever is greater: a debt has an effect, but one charge does not
    /// lock a key out for years.
    pub(super) fn most_debt(&self) -> u64 {
        self.quota.limit().max(self.burst.get()).saturating_mul(10)
    }

    pub(super) fn inexact(&self, reason: impl std::fmt::Display) -> ConfigError {
        ConfigError::new(
            ConfigErrorKind::Inexact,
            format!(
                "{} cannot be kept in exact integers: {reason}; any limit and burst up to 1,000,000 with any whole number of milliseconds up to 30 days can",
                self.quota
            ),
        )
    }

    /// The time unit, a microsecond or a millisecond, in which `product_of(period)` is exact, and the period in that unit.
    ///
    /// The finer unit is preferred, because waits are rounded up to it. The caller's product is the
    /// largest that its arithmetic makes; twice the product has to be exact in a double, because Lua
    /// has no other number.
    pub(super) fn unit(
        &self,
        product_of: impl Fn(NonZeroU64) -> u64,
    ) -> Result<(NonZeroU64, NonZeroU64), ConfigError> {
        let in_ms = NonZeroU64::new(self.period_us.get() / 1_000)
            .filter(|_| self.period_us.get().is_multiple_of(1_000));
        let candidates = [Some((NonZeroU64::MIN, self.period_us)), in_ms.map(|period| (MILLI, period))];
        let fitting = candidates.into_iter().flatten().find(|(_, period)| product_of(*period) <= EXACT);
        fitting.ok_or_else(|| {
            self.inexact(if in_ms.is_some() {
                "burst times period exceeds 2^52 even in milliseconds"
            } else {
                "burst times period exceeds 2^52, and the period is no whole number of milliseconds"
            })
        })
    }
}

pub(super) fn gcd(a: NonZeroU64, b: NonZeroU64) -> NonZeroU64 {
    match NonZeroU64::new(a.get() % b) {
        None => b,
        Some(rest) => gcd(b, rest),
    }
}

/// Nanoseconds of a microsecond.
const NANOS: NonZeroU64 = NonZeroU64::new(1_000).expect("1000 is not 0");
const MILLI: NonZeroU64 = NonZeroU64::new(1_000).expect("1000 is not 0");
