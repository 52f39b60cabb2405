//! Fixed window, and each bucket that is refilled at intervals.
//!
//! The count never goes down between borders, so the state holds the count and the end of the last window
//! that has units in it. A turn that is reserved in a later window *closes* the windows before it: the
//! state no longer has their counts, so a request that arrives now cannot know which of their units are promised.

use std::num::NonZeroU64;

use super::shape::{Looked, Shape, SpendState, quotient};
use super::{Checked, DEBT_HORIZON_US, EXACT, LONGEST_US, NEVER, Numbers, Slot, Spent, State};
use crate::error::{ConfigError, ConfigErrorKind};

/// Fixed window: at most `limit` units per window.
///
/// At a border up to twice the limit may pass within an instant: that is this algorithm's definition. Windows
/// begin on whole multiples of the period since the clock's epoch, those of a week on Mondays, or with a key's first unit.
///
/// A fixed window is a bucket of `limit` tokens that gets `limit` tokens at each border, so the interval token
/// bucket is the same code with a `burst` of its own. A debt in a window ends with the window, however large it is; a debt in a
/// bucket is paid back at one border after the other.
///
/// # Source
/// Folklore; the documentation of Redis' `INCR` describes it ("pattern: rate limiter"); this version has no race. Turns ahead
/// of time follow Resilience4j's `AtomicRateLimiter`: a window's permissions are given out before it begins.
///
/// # Rounding
/// None.
///
/// # State
/// Two 64-bit words: the end of the last window that has units in it, and the count. The start of the current window
/// follows from both.
///
/// # Example
/// Five a minute. All five pass at once, the sixth when the window ends, and at the border five
/// more.
///
/// ```
/// use sluicegate_core::algorithm::{Anchor, Rule, State};
/// use sluicegate_core::{Algorithm, Quota};
///
/// const SECOND: u64 = 1_000_000;
/// let rule = Rule::new(Algorithm::FixedWindow(Anchor::Epoch), Quota::per_minute(5))?;
/// let late = 59 * SECOND;
/// let state = rule.spend(State::REST, late, late, 5);
/// assert_eq!(rule.slot(state, late, 1).opens_us, 60 * SECOND);
/// assert_eq!(rule.remaining(state, 60 * SECOND), 5); // ten within two seconds
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    limit: NonZeroU64,
    period_us: NonZeroU64,
    burst: u64,
    /// The most used units that outlast a border, before it gives `limit` of them back.
    lasting: u64,
    /// When the first window after the epoch begins, if all keys have the same windows; less than a period.
    from_us: Option<u64>,
    /// The count above which a charge is forgotten.
    ceiling: u64,
}

/// The window that a moment falls into.
struct WindowBounds {
    start_us: u64,
    used: u64,
    closed: bool,
}

impl FixedWindow {
    pub(super) fn new(quota: Checked, from_us: Option<u64>) -> Result<Self, ConfigError> {
        let quota = quota.in_windows()?;
        let (limit, period_us, burst) = (quota.limit, quota.period_us, quota.burst.get());
        if burst > EXACT || limit.get() > EXACT {
            return Err(quota.inexact("counts end at 2^52"));
        }
        if burst.div_ceil(limit.get()).saturating_mul(period_us.get()) > LONGEST_US {
            return Err(ConfigError::new(
                ConfigErrorKind::Quota,
                format!("a burst of {burst} takes longer than ten years to refill at {}", quota.quota),
            ));
        }
        let rule = Self { limit, period_us, burst, lasting: u64::MAX, from_us, ceiling: 0 };
        Ok(rule.with_debt(quota.most_debt()))
    }

    /// These windows, in which a debt ends at the next border.
    pub(super) fn ending_debts(self) -> Self {
        Self { lasting: self.burst, ..self }
    }

    /// The number of borders until `used` units are given back.
    #[inline]
    fn borders(&self, used: u64) -> u64 {
        let used = used.min(self.lasting);
        // Avoids the division when there is no debt.
        if used <= self.limit.get() { u64::from(used > 0) } else { used.div_ceil(self.limit.get()) }
    }

    /// The moment from which on a cost fits that does not fit now.
    #[inline]
    fn opens_us(&self, window: &WindowBounds, cost: u64) -> u64 {
        let excess = window.used.min(self.lasting).saturating_add(cost).saturating_sub(self.burst);
        self.after_borders(window.start_us, self.borders(excess).max(1))
    }

    #[inline]
    fn after_borders(&self, start_us: u64, borders: u64) -> u64 {
        start_us.saturating_add(borders.saturating_mul(self.period_us.get()))
    }

    /// The start of the window of a key at rest.
    #[inline(always)]
    fn start_us(&self, now_us: u64) -> u64 {
        let Some(from_us) = self.from_us else { return now_us };
        let since_us = now_us.checked_sub(from_us);
        // A window that begins before the epoch begins at the epoch.
        since_us.map_or(0, |since_us| now_us.saturating_sub(since_us % self.period_us))
    }

    /// The window that `now_us` falls into, or a later one with a reserved turn. A
    /// window's start is not stored: it follows from the last border and from the number of borders that the
    /// count needs.
    #[inline(always)]
    fn window(&self, state: State, now_us: u64) -> WindowBounds {
        if state.until_us <= now_us {
            return WindowBounds { start_us: self.start_us(now_us), used: 0, closed: false };
        }
        let used = state.count();
        let span = self.borders(used).saturating_mul(self.period_us.get());
        let start_us = state.until_us.saturating_sub(span);
        let closed = state.is_closed();
        let elapsed_us = now_us.saturating_sub(start_us);
        if elapsed_us < self.period_us.get() {
            return WindowBounds { start_us, used, closed };
        }
        let passed = elapsed_us / self.period_us;
        WindowBounds {
            start_us: self.after_borders(start_us, passed),
            used: used.min(self.lasting).saturating_sub(passed.saturating_mul(self.limit.get())),
            closed,
        }
    }

    #[inline(always)]
    fn state(&self, window: WindowBounds) -> State {
        match window.used {
            // A turn in this window was given back; the window before it has lost its count and stays closed.
            0 if window.closed => State { until_us: window.start_us, aux: State::CLOSED },
            0 => State::REST,
            used => State {
                until_us: self.after_borders(window.start_us, self.borders(used)),
                aux: used | if window.closed { State::CLOSED } else { 0 },
            },
        }
    }

    /// Whether a turn in a later window is reserved, which ends this window.
    fn is_over(window: &WindowBounds, now_us: u64) -> bool {
        window.closed && now_us < window.start_us
    }
}

impl Shape for FixedWindow {
    #[inline]
    fn capacity(&self) -> u64 {
        self.burst
    }

    fn debt_ceiling(&self) -> u64 {
        self.ceiling
    }

    fn longest_spend_us(&self) -> u64 {
        self.after_borders(0, self.borders(self.burst))
    }

    fn drains_in(&self, span_us: u64) -> Option<u64> {
        (self.lasting == u64::MAX).then(|| quotient(span_us, self.limit, self.period_us))
    }

    fn numbers(&self) -> Numbers {
        // A border of a window gives all units back, however many.
        let limit = if self.lasting > self.limit.get() { self.limit.get() } else { EXACT };
        let from_us = self.from_us.map_or(0, |from_us| from_us.saturating_add(1));
        Numbers::new(2, [limit, self.period_us.get(), self.burst, self.ceiling, from_us, 0])
    }

    fn words(&self, state: State) -> [u64; 3] {
        [state.until_us, state.count(), state.is_closed().into()]
    }

    fn of_words(&self, [until_us, count, closed]: [u64; 3]) -> State {
        State::new(until_us, count | if closed > 0 { State::CLOSED } else { 0 })
    }

    fn with_debt(mut self, units: u64) -> Self {
        let exact = EXACT.min((DEBT_HORIZON_US / self.period_us).saturating_mul(self.limit.get()));
        self.ceiling = units.min(exact);
        self
    }

    fn slot(&self, state: State, now_us: u64, cost: u64) -> Slot {
        if cost > self.burst {
            return Slot::at(NEVER);
        }
        let window = self.window(state, now_us);
        Slot::at(match window.used.saturating_add(cost) <= self.burst {
            true if Self::is_over(&window, now_us) => window.start_us,
            true => now_us,
            false => self.opens_us(&window, cost),
        })
    }

    fn spend(&self, state: State, now_us: u64, at_us: u64, cost: u64) -> State {
        if cost == 0 {
            return state;
        }
        let mut window = self.window(state, at_us);
        window.used = window.used.saturating_add(cost).min(EXACT);
        window.closed = at_us > now_us || Self::is_over(&window, now_us);
        self.state(window)
    }

    // Inlined always, because it is most of a decision.
    #[inline(always)]
    fn look(&self, state: State, now_us: u64, cost: u64, settle: impl SpendState) -> Option<Looked> {
        let window = self.window(state, now_us);
        if cost > self.burst || Self::is_over(&window, now_us) {
            return None;
        }
        let used = window.used.saturating_add(cost);
        let passed = used <= self.burst;
        let (state, used, opens_us) = if passed {
            let spends = cost > 0;
            let state =
                if spends { self.state(WindowBounds { used, closed: false, ..window }) } else { state };
            settle.settle(spends.then_some(state));
            // One unit more than what remains is one too many.
            (state, used, self.after_borders(window.start_us, 1))
        } else {
            settle.settle(None);
            (state, window.used, self.opens_us(&window, cost))
        };
        let available_after_us = if used == 0 { 0 } else { opens_us.saturating_sub(now_us) };
        Some(self.looked(passed, (state, now_us), self.burst.saturating_sub(used), available_after_us))
    }

    /// Spends at once up to the ceiling; says how many units took effect.
    fn charge(&self, state: State, now_us: u64, cost: u64) -> (State, u64) {
        let added = cost.min(self.ceiling.saturating_sub(self.window(state, now_us).used));
        (self.spend(state, now_us, now_us, added), added)
    }

    fn refund(&self, state: State, now_us: u64, ago_us: u64, cost: u64) -> State {
        let mut window = self.window(state, now_us);
        if ago_us > 0 && now_us.saturating_sub(ago_us) < window.start_us {
            // The cost was spent in a window that has ended, and no longer counts.
            return state;
        }
        window.used = window.used.saturating_sub(cost);
        self.state(window)
    }

    /// Each border since the spend has given `limit` units back, the oldest units first, and the first border has ended the debt.
    fn give_back(&self, state: State, now_us: u64, spent: &Spent, give: u64) -> (State, u64) {
        let mut window = self.window(state, now_us);
        let spent_in_us = self.window(spent.after, spent.at_us).start_us;
        let borders = window.start_us.saturating_sub(spent_in_us) / self.period_us;
        let drained = borders.saturating_mul(self.limit.get());
        let lasting = if borders > 0 { self.lasting } else { u64::MAX };
        let found = spent.found.saturating_sub(spent.given_since);
        let last = found.saturating_add(spent.cost).min(lasting);
        let given = give.min(last.saturating_sub(found.max(drained))).min(window.used);
        window.used = window.used.saturating_sub(given);
        (self.state(window), given)
    }

    /// Lowers the count of the turn's window: a count does not know the order in which units came.
    fn take_back(&self, state: State, turn: &Spent) -> Option<State> {
        let mut window = self.window(state, turn.at_us);
        if window.start_us != self.window(turn.after, turn.at_us).start_us {
            return None;
        }
        window.used = window.used.saturating_sub(turn.cost);
        Some(self.state(window))
    }

    /// The higher count of the two, in the later window of the two.
    fn heavier(&self, one: State, other: State, now_us: u64) -> State {
        let (one, other) = (self.window(one, now_us), self.window(other, now_us));
        self.state(WindowBounds {
            start_us: one.start_us.max(other.start_us),
            used: one.used.max(other.used),
            closed: one.closed || other.closed,
        })
    }

    fn used(&self, state: State, now_us: u64) -> u64 {
        self.window(state, now_us).used
    }

    fn remaining(&self, state: State, now_us: u64) -> u64 {
        let window = self.window(state, now_us);
        if Self::is_over(&window, now_us) { 0 } else { self.burst.saturating_sub(window.used) }
    }

    /// The window of another limit, if it has the same borders: its start and its count stay.
    fn carried(&self, from: &Self, state: State, now_us: u64) -> Option<State> {
        let alike = self.period_us == from.period_us && self.from_us == from.from_us;
        alike.then(|| {
            if state.until_us <= now_us { State::REST } else { self.state(from.window(state, now_us)) }
        })
    }

    fn lease_lasts_us(&self, after: State, at_us: u64, _behind: u64) -> u64 {
        // At the border itself the next window has begun.
        let last_us = self.after_borders(self.window(after, at_us).start_us, 1).saturating_sub(1);
        last_us.saturating_sub(at_us)
    }

    /// The units counted, including those of windows that reserved turns have used up.
    fn outstanding(&self, state: State, now_us: u64) -> u64 {
        let window = self.window(state, now_us);
        let ahead = window.start_us.saturating_sub(now_us).div_ceil(self.period_us.get());
        window.used.saturating_add(ahead.saturating_mul(self.limit.get().min(self.lasting)))
    }
}
