//! Spans by the local clock.
//!
//! A lease ends by the clock of the store, and is spent by that of an instance. Their epochs do not matter, because only spans are
//! compared; their rates do. A clock that is allowed to be wrong by a thousandth is far worse than any that runs: quartz is off by
//! up to a ten-thousandth, and NTP slews by at most one two-thousandth.

use std::time::Duration;

/// The most that is allowed for the drift of a clock, in microseconds.
const MOST_DRIFT_US: u64 = 10_000_000;

/// Whole microseconds, rounded down; `u64::MAX` for what does not fit.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// How much time has passed at most by a clock that runs right, when this much has passed by the local one: a thousandth
/// more, and 10 s more at most.
/// Leases end by it: rather a unit that nobody spends than one that ended elsewhere.
#[inline]
pub(super) fn at_most(local_us: u64) -> u64 {
    local_us.saturating_add(local_us.div_ceil(999).min(MOST_DRIFT_US))
}

/// How much time has passed at least.
/// Moments that are told to others are counted by it, so that none of them is in the future.
#[inline]
pub(super) fn at_least(local_us: u64) -> u64 {
    local_us.saturating_sub(local_us.div_ceil(1_000).min(MOST_DRIFT_US))
}
