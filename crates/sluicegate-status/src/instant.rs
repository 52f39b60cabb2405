//! Moments as text in RFC 3339.
//!
//! They are always in UTC: operators sit in several zones, and logs and metrics are in UTC, too.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// Writes a moment in whole milliseconds: `2026-11-21T15:00:00.000Z`.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or_default().max(Timestamp::UNIX_EPOCH);
    format!("{at:.3}")
}

/// Whole seconds of a wait, rounded up, so that no client is told too little.
pub(crate) fn seconds_up(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Reads a moment as it is written, in any zone, from the epoch on.
pub(crate) fn read(text: &str) -> Option<SystemTime> {
    let at: Timestamp = text.parse().ok()?;
    (at >= Timestamp::UNIX_EPOCH).then(|| at.into())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_moment_is_its_date_also_around_leap_days_and_turns_of_centuries() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_795_273_200, "2026-11-21T15:00:00.000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!((rfc3339(at).as_str(), read(text)), (text, Some(at)));
        }
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_micros(1_234_567)), "1970-01-01T00:00:01.234Z");
        assert_eq!(read("1970-01-01T00:00:01.2Z"), Some(UNIX_EPOCH + Duration::from_millis(1_200)));
        assert_eq!(read("1970-01-01T00:00:01Z"), Some(UNIX_EPOCH + Duration::from_secs(1)));
    }

    #[test]
    fn a_text_that_is_no_moment_is_none() {
        for text in [
            "",
            "soon",
            "2026-11-21",
            "2026-11-21T15:00:00",
            "2026-02-30T15:00:00Z",
            "2026-13-01T15:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T15:00:00.xZ",
            "1969-12-31T23:59:59Z",
            "99999999999999999999-01-01T00:00:00Z",
            "2026-11-21T15:+1:00Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
