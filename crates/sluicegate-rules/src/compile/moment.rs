//! Moments in time, such as `2026-11-27T12:00:00Z`.
//!
//! A zone is required: a file is read on servers with different local times, and a sale that opens an hour early cannot be undone.
//! A date that does not exist or is before 1970 is refused.

use std::time::SystemTime;

use jiff::Timestamp;

use super::is_unknown;
use crate::at::At;
use crate::error::Problems;
use crate::read::short;

/// Reads a moment, or reports a mistake in it.
pub(super) fn moment(text: &At<String>, problems: &mut Problems<'_>) -> Option<SystemTime> {
    if is_unknown(text, "that it is open", problems) {
        return None;
    }
    let found = read(&text.value);
    if found.is_none() {
        let shown = short(&text.value);
        let problem = format!(
            "{shown:?} is not a moment: write 2026-11-27T12:00:00Z, or with a zone 2026-11-27T13:00:00+01:00"
        );
        problems.error(text.place, problem);
    }
    found
}

/// A moment of RFC 3339, from the epoch on.
fn read(text: &str) -> Option<SystemTime> {
    let at: Timestamp = text.parse().ok()?;
    (at >= Timestamp::UNIX_EPOCH).then(|| at.into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_moment_is_read_in_any_zone_and_no_other_text_is_one() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-27T12:00:00Z", 1_795_780_800),
            ("2026-11-27T13:30:00+01:30", 1_795_780_800),
            ("2026-11-27T04:00:00-08:00", 1_795_780_800),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(read(text), Some(UNIX_EPOCH + Duration::from_secs(expected)), "{text}");
        }
        for text in [
            "",
            "noon",
            "2026-11-27",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-27T24:00:00Z",
            "2026-11-27T12:00:00",
            "1969-12-31T00:00:00Z",
            "2026-11-27T12:00:00Zz",
            "2026-11-27T12:0é:00Z",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
