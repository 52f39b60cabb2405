//! Sliding window log.
//!
//! The only rule without a [`State`]: it says when a list of entries has room. Stores keep
//! that list, each in its own way: the memory store in shards of bounded size, Redis in the
//! value of the key.

use std::num::NonZeroU64;

use super::State;
use super::shape::{Looked, Shape};
use super::{Checked, NEVER, Numbers, Slot};
use crate::error::{ConfigError, ConfigErrorKind};

/// Sliding window log: the time and cost of each admission in `(now - period, now]`.
///
/// Exact at every instant, at the price of an entry per admission; therefore the limit is capped. A refusal
/// leaves no entry. Unlike other rules, its state is a list; a store passes the part that a question needs.
///
/// # With a resolution
/// Under [`Algorithm::SlidingLogIn`](crate::Algorithm::SlidingLogIn) the period has `n` parts, cut on multiples of their
/// length since the epoch. All units that are admitted within one part share an entry, which has the time of the last unit. A
/// unit therefore counts for at least the period, so that no more than the limit passes in any span of one period, and for at
/// most a part longer. A span of one period meets at most `n + 1` parts, and the log has no more entries than that.
///
/// # Source
/// The textbook definition. The window is half open: a unit admitted exactly one period ago no longer counts.
///
/// # Rounding
/// None.
///
/// # State
/// One entry of 16 bytes (memory) per admission in the last period, whatever its cost; at most `n + 1` of them with a
/// resolution.
///
/// # Example
/// Three per 10 s, with entries at 1, 4 and 6 s: the next one fits when the oldest is a period old.
///
/// ```
/// use sluicegate_core::algorithm::Rule;
/// use sluicegate_core::{Algorithm, Quota};
///
/// const SECOND: u64 = 1_000_000;
/// let rule = Rule::new(Algorithm::SlidingLog, "3/10s".parse::<Quota>()?)?;
/// let log = rule.log().expect("the rule is a log");
/// let entries = [(SECOND, 1), (4 * SECOND, 1), (6 * SECOND, 1)];
/// assert_eq!(log.slot(entries.into_iter(), 3, 7 * SECOND, 1).opens_us, 11 * SECOND);
/// assert_eq!(log.slot(entries.into_iter(), 3, 7 * SECOND, 2).opens_us, 14 * SECOND);
/// assert!(log.is_over(SECOND, 11 * SECOND)); // half open: a unit of just one period ago does not count
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    limit: u64,
    period_us: NonZeroU64,
    ceiling: u64,
    /// The length of a part of the period; the units of a part share one entry. It is a microsecond without a resolution.
    part_us: NonZeroU64,
    entries: u64,
}

impl SlidingLog {
    /// The highest limit that is accepted.
    pub const MAX_LIMIT: u64 = 1_000_000;

    /// The highest limit of a log with a resolution.
    pub const MAX_LIMIT_IN_PARTS: u64 = 100_000_000;

    /// The most parts that a resolution may cut the period into.
    pub const MAX_PARTS: u32 = 1_000;

    /// The highest debt: all units may be those of one entry.
    const MAX_DEBT: u64 = u32::MAX as u64;

    /// A log with a period of this many parts, if any.
    pub(super) fn new(quota: Checked, parts: Option<u32>) -> Result<Self, ConfigError> {
        let quota = quota.in_windows()?;
        let (limit, period_us, ceiling) =
            (quota.limit.get(), quota.period_us, quota.most_debt().min(Self::MAX_DEBT));
        let refused = |kind, problem: String| Err(ConfigError::new(kind, problem));
        let Some(parts) = parts else {
            let most = Self::MAX_LIMIT;
            if limit > most {
                let problem = format!(
                    "a sliding log keeps an entry per admission, so its limit is at most {most}, not {limit}: give it a resolution, or use a sliding counter"
                );
                return refused(ConfigErrorKind::Quota, problem);
            }
            return Ok(Self { limit, period_us, ceiling, part_us: NonZeroU64::MIN, entries: limit });
        };
        let Some(cut) = NonZeroU64::new(parts.into()).filter(|_| parts <= Self::MAX_PARTS) else {
            let problem = format!(
                "a sliding log cannot have a resolution of {parts}: cut its period into 1 to {} parts",
                Self::MAX_PARTS
            );
            return refused(ConfigErrorKind::Policy, problem);
        };
        let most = Self::MAX_LIMIT_IN_PARTS;
        if limit > most {
            let problem = format!(
                "a sliding log with a resolution has a limit of at most {most}, not {limit}: use a sliding counter"
            );
            return refused(ConfigErrorKind::Quota, problem);
        }
        // Rounded up: a period touches at most `parts + 1` parts, each less than a microsecond longer than the exact part.
        let part_us = NonZeroU64::new(period_us.get().div_ceil(cut.get())).unwrap_or(NonZeroU64::MIN);
        Ok(Self { limit, period_us, ceiling, part_us, entries: limit.min(cut.get().saturating_add(1)) })
    }

    /// The most entries that a log has, debts aside.
    pub fn most_entries(&self) -> u64 {
        self.entries
    }

    /// Whether units of these two moments share one entry, which has the later moment.
    #[inline]
    pub fn is_one_entry(&self, one_us: u64, other_us: u64) -> bool {
        one_us == other_us || (self.part_us.get() > 1 && self.part(one_us) == self.part(other_us))
    }

    /// Whether units of the first moment are in a later entry than units of the second.
    #[inline]
    pub fn is_later_entry(&self, one_us: u64, other_us: u64) -> bool {
        one_us > other_us && !self.is_one_entry(one_us, other_us)
    }

    fn part(&self, at_us: u64) -> u64 {
        at_us / self.part_us
    }

    /// The sum above which a charge is forgotten.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Units per period.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The period in microseconds.
    pub fn period_us(&self) -> NonZeroU64 {
        self.period_us
    }

    /// The result of a look at a log, with the units that it counts and the moment at which they end, as states before and after.
    pub(crate) fn looked_at(
        &self,
        passed: bool,
        (state, now_us): (State, u64),
        available_after_us: u64,
    ) -> Looked {
        self.looked(passed, (state, now_us), self.remaining(state, now_us), available_after_us)
    }

    /// Whether units that were admitted at `at_us` no longer count.
    pub fn is_over(&self, at_us: u64, now_us: u64) -> bool {
        at_us.saturating_add(self.period_us.get()) <= now_us
    }

    /// When `cost` would pass: `entries` are (time, cost), oldest first, none of them over; `sum` is their cost. Turns
    /// reserved ahead of time are among the entries, and count from now on.
    pub fn slot(&self, entries: impl Iterator<Item = (u64, u64)>, sum: u64, now_us: u64, cost: u64) -> Slot {
        if cost > self.limit {
            return Slot::at(NEVER);
        }
        let mut excess = sum.saturating_add(cost).saturating_sub(self.limit);
        if excess == 0 {
            return Slot::at(now_us);
        }
        for (at_us, cost) in entries {
            excess = excess.saturating_sub(cost);
            if excess == 0 {
                return Slot::at(now_us.max(at_us.saturating_add(self.period_us.get())));
            }
        }
        Slot::at(now_us)
    }
}

impl Shape for SlidingLog {
    #[inline]
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn debt_ceiling(&self) -> u64 {
        self.ceiling
    }

    fn longest_spend_us(&self) -> u64 {
        self.period_us.get()
    }

    fn numbers(&self) -> Numbers {
        Numbers::new(4, [self.limit, self.period_us.get(), self.ceiling, self.part_us.get(), 0, 0])
    }

    fn remaining(&self, state: State, now_us: u64) -> u64 {
        self.limit.saturating_sub(self.used(state, now_us))
    }

    /// The number in a state that is made for this question.
    fn used(&self, state: State, _now_us: u64) -> u64 {
        state.aux
    }

    fn of_words(&self, [moment_us, ..]: [u64; 3]) -> State {
        // An entry has its moment and nothing else.
        State::new(moment_us, 0)
    }

    fn with_debt(mut self, units: u64) -> Self {
        self.ceiling = units.min(Self::MAX_DEBT);
        self
    }
}
