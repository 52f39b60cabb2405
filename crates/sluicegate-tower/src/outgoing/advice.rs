//! A server's advice to its clients: `Retry-After`, `RateLimit` and their predecessors.
//!
//! The first readable one counts: `Retry-After` of a 429 or 503; the
//! `RateLimit` field of the draft; the older pairs of remaining and reset. Numbers are seconds,
//! unless they are so large that they must be Unix times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AGE, DATE, HeaderMap, HeaderName, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use crate::respond::headers::list::{members, one_line};
use crate::respond::headers::style::RATELIMIT;

/// The fields before the draft, and in its early versions: the units left, and the reset.
const EARLIER: [(HeaderName, HeaderName); 3] = [
    (HeaderName::from_static("ratelimit-remaining"), HeaderName::from_static("ratelimit-reset")),
    (HeaderName::from_static("x-ratelimit-remaining"), HeaderName::from_static("x-ratelimit-reset")),
    (HeaderName::from_static("x-rate-limit-remaining"), HeaderName::from_static("x-rate-limit-reset")),
];

/// A reset from this number on is a Unix time, because as a span it would be 30 years.
const UNIX_SECONDS: u64 = 1_000_000_000;
/// A reset from this number on is a Unix time in milliseconds.
const UNIX_MILLIS: u64 = 1_000_000_000_000;

/// The longest field that is read, in bytes: no sensible server has more quotas.
const MAX_FIELD: usize = 16 * 1024;

/// The time for which the server asks not to be called after this response, if it does. `now` is the time since the Unix epoch;
/// if the response has a date, times of day are relative to the date, because the server's clock may be off.
///
/// Unreadable fields are ignored, not guessed: a client that is wrong about a limit either calls too often or
/// waits for nothing.
pub(super) fn asked_wait(status: StatusCode, headers: &HeaderMap, now: Duration) -> Option<Duration> {
    let now = headers.get(DATE).and_then(date).unwrap_or(now);
    // `Retry-After` takes precedence over the other fields.
    if let Some(wait) =
        headers.get(RETRY_AFTER).filter(|_| is_refusal(status)).and_then(|value| retry_after(value, now))
    {
        return Some(wait);
    }
    // A cached response says nothing about the present.
    if headers.get(AGE).and_then(digits).is_some_and(|age| age > 0) {
        return None;
    }
    if let Some(said) = ratelimit(headers) {
        return said;
    }
    EARLIER.iter().find_map(|(remaining, reset)| {
        let remaining = headers.get(remaining).and_then(digits)?;
        let reset = headers.get(reset).and_then(digits).filter(|_| remaining == 0)?;
        Some(match reset {
            UNIX_MILLIS.. => Duration::from_millis(reset).saturating_sub(now),
            UNIX_SECONDS.. => Duration::from_secs(reset).saturating_sub(now),
            _ => Duration::from_secs(reset),
        })
    })
}

/// Whether a server with this answer did not carry out the request, and may say when it would.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

/// Seconds, or a date.
fn retry_after(value: &HeaderValue, now: Duration) -> Option<Duration> {
    digits(value).map(Duration::from_secs).or_else(|| Some(date(value)?.saturating_sub(now)))
}

/// The wait by the field of the draft, if it can be read: the longest wait of all used-up quotas. A field
/// that is malformed or very long is ignored as a whole.
fn ratelimit(headers: &HeaderMap) -> Option<Option<Duration>> {
    let line = one_line(headers.get_all(RATELIMIT).iter()).filter(|line| line.len() <= MAX_FIELD)?;
    let quotas = members(&line).filter(|quotas| !quotas.is_empty())?;
    let mut longest = None;
    for quota in quotas {
        let number = |name| quota.parameter(name).map(str::parse::<u64>).transpose();
        let (Ok(Some(remaining)), Ok(seconds)) = (number("r"), number("t")) else { return None };
        if remaining == 0 {
            longest = longest.max(seconds.map(Duration::from_secs));
        }
    }
    Some(longest)
}

/// A number without sign or fraction; one that does not fit saturates.
fn digits(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A date as the time since the Unix epoch.
fn date(value: &HeaderValue) -> Option<Duration> {
    let date: SystemTime = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21 12:00:00 UTC.
    const NOW: Duration = Duration::from_secs(1_795_262_400);

    fn seconds(status: u16, fields: &[(&'static str, &'static str)]) -> Option<u64> {
        let fields = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        asked_wait(StatusCode::from_u16(status).unwrap(), &headers, NOW).map(|wait| wait.as_secs())
    }

    #[test]
    fn retry_after_is_seconds_or_any_kind_of_http_date() {
        for (value, expected) in [
            ("30", Some(30)),
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sat, 21 Nov 2026 12:00:30 GMT", Some(30)),
            ("Saturday, 21-Nov-26 12:00:30 GMT", Some(30)),
            ("Sat Nov 21 12:00:30 2026", Some(30)),
            ("Sat, 21 Nov 2026 11:00:00 GMT", Some(0)),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1e3", None),
            ("", None),
            ("soon", None),
            ("Sat, 31 Nov 2026 12:00:30 GMT", None),
        ] {
            assert_eq!(seconds(429, &[("retry-after", value)]), expected, "{value:?}");
        }
        assert_eq!(seconds(503, &[("retry-after", "30")]), Some(30));
        for status in [200, 301, 404, 500] {
            assert_eq!(seconds(status, &[("retry-after", "30")]), None, "{status}");
        }
    }

    #[test]
    fn a_date_is_relative_to_the_servers_own_clock() {
        let fields =
            [("date", "Sat, 21 Nov 2026 10:00:00 GMT"), ("retry-after", "Sat, 21 Nov 2026 10:00:05 GMT")];
        assert_eq!(seconds(429, &fields), Some(5));
    }

    #[test]
    fn of_the_drafts_field_the_longest_empty_quota_counts() {
        for (value, expected) in [
            (r#""x";r=0;t=30"#, Some(30)),
            (r#""x";r=0;t=3, "y";r=0;t=40, "z";r=9;t=999"#, Some(40)),
            (r#""x";r=1;t=30"#, None),
            (r#""x";r=0"#, None),
            (r#""x";r=0;t=30;pk=:cGs=:;acme-more=1.5"#, Some(30)),
        ] {
            assert_eq!(seconds(200, &[("ratelimit", value)]), expected, "{value}");
        }
        assert_eq!(seconds(200, &[("ratelimit", r#""x";r=5"#), ("ratelimit", r#""y";r=0;t=4"#)]), Some(4));
    }

    #[test]
    fn a_malformed_field_is_ignored_as_a_whole() {
        for value in [
            r#""x";r=0;t=30,"#,
            r#""x";r=0;t=30, y;r=0;t=1"#,
            r#"x;r=0;t=30"#,
            r#""x";r=0;t=-1"#,
            r#""x";r=0;t=1.5"#,
            r#""x";r="0";t=30"#,
            r#""x";t=30"#,
            r#""x";r=0;t=1000000000000000"#,
            r#"("x");r=0;t=30"#,
            "limit=10, remaining=0, reset=30",
            r#""x;r=0;t=30"#,
        ] {
            assert_eq!(seconds(200, &[("ratelimit", value)]), None, "{value}");
        }
        let long: &'static str = format!(r#""{}";r=0;t=30"#, "x".repeat(MAX_FIELD)).leak();
        assert_eq!(seconds(200, &[("ratelimit", long)]), None);
    }

    #[test]
    fn earlier_fields_count_where_there_is_no_better_one() {
        let early = |remaining, reset| {
            seconds(200, &[("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", reset)])
        };
        assert_eq!(early("0", "12"), Some(12));
        assert_eq!(early("0", "1795262412"), Some(12), "a Unix time");
        assert_eq!(early("0", "1795262412000"), Some(12), "a Unix time in milliseconds");
        assert_eq!(early("0", "1000000001"), Some(0), "long ago");
        for (remaining, reset) in [("1", "12"), ("0", "1m"), ("-1", "12"), ("", "12")] {
            assert_eq!(early(remaining, reset), None, "{remaining:?} {reset:?}");
        }
        assert_eq!(seconds(200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "9")]), Some(9));
    }

    #[test]
    fn retry_after_goes_before_all_and_what_a_cache_kept_counts_for_nothing() {
        let all = [
            ("retry-after", "5"),
            ("ratelimit", r#""x";r=0;t=30"#),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "60"),
        ];
        assert_eq!(seconds(429, &all), Some(5));
        assert_eq!(seconds(200, &all), Some(30));
        assert_eq!(seconds(200, &all[2..]), Some(60));
        assert_eq!(seconds(200, &[("age", "1"), all[1], all[2], all[3]]), None);
        assert_eq!(seconds(200, &[("age", "0"), all[1]]), Some(30));
        assert_eq!(seconds(200, &[("ratelimit", r#""x";r=4;t=30"#), all[2], all[3]]), None);
    }

    proptest::proptest! {
        #[test]
        fn no_value_is_too_strange(value in "[ -~]{0,40}", status in 200_u16..600) {
            let Ok(value) = HeaderValue::from_str(&value) else { return Ok(()) };
            for name in [RETRY_AFTER, RATELIMIT, DATE, AGE, EARLIER[1].1.clone()] {
                let headers = HeaderMap::from_iter([
                    (EARLIER[1].0.clone(), HeaderValue::from_static("0")),
                    (name, value.clone()),
                ]);
                let _ = asked_wait(StatusCode::from_u16(status).unwrap(), &headers, NOW);
            }
        }
    }
}
