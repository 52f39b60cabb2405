//! Moments, as `2026-11-27T12:00:00Z`.
//!
//! A zone has to be said: a file is read on servers whose local time nobody remembers, and a sale that opens an hour early cannot be taken
//! back. Seconds are whole, and dates are those of the Gregorian calendar from 1970 to 9999; what does not exist is refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::is_unknown;
use crate::at::At;
use crate::error::Problems;
use crate::read::short;

/// The moment, or what is wrong with it.
pub(super) fn moment(text: &At<String>, problems: &mut Problems<'_>) -> Option<SystemTime> {
    if is_unknown(text, "that it is open", problems) {
        return None;
    }
    let found = seconds(&text.value).and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    if found.is_none() {
        let shown = short(&text.value);
        let problem = format!(
            "{shown:?} is not a moment: write 2026-11-27T12:00:00Z, or with a zone 2026-11-27T13:00:00+01:00"
        );
        problems.error(text.place, problem);
    }
    found
}

/// Seconds since the Unix epoch, of RFC 3339 in whole seconds.
///
/// Days are counted from the first of March of the year 0, which is 719,469 days before the epoch by this count from 1.
fn seconds(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let zone = time.get(8..)?;
    let [hour, minute, second] = numbers(time.get(..8)?, ':', [2, 2, 2])?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let is_there = (1970..=9999).contains(&year)
        && (1..=length).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !is_there {
        return None;
    }
    // Years begin in March here, so that the leap day is the last one.
    let (shifted, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + (month * 153 + 2) / 5 + day;
    let local = (days.checked_sub(719_469)? * 24 + hour) * 3_600 + minute * 60 + second;
    if zone == "Z" {
        return Some(local);
    }
    let (sign, zone) = zone.split_at_checked(1)?;
    let [hours, minutes] = numbers(zone, ':', [2, 2])?;
    let off = (hours < 24 && minutes < 60).then_some(hours * 3_600 + minutes * 60)?;
    match sign {
        "+" => local.checked_sub(off),
        "-" => local.checked_add(off),
        _ => None,
    }
}

/// Numbers of these lengths, with this between them.
fn numbers<const N: usize>(text: &str, between: char, lengths: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(between);
    let mut all = [0; N];
    for (number, length) in all.iter_mut().zip(lengths) {
        let part =
            parts.next().filter(|part| part.len() == length && part.bytes().all(|c| c.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(all)
}

#[cfg(test)]
mod tests {
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
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "noon",
            "2026-11-27",
            "2026-11-27T12:00Z",
            "2026-11-27 12:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-27T24:00:00Z",
            "2026-11-27T12:00:00",
            "2026-11-27T12:00:00+0100",
            "1969-12-31T00:00:00Z",
            "2026-11-27T12:00:00Zz",
            "2026-11-27T12:0é:00Z",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
