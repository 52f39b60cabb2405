//! Times as logs write them, in microseconds since the Unix epoch.
//!
//! Texts are cut up by hand, because the few forms in logs are read by a few comparisons each, and every line has one of them; the calendar
//! is jiff's. Dates are those of the Gregorian calendar from 1970 to 9999. Leap seconds do not exist in Unix time, and a written one counts
//! as the second after it. A date that does not exist, such as the 30th of February, is no time.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

/// A moment, and whether it was written as a whole second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::read) struct Moment {
    /// Microseconds since the Unix epoch; finer digits are cut off.
    pub(crate) us: u64,
    pub(crate) is_whole: bool,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Reads times, in its zone where they name none. Most of them equal the time of the line before.
///
/// Servers write the same second for many lines, and comparing 26 bytes takes less time than reading them.
#[derive(Clone, Debug)]
pub(in crate::read) struct TimeReader {
    /// The last text of [`local`], and its moment.
    last: Option<([u8; LOCAL], Moment)>,
    zone: TimeZone,
}

/// The length of `17/May/2015:10:05:03 +0200`.
const LOCAL: usize = 26;

impl Default for TimeReader {
    fn default() -> Self {
        Self::in_zone(TimeZone::UTC)
    }
}

impl TimeReader {
    /// Reads times without a zone as of this one.
    pub(in crate::read) fn in_zone(zone: TimeZone) -> Self {
        Self { last: None, zone }
    }

    /// Reads a time in any form: of Apache and nginx, RFC 3339, `Sun May 17 10:05:03 2015`, or a number since 1970.
    pub(super) fn read(&mut self, text: &str) -> Option<Moment> {
        let Ok(bytes) = <[u8; LOCAL]>::try_from(text.as_bytes()) else {
            let zone = &self.zone;
            return unix(text)
                .or_else(|| iso(text, zone))
                .or_else(|| local(text, zone))
                .or_else(|| of_day(text, zone));
        };
        match &self.last {
            Some((last, moment)) if *last == bytes => Some(*moment),
            _ => {
                let moment = local(text, &self.zone).or_else(|| iso(text, &self.zone))?;
                self.last = Some((bytes, moment));
                Some(moment)
            }
        }
    }
}

/// Reads a time as Apache and nginx write it: `17/May/2015:10:05:03 +0200`, also without the zone.
fn local(text: &str, zone: &TimeZone) -> Option<Moment> {
    let (date, offset) = text.split_once(' ').unwrap_or((text, ""));
    let mut parts = date.splitn(4, ['/', ':']);
    let (day, month, year, clock) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    moment((number(year, 4)?, named_month(month)?, number(day, 2)?), clock, offset, zone)
}

/// Reads a time as RFC 3339 has it, also without the zone: `2015-05-17T10:05:03.250Z`, `2015-05-17 10:05:03,250`.
fn iso(text: &str, zone: &TimeZone) -> Option<Moment> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, offset) = rest.split_at(rest.find(['Z', 'z', '+', '-', ' ']).unwrap_or(rest.len()));
    moment(calendar(date)?, clock, offset.trim_start(), zone)
}

/// Reads a time as C writes it, which has no zone: `Sun May 17 10:05:03 2015`.
fn of_day(text: &str, zone: &TimeZone) -> Option<Moment> {
    let mut words = text.split_ascii_whitespace().skip(1);
    let (month, day, clock, year) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let day = digits(day).filter(|day| day.len() <= 2)?.parse().ok()?;
    moment((number(year, 4)?, named_month(month)?, day), clock, "", zone)
}

/// The number of a month that is written as `May`.
pub(super) fn named_month(text: &str) -> Option<u64> {
    (1..).zip(MONTHS).find(|(_, name)| *name == text).map(|(month, _)| month)
}

/// Reads a time as people write it: a day, a minute or a second, in UTC unless it names a zone.
pub(crate) fn written(text: &str) -> Option<u64> {
    let full = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        16 => format!("{text}:00Z"),
        _ => text.to_owned(),
    };
    iso(&full, &TimeZone::UTC).map(|moment| moment.us)
}

/// A zone by its name, such as `Europe/Berlin`, or by its distance from UTC, such as `+02:00`.
pub(crate) fn zone(text: &str) -> Option<TimeZone> {
    match offset(text) {
        Some(seconds) if !text.is_empty() => {
            jiff::tz::Offset::from_seconds(i32::try_from(seconds).ok()?).ok().map(TimeZone::fixed)
        }
        _ => TimeZone::get(text).ok(),
    }
}

/// The last moment that can be shown as a date, in the last days of the year 9999. A replay adds up to a second to a moment, and has room
/// for it after this one.
const LAST_US: u64 = 253_402_207_200_999_999;

/// Reads a number since the epoch, as `1431857103.250`: of seconds, or of thousandths, millionths or billionths, which have so many more
/// digits that no time is ambiguous.
pub(super) fn unix(text: &str) -> Option<Moment> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let us = match whole.len() {
        ..=12 => seconds(text)?,
        13..=15 => digits(whole)?.parse::<u64>().ok()? * 1_000,
        16..=18 => digits(whole)?.parse().ok()?,
        19 => digits(whole)?.parse::<u64>().ok()? / 1_000,
        _ => return None,
    };
    (us <= LAST_US).then_some(Moment { us, is_whole: whole.len() <= 12 && fraction.is_empty() })
}

/// Reads how long something took, in microseconds: a number of units, or with a unit of its own, such as `5ms`.
pub(super) fn lasting(text: &str, unit: &str) -> Option<u64> {
    let (count, own) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    match if own.is_empty() { unit } else { own.trim_start() } {
        "s" => seconds(count),
        "ms" => seconds(count).map(|us| us / 1_000),
        "us" | "µs" | "μs" => seconds(count).map(|us| us / 1_000_000),
        "ns" => digits(count.split('.').next()?)?.parse::<u64>().ok().map(|ns| ns / 1_000),
        _ => None,
    }
}

/// Reads seconds as microseconds; up to six digits after the point count.
pub(in crate::read) fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = digits(whole)?.parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(micros(fraction)?)
}

/// Reads the fraction of a second after the point.
fn micros(fraction: &str) -> Option<u64> {
    if fraction.is_empty() {
        return Some(0);
    }
    let digits = digits(fraction)?.get(..fraction.len().min(6))?;
    let scale = 10_u64.pow(6 - u32::try_from(digits.len()).ok()?);
    Some(digits.parse::<u64>().ok()? * scale)
}

/// Reads a date, a time of day with a fraction, and its distance from UTC, or that of the zone if it is empty. A time that summer time
/// leaves out is an hour later, and of two hours the first counts.
fn moment(
    (year, month, day): (u64, u64, u64),
    clock: &str,
    distance: &str,
    zone: &TimeZone,
) -> Option<Moment> {
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, ""));
    let mut parts = clock.splitn(3, ':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    // A leap second counts as the second after it.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let midnight = midnight(year, month, day)?;
    let seconds = i64::try_from(hour * 3_600 + minute * 60 + second).ok()?;
    let utc = match distance {
        "" if *zone != TimeZone::UTC => {
            let local = midnight.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()?;
            zone.to_timestamp(local).ok()?.as_second()
        }
        _ => TimeZone::UTC.to_timestamp(midnight).ok()?.as_second() + seconds - offset(distance)?,
    };
    let us = u64::try_from(utc).ok()?.checked_mul(1_000_000)? + micros(fraction)?;
    Some(Moment { us, is_whole: fraction.is_empty() })
}

/// The seconds that a zone is ahead of UTC: `+0200`, `+02:00`, or `Z`, `UTC` or nothing for UTC.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "" | "Z" | "z" | "UTC") {
        return Some(0);
    }
    let ahead = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let seconds = i64::try_from(hours * 3_600 + minutes * 60).ok()?;
    (hours < 24 && minutes < 60).then_some(ahead * seconds)
}

/// The year, month and day of `2015-05-17`.
fn calendar(date: &str) -> Option<(u64, u64, u64)> {
    let mut parts = date.splitn(3, ['-', '/']);
    Some((number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?))
}

/// The beginning of a date that exists.
fn midnight(year: u64, month: u64, day: u64) -> Option<DateTime> {
    let date =
        Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    Some(date.to_datetime(Time::midnight()))
}

/// A number of this many digits.
fn number(text: &str, length: usize) -> Option<u64> {
    digits(text).filter(|text| text.len() == length)?.parse().ok()
}

/// The text, if it is one or more digits and nothing else: a number of Rust may begin with a plus.
fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

/// Writes `2015-05-17 10:05` in UTC, for people.
pub(crate) fn shown(us: u64, with_seconds: bool) -> String {
    let format = if with_seconds { "%F %H:%M:%S" } else { "%F %H:%M" };
    timestamp(us).strftime(format).to_string()
}

/// Writes a moment as RFC 3339 has it.
pub(crate) fn rfc3339(us: u64) -> String {
    let at = timestamp(us);
    if us.is_multiple_of(1_000_000) { format!("{at:.0}") } else { format!("{at:.6}") }
}

/// A moment after the year 9999, which no log can have, becomes the last moment there is.
fn timestamp(us: u64) -> Timestamp {
    i64::try_from(us).ok().and_then(|us| Timestamp::from_microsecond(us).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> Option<Moment> {
        super::local(text, &TimeZone::UTC)
    }

    fn iso(text: &str) -> Option<Moment> {
        super::iso(text, &TimeZone::UTC)
    }

    #[test]
    fn times_without_a_zone_are_of_the_reader_and_numbers_are_of_their_digits() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        for (text, utc, in_berlin) in [
            ("Sun May 17 10:05:03 2015", 1_431_857_103_000_000, 1_431_849_903_000_000),
            ("2015-05-17 10:05:03,25", 1_431_857_103_250_000, 1_431_849_903_250_000),
            ("2015/05/17 10:05:03", 1_431_857_103_000_000, 1_431_849_903_000_000),
            ("17/May/2015:10:05:03.250", 1_431_857_103_250_000, 1_431_849_903_250_000),
            ("2015-05-17 10:05:03 +0000", 1_431_857_103_000_000, 1_431_857_103_000_000),
            // Half an hour that does not exist in Berlin, and one that comes twice.
            ("2026-03-29 02:30:00", 1_774_751_400_000_000, 1_774_747_800_000_000),
            ("2026-10-25 02:30:00", 1_792_895_400_000_000, 1_792_888_200_000_000),
            ("1431857103", 1_431_857_103_000_000, 1_431_857_103_000_000),
            ("1431857103250", 1_431_857_103_250_000, 1_431_857_103_250_000),
            ("1431857103250000", 1_431_857_103_250_000, 1_431_857_103_250_000),
            ("1431857103250000999", 1_431_857_103_250_000, 1_431_857_103_250_000),
        ] {
            for (zone, us) in [(TimeZone::UTC, utc), (berlin.clone(), in_berlin)] {
                assert_eq!(TimeReader::in_zone(zone).read(text).map(|moment| moment.us), Some(us), "{text}");
            }
        }
        assert!(zone("+02:00").is_some() && zone("Europe/Nowhere").is_none() && zone("").is_none());
    }

    #[test]
    fn durations_are_in_their_unit_or_in_that_of_the_field() {
        for (text, unit, us) in [
            ("1.5", "s", Some(1_500_000)),
            ("1.5", "ms", Some(1_500)),
            ("50500000000", "ns", Some(50_500_000)),
            ("12ms", "s", Some(12_000)),
            ("12 ms", "s", Some(12_000)),
            ("0.25s", "ms", Some(250_000)),
            ("1e3", "s", None),
            ("-1", "s", None),
        ] {
            assert_eq!(lasting(text, unit), us, "{text}");
        }
    }

    #[test]
    fn zones_and_summer_time_name_one_moment() {
        let moment = Moment { us: 1_431_857_103_000_000, is_whole: true };
        for text in ["17/May/2015:10:05:03 +0000", "17/May/2015:12:05:03 +0200", "17/May/2015:05:35:03 -0430"]
        {
            assert_eq!(local(text), Some(moment), "{text}");
        }
        for text in ["2015-05-17T10:05:03Z", "2015-05-17T12:05:03+02:00", "2015-05-17 05:35:03-0430"] {
            assert_eq!(iso(text), Some(moment), "{text}");
        }
        // This hour comes twice when summer time ends.
        let (first, second) = ("25/Oct/2026:02:30:00 +0200", "25/Oct/2026:02:30:00 +0100");
        assert_eq!(local(second).unwrap().us - local(first).unwrap().us, 3_600_000_000);
    }

    #[test]
    fn fractions_count_to_the_microsecond() {
        assert_eq!(iso("2015-05-17T10:05:03.25Z").unwrap().us, 1_431_857_103_250_000);
        assert_eq!(unix("1431857103.2500009"), Some(Moment { us: 1_431_857_103_250_000, is_whole: false }));
        assert_eq!(unix("1431857103").map(|moment| moment.is_whole), Some(true));
    }

    #[test]
    fn dates_that_do_not_exist_are_no_times() {
        for text in [
            "29/Feb/2015:10:05:03 +0000",
            "31/Apr/2016:10:05:03 +0000",
            "00/May/2015:10:05:03 +0000",
            "17/Mai/2015:10:05:03 +0000",
            "17/May/2015:24:05:03 +0000",
            "17/May/1969:10:05:03 +0000",
            "17/May/2015:10:05:03 0000",
            "01/Jan/1970:00:00:00 +0100",
            "-",
            "",
        ] {
            assert_eq!(local(text), None, "{text}");
        }
        for text in ["-1", "1e9", "", ".", "18446744073710"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    /// A moment close to 2^64 microseconds was once a time, and its place within its second was beyond that.
    #[test]
    fn no_moment_in_seconds_is_behind_the_year_9999() {
        assert_eq!(timestamp(LAST_US + 1), Timestamp::MAX);
        let last = iso("9999-12-30T22:00:00.999999Z").unwrap();
        assert_eq!((last.us, unix("253402207200.999999")), (LAST_US, Some(last)));
        for text in ["253402207201", "253402207201000", "18446744073709551615"] {
            assert_eq!(unix(text), None, "{text}");
        }
    }

    #[test]
    fn moments_are_shown_as_they_are_read() {
        for text in
            ["1970-01-01T00:00:00Z", "2000-02-29T23:59:59Z", "2015-05-17T10:05:03Z", "2100-03-01T00:00:00Z"]
        {
            assert_eq!(rfc3339(iso(text).unwrap().us), text);
        }
        assert_eq!(written("2015-05-17"), written("2015-05-17 00:00"));
        assert_eq!(shown(1_431_857_103_000_000, false), "2015-05-17 10:05");
    }
}
