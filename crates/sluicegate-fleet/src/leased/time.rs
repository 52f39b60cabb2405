//! Spans by the local clock.
//!
//! A lease ends by the clock of the store, and is spent by the clock of an instance. Their epochs do not matter, because only spans are
//! compared; their rates do. The allowed error of a thousandth is far above that of any real clock: quartz is off by up to a
//! ten-thousandth, and NTP slews by at most one two-thousandth.

/// The largest allowed drift of a clock, in microseconds.
const MOST_DRIFT_US: u64 = 10_000_000;

/// The most time that may have passed by a correct clock, when this much has passed by the local one: a thousandth more, and at most 10 s
/// more. Leases end by this time: it is better to lose a unit than to spend one that has ended elsewhere.
#[inline]
pub(super) fn at_most(local_us: u64) -> u64 {
    local_us.saturating_add(local_us.div_ceil(999).min(MOST_DRIFT_US))
}

/// The least time that must have passed. Moments that others see are counted by this time, so that none of them is in the future.
#[inline]
pub(super) fn at_least(local_us: u64) -> u64 {
    local_us.saturating_sub(local_us.div_ceil(1_000).min(MOST_DRIFT_US))
}
