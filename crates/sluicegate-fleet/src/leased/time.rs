//! Spans by the local clock.

use std::time::Duration;

/// The most that is allowed for the drift of a clock, in microseconds.
const MOST_DRIFT_US: u64 = 10_000_000;

/// Whole microseconds, rounded down; `u64::MAX` for what does not fit.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// How much time has passed at most by a clock that runs right, when this much has passed by the local one: a thousandth
/// more, and 10 s more at most.
#[inline]
pub(super) fn at_most(local_us: u64) -> u64 {
    local_us.saturating_add(local_us.div_ceil(999).min(MOST_DRIFT_US))
}

/// How much time has passed at least.
#[inline]
pub(super) fn at_least(local_us: u64) -> u64 {
    local_us.saturating_sub(local_us.div_ceil(1_000).min(MOST_DRIFT_US))
}
