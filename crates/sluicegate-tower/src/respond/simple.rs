//! A body for clients that know no problem details: [`SimpleJson`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Response;

use crate::respond::problem::{detail, push_number, quoted, response};
use crate::respond::refusal::{Detail, Refusal, RefusalReason, Respond};

/// A flat JSON object, as many public APIs answer:
///
/// ```json
/// {"code":"RATE_LIMITED","message":"too many requests: try again in 7 s","limit":5,"remaining":0,
///  "resetAt":"2026-11-21T12:00:07Z","retryAfterSeconds":7}
/// ```
///
/// `code` is `RATE_LIMITED`, `COST_TOO_HIGH`, `KEY_MISSING`, `UNAVAILABLE`, `QUEUE_FULL` or `FORBIDDEN`. What there is
/// nothing to say of is left out. `resetAt` is by the wall clock of this machine, rounded up to whole seconds.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SimpleJson;

impl SimpleJson {
    /// The responder.
    pub const fn new() -> Self {
        Self
    }
}

impl<B: From<Bytes>> Respond<B> for SimpleJson {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        let mut body = String::with_capacity(192);
        body.push_str(r#"{"code":""#);
        body.push_str(match refusal.reason() {
            RefusalReason::Exceeded(_) | RefusalReason::ConcurrencyExceeded(_) => "RATE_LIMITED",
            RefusalReason::Impossible(_) => "COST_TOO_HIGH",
            RefusalReason::MissingKey(..) => "KEY_MISSING",
            RefusalReason::Outage => "UNAVAILABLE",
            RefusalReason::QueueFull(_) => "QUEUE_FULL",
            RefusalReason::LookupTimeout(_) => "LOOKUP_TIMEOUT",
            RefusalReason::Mistake(_) => "SERVER_ERROR",
            RefusalReason::Blocked => "FORBIDDEN",
        });
        body.push_str(r#"","message":"#);
        match refusal.detail() {
            Detail::Text(text) => {
                // Writing to a string cannot fail.
                let _ = quoted(&mut body, text);
            }
            plain => {
                body.push('"');
                detail(&mut body, plain);
                body.push('"');
            }
        }
        if let Some(standing) = refusal.standing() {
            body.push_str(r#","limit":"#);
            push_number(&mut body, standing.capacity());
            body.push_str(r#","remaining":"#);
            push_number(&mut body, standing.remaining());
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            body.push_str(r#","resetAt":""#);
            body.push_str(&rfc3339(since_epoch.saturating_add(standing.reset_after())));
            body.push('"');
        }
        if let Some(seconds) = refusal.retry_after_seconds() {
            body.push_str(r#","retryAfterSeconds":"#);
            push_number(&mut body, seconds);
        }
        body.push('}');
        response(refusal, body, "application/json")
    }
}

/// A moment in UTC as RFC 3339 has it, rounded up to whole seconds.
///
/// Written out, for a calendar of time zones and parsers would be added for this one line: the civil date from days is
/// the algorithm of Howard Hinnant's "chrono-compatible low-level date algorithms", `civil_from_days`.
fn rfc3339(since_epoch: Duration) -> String {
    // Until the last second of the year 9999, beyond which RFC 3339 has no way to say it.
    let seconds = crate::respond::headers::lines::ceil_seconds(since_epoch).min(253_402_300_799);
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last one.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        assert_eq!(rfc3339(Duration::from_millis(1)), "1970-01-01T00:00:01Z");
    }

    #[test]
    fn four_hundred_years_have_each_day_once() {
        let days = |day: u64| rfc3339(Duration::from_secs(day * 86_400));
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for index in 0..146_097 {
            assert_eq!(days(index), format!("{year:04}-{month:02}-{day:02}T00:00:00Z"));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1];
            day += 1;
            if day > last {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }
}
