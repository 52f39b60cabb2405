//! Moments as text, as RFC 3339 has them.
//!
//! Always in UTC, for operators sit in several zones, and logs and metrics are in UTC, too. No library of dates is needed for that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Writes a moment: `2026-11-21T15:00:00.000Z`.
///
/// The days become a date by Howard Hinnant's `civil_from_days`, whose years begin in March.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let since_epoch: Duration = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since_epoch.as_secs(), since_epoch.subsec_millis());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let from_era = days + 719_468;
    let (era, day) = (from_era / 146_097, from_era % 146_097);
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Whole seconds of a wait, rounded up, so that nobody is told of less.
pub(crate) fn seconds_up(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Reads a moment of UTC as it is written, whole seconds with or without a part.
pub(crate) fn read(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (whole, part) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(whole, ':')?;
    let millis: u64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    let is_one = (1970..=9_999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_one || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3_600 + minute * 60 + second;
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(seconds * 1_000 + millis))?;
    // The 31st of a month that has none is another day.
    rfc3339(at).starts_with(date).then_some(at)
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?;
    let numbers: Vec<u64> = text.split(separator).map(digits).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
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
    fn a_text_that_is_no_moment_of_utc_is_none() {
        for text in [
            "",
            "soon",
            "2026-11-21",
            "2026-11-21T15:00:00",
            "2026-11-21T15:00:00+01:00",
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
