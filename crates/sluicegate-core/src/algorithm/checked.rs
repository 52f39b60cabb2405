//! A quota, checked as far as possible without an algorithm.

use std::num::NonZeroU64;

use super::{EXACT, LONGEST_US};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::quota::Quota;
use crate::text::REFUSE_ALL;

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
