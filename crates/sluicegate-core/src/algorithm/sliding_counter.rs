//! Sliding window counter.
//!
//! Both counts belong to windows on multiples of the period, so that all instances of a service see
//! the same borders. The state ends two periods after its window began: then neither count matters
//! any more.

use std::num::NonZeroU64;

use super::shape::{Balance, Looked, Shape, SpendState};
use super::{Checked, NEVER, Numbers, Slot, Spent, State};
use crate::error::ConfigError;

/// Sliding window counter: the count of this window, plus the count of the previous one weighted by
/// its remaining overlap.
///
/// A cost passes when `floor(previous * (period - elapsed) / period) + current + cost <= limit`. It
/// is exact if the previous window's arrivals were evenly spread, and never needs more than two
/// counts.
///
/// Otherwise it is not exact: **traffic that takes every unit it can get passes up to twice the limit
/// in some span of one period**. A burst at the end of a window counts less and less while the next
/// one passes, and as it fades, the next window fills up. Within one of its own windows never more
/// than the limit passes. Cloudflare's figure of 0.003 % wrong decisions is for the traffic of its
/// customers, not for a client that aims at the border. For logins use the
/// [log](super::SlidingLog).
///
/// # Source
/// Cloudflare, "How we built rate limiting capable of scaling to millions of domains" (2017).
/// Windows are aligned to the clock's epoch.
///
/// # Rounding
/// The previous window's share is rounded down, as above, on the exact product: 80 of 100 at three
/// quarters is 20, 5 of 7 at three tenths is 3. Time is cut to milliseconds if `limit * period`
/// in microseconds exceeds 2^52. One of several parts of a policy ([`Policy::split`](crate::Policy::split)) rounds that
/// share up: if each of N parts rounded down, their sum would admit up to N - 1 units too many.
///
/// # State
/// Two 64-bit words: the moment at which both counts end, and the two counts of 31 bits.
///
/// # Example
/// Seven per 10 s. Five were spent in the window before and three in this one, of which three
/// tenths are over: of the five, three and a half still overlap and three count.
///
/// ```
/// use sluicegate_core::algorithm::{Rule, State};
/// use sluicegate_core::{Algorithm, Quota};
///
/// const SECOND: u64 = 1_000_000;
/// let rule = Rule::new(Algorithm::SlidingCounter, "7/10s".parse::<Quota>()?)?;
/// let state = rule.spend(State::REST, 0, 0, 5);
/// let now = 13 * SECOND;
/// let state = rule.spend(state, now, now, 3);
/// assert_eq!(rule.used(state, now), 3 + 3);
/// let state = rule.spend(state, now, now, 1); // the seventh passes
/// assert_eq!(rule.remaining(state, now), 0);
/// assert_eq!(rule.slot(state, now, 1).opens_us, 14 * SECOND + 1); // when less than 3 of 5 overlap
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    limit: u64,
    period_us: NonZeroU64,
    unit_us: NonZeroU64,
    /// The period in units.
    period: NonZeroU64,
    /// The count above which a charge is forgotten.
    ceiling: u64,
    /// The number added to the product of the previous window's share before it is divided: 0 to round down, the period less 1 to
    /// round up.
    excess: u64,
}

const COUNT_BITS: u32 = 31;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// Set in the word of the current count if a turn is reserved ahead.
const CLOSED_WORD: u64 = 1 << 32;

/// The window that a moment falls into.
struct CounterWindow {
    start_us: u64,
    previous: u64,
    current: u64,
    closed: bool,
}

impl SlidingCounter {
    pub(super) fn new(quota: Checked) -> Result<Self, ConfigError> {
        let quota = quota.in_windows()?;
        let limit = quota.limit.get();
        if limit > COUNT_MAX / 2 {
            return Err(quota.inexact(format_args!("a sliding counter counts to {}", COUNT_MAX / 2)));
        }
        let (unit_us, period) = quota.unit(|period| limit.saturating_mul(period.get()))?;
        let rule = Self { limit, period_us: quota.period_us, unit_us, period, ceiling: 0, excess: 0 };
        Ok(rule.with_debt(quota.most_debt()))
    }

    /// The highest exact count.
    fn most(&self) -> u64 {
        COUNT_MAX.min((super::EXACT / self.period).saturating_mul(2)).max(self.limit)
    }

    #[inline]
    fn window(&self, state: State, now_us: u64) -> CounterWindow {
        if state.until_us <= now_us {
            let start_us = now_us.saturating_sub(now_us % self.period_us);
            return CounterWindow { start_us, previous: 0, current: 0, closed: false };
        }
        let (previous, current) = ((state.count() >> COUNT_BITS) & COUNT_MAX, state.count() & COUNT_MAX);
        let closed = state.is_closed();
        // A state is at rest two whole periods after its window began.
        let next_us = state.until_us.saturating_sub(self.period_us.get());
        if now_us >= next_us {
            CounterWindow { start_us: next_us, previous: current, current: 0, closed }
        } else {
            CounterWindow {
                start_us: next_us.saturating_sub(self.period_us.get()),
                previous,
                current,
                closed,
            }
        }
    }

    #[inline]
    fn state(&self, window: &CounterWindow) -> State {
        // While a turn in a later window is reserved, the windows before it have lost their counts and stay closed.
        if window.previous | window.current == 0 && !window.closed {
            return State::REST;
        }
        let counts = window.previous.checked_shl(COUNT_BITS).unwrap_or_default() | window.current;
        State {
            until_us: window.start_us.saturating_add(self.period_us.get().saturating_mul(2)),
            aux: counts | if window.closed { State::CLOSED } else { 0 },
        }
    }

    fn is_over(window: &CounterWindow, now_us: u64) -> bool {
        window.closed && now_us < window.start_us
    }

    /// The part of `previous` units that still counts when `elapsed` of this window is over.
    #[inline]
    fn share(&self, previous: u64, elapsed: u64) -> u64 {
        if previous == 0 {
            return 0;
        }
        let product = previous.saturating_mul(self.period.get().saturating_sub(elapsed));
        product.saturating_add(self.excess) / self.period
    }

    /// How far into a window the share of `previous` has fallen to `target`; the whole period if not before its end.
    #[inline]
    fn falls_to(&self, previous: u64, target: u64) -> u64 {
        let Some(units) = NonZeroU64::new(previous).filter(|units| units.get() > target) else { return 0 };
        if self.excess == 0 && target.saturating_add(1) == units.get() {
            // The share falls by one as soon as time passes. Most decisions ask for this, and it needs no division.
            return 1;
        }
        // share <= target while previous * (period - elapsed) + excess < (target + 1) * period.
        let bound = target.saturating_add(1).saturating_mul(self.period.get()).saturating_sub(self.excess);
        let left = bound.div_ceil(units.get());
        self.period.get().saturating_sub(left.saturating_sub(1))
    }

    #[inline]
    fn elapsed(&self, window: &CounterWindow, now_us: u64) -> u64 {
        let us = now_us.saturating_sub(window.start_us);
        // Almost every quota counts in microseconds; a branch is cheaper than a division.
        if self.unit_us.get() == 1 { us } else { us / self.unit_us }
    }

    /// The moment `elapsed` units into the window that begins at `start_us`.
    #[inline]
    fn moment(&self, start_us: u64, elapsed: u64) -> u64 {
        if elapsed >= self.period.get() {
            return start_us.saturating_add(self.period_us.get());
        }
        start_us.saturating_add(elapsed.saturating_mul(self.unit_us.get()))
    }

    /// When the weighted count has fallen to `target` if nothing else arrives.
    #[inline]
    fn sinks_to(&self, window: &CounterWindow, now_us: u64, target: u64) -> u64 {
        if let Some(room) = target.checked_sub(window.current) {
            let elapsed = self.falls_to(window.previous, room);
            if elapsed <= self.elapsed(window, now_us) {
                return if Self::is_over(window, now_us) { window.start_us } else { now_us };
            }
            if elapsed < self.period.get() {
                return self.moment(window.start_us, elapsed);
            }
        }
        let next_us = window.start_us.saturating_add(self.period_us.get());
        self.moment(next_us, self.falls_to(window.current, target))
    }

    fn start_of(&self, spent: &Spent) -> u64 {
        self.window(spent.after, spent.at_us).start_us
    }

    /// Takes units from the count of the window that began at `start_us`; returns the number of units that were there.
    fn take(window: &mut CounterWindow, start_us: u64, period_us: NonZeroU64, units: u64) -> Option<u64> {
        let count = if window.start_us == start_us {
            &mut window.current
        } else if window.start_us == start_us.saturating_add(period_us.get()) {
            &mut window.previous
        } else {
            return None;
        };
        let taken = units.min(*count);
        *count = count.saturating_sub(taken);
        Some(taken)
    }

    /// The weighted count that the limit is compared with.
    #[inline]
    fn counted(&self, window: &CounterWindow, now_us: u64) -> u64 {
        self.share(window.previous, self.elapsed(window, now_us)).saturating_add(window.current)
    }
}

impl Shape for SlidingCounter {
    #[inline]
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn debt_ceiling(&self) -> u64 {
        self.ceiling
    }

    fn longest_spend_us(&self) -> u64 {
        self.period_us.get().saturating_mul(2)
    }

    fn numbers(&self) -> Numbers {
        let (period_us, unit_us, rounds_up) = (self.period_us.get(), self.unit_us.get(), self.excess > 0);
        Numbers::new(3, [self.limit, period_us, unit_us, self.ceiling, rounds_up.into(), 0])
    }

    fn words(&self, state: State) -> [u64; 3] {
        let closed = if state.is_closed() { CLOSED_WORD } else { 0 };
        [state.until_us, state.count() >> COUNT_BITS, (state.count() & COUNT_MAX) | closed]
    }

    fn of_words(&self, [until_us, previous, current]: [u64; 3]) -> State {
        let counts = ((previous & COUNT_MAX) << COUNT_BITS) | (current & COUNT_MAX);
        State::new(until_us, counts | if current >= CLOSED_WORD { State::CLOSED } else { 0 })
    }

    fn with_debt(mut self, units: u64) -> Self {
        self.ceiling = units.min(self.most()).max(self.limit);
        self
    }

    fn rounding_up(self) -> Self {
        Self { excess: self.period.get().saturating_sub(1), ..self }
    }

    fn slot(&self, state: State, now_us: u64, cost: u64) -> Slot {
        match self.limit.checked_sub(cost) {
            None => Slot::at(NEVER),
            Some(target) => Slot::at(self.sinks_to(&self.window(state, now_us), now_us, target)),
        }
    }

    fn spend(&self, state: State, now_us: u64, at_us: u64, cost: u64) -> State {
        if cost == 0 {
            return state;
        }
        let mut window = self.window(state, at_us);
        window.current = window.current.saturating_add(cost).min(self.most());
        window.closed = at_us > now_us || Self::is_over(&window, now_us);
        self.state(&window)
    }

    // Inlined always, because it is most of a decision.
    #[inline(always)]
    fn look(&self, state: State, now_us: u64, cost: u64, settle: impl SpendState) -> Option<Looked> {
        let mut window = self.window(state, now_us);
        let room = self.limit.checked_sub(cost)?;
        if Self::is_over(&window, now_us) {
            return None;
        }
        let counted = self.counted(&window, now_us);
        let passed = counted <= room;
        let (state, counted, target) = if passed {
            (window.current, window.closed) = (window.current.saturating_add(cost), false);
            let state = if cost == 0 { state } else { self.state(&window) };
            settle.settle((cost > 0).then_some(state));
            let counted = counted.saturating_add(cost);
            (state, counted, counted.saturating_sub(1))
        } else {
            settle.settle(None);
            (state, counted, room)
        };
        let wait_us = |target| self.sinks_to(&window, now_us, target).saturating_sub(now_us);
        let available_after_us = if counted == 0 { 0 } else { wait_us(target) };
        let remaining = self.limit.saturating_sub(counted);
        let looked = self.looked(passed, (state, now_us), remaining, available_after_us);
        // The window is already known; otherwise it would have to be found again from the state.
        Some(Looked { balance: Balance { reset_after_us: wait_us(0), ..looked.balance }, ..looked })
    }

    /// Spends at once up to the ceiling; says how many units took effect.
    fn charge(&self, state: State, now_us: u64, cost: u64) -> (State, u64) {
        let added = cost.min(self.ceiling.saturating_sub(self.window(state, now_us).current));
        (self.spend(state, now_us, now_us, added), added)
    }

    fn refund(&self, state: State, now_us: u64, ago_us: u64, cost: u64) -> State {
        let mut window = self.window(state, now_us);
        let spent_us = now_us.saturating_sub(ago_us);
        let mut older = cost;
        if spent_us >= window.start_us || ago_us == 0 {
            older = cost.saturating_sub(window.current);
            window.current = window.current.saturating_sub(cost);
        }
        if spent_us.saturating_add(self.period_us.get()) >= window.start_us || ago_us == 0 {
            window.previous = window.previous.saturating_sub(older);
        }
        self.state(&window)
    }

    /// Takes units off the count of the window in which they were spent, if it is one of the two.
    fn give_back(&self, state: State, now_us: u64, spent: &Spent, give: u64) -> (State, u64) {
        let mut window = self.window(state, now_us);
        let given = Self::take(&mut window, self.start_of(spent), self.period_us, give.min(spent.cost));
        given.map_or((state, 0), |given| (self.state(&window), given))
    }

    /// Takes back a turn of the last window only: a gap in the window before it is of little use to later turns.
    fn take_back(&self, state: State, turn: &Spent) -> Option<State> {
        let mut window = self.window(state, turn.at_us);
        if window.start_us != self.start_of(turn) {
            return None;
        }
        window.current = window.current.saturating_sub(turn.cost);
        Some(self.state(&window))
    }

    /// The higher counts of the two, in the later window of the two.
    fn heavier(&self, one: State, other: State, now_us: u64) -> State {
        let start_us = [one, other].map(|state| self.window(state, now_us).start_us);
        let last_us = start_us[0].max(start_us[1]);
        let (one, other) = (self.window(one, last_us), self.window(other, last_us));
        self.state(&CounterWindow {
            start_us: last_us,
            previous: one.previous.max(other.previous),
            current: one.current.max(other.current),
            closed: one.closed || other.closed,
        })
    }

    fn used(&self, state: State, now_us: u64) -> u64 {
        self.counted(&self.window(state, now_us), now_us)
    }

    fn remaining(&self, state: State, now_us: u64) -> u64 {
        let window = self.window(state, now_us);
        if Self::is_over(&window, now_us) {
            0
        } else {
            self.limit.saturating_sub(self.counted(&window, now_us))
        }
    }

    fn reset_after_us(&self, state: State, now_us: u64) -> u64 {
        self.sinks_to(&self.window(state, now_us), now_us, 0).saturating_sub(now_us)
    }

    /// The counts under another limit, if the windows are the same.
    fn carried(&self, from: &Self, state: State, now_us: u64) -> Option<State> {
        (self.period_us == from.period_us).then_some(if state.until_us <= now_us {
            State::REST
        } else {
            state
        })
    }

    fn lease_lasts_us(&self, after: State, at_us: u64, _behind: u64) -> u64 {
        // At the border itself the next window has begun.
        let end_us = self.window(after, at_us).start_us.saturating_add(self.period_us.get());
        end_us.saturating_sub(1).saturating_sub(at_us)
    }

    /// The units counted, including those of windows that reserved turns have used up.
    fn outstanding(&self, state: State, now_us: u64) -> u64 {
        let window = self.window(state, now_us);
        let ahead = window.start_us.saturating_sub(now_us).div_ceil(self.period_us.get());
        self.counted(&window, now_us).saturating_add(ahead.saturating_mul(self.limit))
    }
}
