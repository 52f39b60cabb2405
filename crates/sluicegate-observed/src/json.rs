//! The parts of a snapshot whose JSON is not that of their type: moments, times and words.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::Serializer;
use sluicegate_core::store::{BreakerState, Undecided};

/// Writes a moment in RFC 3339, in UTC and whole milliseconds: `2026-11-21T15:00:00.000Z`.
pub(super) fn moment<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let at = Timestamp::try_from(*at).unwrap_or_default().max(Timestamp::UNIX_EPOCH);
    serializer.collect_str(&format_args!("{at:.3}"))
}

/// As [`moment`], or `null`.
pub(super) fn moment_if_any<S: Serializer>(
    at: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => moment(at, serializer),
        None => serializer.serialize_none(),
    }
}

/// Writes milliseconds. Times are known to a tenth of a microsecond.
pub(super) fn millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_f64((time.as_secs_f64() * 1e7).round() / 1e4),
        None => serializer.serialize_none(),
    }
}

/// Writes whole seconds.
pub(super) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_secs())
}

pub(super) fn breaker<S: Serializer>(state: &BreakerState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match state {
        BreakerState::Closed => "closed",
        BreakerState::HalfOpen => "half_open",
        BreakerState::Open => "open",
    })
}

/// Writes an object with the count of each reason.
pub(super) fn by_reason<S: Serializer>(
    counts: &[(Undecided, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().map(|(why, count)| (why.as_str(), count)))
}
