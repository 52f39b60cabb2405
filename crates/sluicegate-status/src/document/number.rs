//! Numbers as the page shows them: rounded, for a quick look. The JSON has them exactly.

use std::fmt::Display;

/// Writes `9,120`: a comma for each thousand, because the page is in English.
pub(super) fn count(number: impl Display) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Writes `12.4`; whole from a hundred on.
pub(super) fn rate(number: f64) -> String {
    if number >= 100.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

/// Writes `1 request` or `1,200 requests`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Writes `0.4 ms`, with two significant digits, and `5 µs` for less than a tenth of that.
pub(super) fn millis(millis: f64) -> String {
    match millis {
        _ if millis >= 10.0 => format!("{millis:.0} ms"),
        _ if millis >= 0.1 => format!("{millis:.1} ms"),
        _ if millis >= 0.001 => format!("{:.0} µs", millis * 1_000.0),
        _ => format!("{:.1} µs", millis * 1_000.0),
    }
}

/// Writes `61 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Writes `61 %`, rounded down: no budget is used up before all of it is.
pub(super) fn percent_down(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).floor())
}

/// Writes `3 h 12 min`.
pub(super) fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Writes a wait as [`span`] does, rounded up so that it is over by then.
pub(super) fn wait(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..86_400 => span(seconds.div_ceil(60) * 60),
        _ => span(seconds.div_ceil(3_600) * 3_600),
    }
}

/// The time of day of a moment in RFC 3339.
pub(super) fn clock(at: &str) -> &str {
    at.get(11..19).unwrap_or(at)
}

/// The hour and the minute of a moment in RFC 3339: `15:00`.
pub(super) fn clock_minute(at: &str) -> &str {
    at.get(11..16).unwrap_or(at)
}

/// The day and the minute of a moment in RFC 3339: `2026-11-21 15:00`.
pub(super) fn minute(at: &str) -> String {
    at.get(..16).unwrap_or(at).replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1_000, 187_000, 1_234_567].map(count),
            ["0", "999", "1,000", "187,000", "1,234,567"]
        );
        assert_eq!([0, 59, 61, 11_520, 90_000].map(span), ["0 s", "59 s", "1 min", "3 h 12 min", "1 d 1 h"]);
        assert_eq!(
            (rate(12.44), rate(880.6), percent(0.614)),
            ("12.4".to_owned(), "881".to_owned(), "61 %".to_owned())
        );
        assert_eq!(
            [44, 119, 120, 6_123, 86_401].map(wait),
            ["44 s", "119 s", "2 min", "1 h 43 min", "1 d 1 h"]
        );
        assert_eq!(
            (percent_down(0.999), percent_down(1.0), minute("2026-11-21T15:00:59.999Z")),
            ("99 %".to_owned(), "100 %".to_owned(), "2026-11-21 15:00".to_owned())
        );
        assert_eq!([0.0004, 0.012, 0.42, 12.4].map(millis), ["0.4 µs", "12 µs", "0.4 ms", "12 ms"]);
    }
}
