//! How much in how long: [`Quota`], as numbers and as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{ConfigError, ConfigErrorKind};

/// So many units per period, with a burst that may be spent at once from rest.
///
/// `Quota::per_second(60)` is sixty a second. The same as text: `"60/s"`, `"60 per second"`, `"60/s burst 120"`,
/// `"1000/1h"`. A quota prints as the text that reads back as the same quota.
///
/// The constructors take any number; what cannot work (a zero, a burst that the algorithm does not know, products
/// that would not be exact) is refused with its reason when the policy is built. Text is checked when it is parsed.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::Quota;
///
/// let quota: Quota = "10/s burst 20".parse()?;
/// assert_eq!(quota, Quota::per_second(10).burst(20));
/// assert_eq!(Quota::new(5, Duration::from_secs(90)).to_string(), "5/90s");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u64,
    period: Duration,
    burst: u64,
}

impl Quota {
    /// `limit` units per `period`; the burst is the limit.
    pub const fn new(limit: u64, period: Duration) -> Self {
        Self { limit, period, burst: limit }
    }

    /// `limit` units a second.
    pub const fn per_second(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` units a minute.
    pub const fn per_minute(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` units an hour.
    pub const fn per_hour(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(3_600))
    }

    /// `limit` units in 24 hours.
    pub const fn per_day(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(86_400))
    }

    /// How many units may be spent at once from rest. Default: the limit.
    ///
    /// Only the buckets (token bucket, leaky bucket, GCRA) take a burst that differs from the limit.
    #[must_use]
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = burst;
        self
    }

    /// Units per period.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The span that the limit is for.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Units that may be spent at once from rest.
    pub const fn burst_size(&self) -> u64 {
        self.burst
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.limit)?;
        write_period(f, self.period)?;
        if self.burst == self.limit { Ok(()) } else { write!(f, " burst {}", self.burst) }
    }
}

/// The period in its largest whole unit; minutes and longer are named alone when there is just one of them.
fn write_period(f: &mut fmt::Formatter<'_>, period: Duration) -> fmt::Result {
    const UNITS: [(u128, &str); 6] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    let nanos = period.as_nanos();
    match UNITS.iter().find(|(unit, _)| nanos != 0 && nanos.is_multiple_of(*unit)) {
        Some((unit, name)) if nanos / unit == 1 => f.write_str(name),
        Some((unit, name)) => write!(f, "{}{name}", nanos / unit),
        None => write!(f, "{nanos}ns"),
    }
}

impl FromStr for Quota {
    type Err = ConfigError;

    /// Reads `"100/min"`, `"10/s burst 20"`, `"5 per minute"`, `"1000/1h"`, `"3/500ms"`.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Quota`] when the text is not a quota or one of its numbers is zero or too large.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        parse(text).map_err(|problem| {
            let shown: String = text.chars().take(64).collect();
            ConfigError::new(
                ConfigErrorKind::Quota,
                format!(
                    "{shown:?} is not a quota: {problem}; write \"100/min\", \"10/s burst 20\", \"5 per minute\" or \"1000/1h\""
                ),
            )
        })
    }
}

fn parse(text: &str) -> Result<Quota, String> {
    let text = text.trim();
    let (rate, burst) = match text.split_once("burst") {
        Some((rate, burst)) => (rate.trim_end(), Some(number(burst, "burst")?)),
        None => (text, None),
    };
    let (limit, period) = rate
        .split_once('/')
        .or_else(|| rate.split_once(" per "))
        .ok_or("there is no \"/\" or \"per\" between limit and period")?;
    let quota = Quota::new(number(limit, "limit")?, period_of(period.trim())?);
    Ok(burst.map_or(quota, |burst| quota.burst(burst)))
}

/// A positive number; underscores may group its digits.
fn number(text: &str, what: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits: String = text.chars().filter(|&c| c != '_').collect();
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse() {
        _ if !plain => Err(format!("the {what} {text:?} is not a whole number")),
        Ok(0) => Err(format!("the {what} is 0, and must be at least 1")),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("the {what} {text} is too large")),
    }
}

/// `min`, `1h`, `90s`, `500 ms`.
fn period_of(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (count, unit) = text.split_at(unit_at);
    let count = if count.is_empty() { 1 } else { number(count, "period")? };
    let micros: u64 = match unit.trim() {
        "us" | "µs" => 1,
        "ms" | "millisecond" | "milliseconds" => 1_000,
        "s" | "sec" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000,
        "h" | "hr" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        "w" | "week" | "weeks" => 604_800_000_000,
        "" => return Err(format!("the period {text:?} has no unit (us, ms, s, min, h, d or w)")),
        unit => return Err(format!("{unit:?} is not a unit of time (us, ms, s, min, h, d or w)")),
    };
    let micros = count.checked_mul(micros).ok_or_else(|| format!("the period {text} is too long"))?;
    Ok(Duration::from_micros(micros))
}

/// Anything that a policy takes as a quota: a [`Quota`], or its text.
///
/// Builders take it so that they can be given `"5/min"` and report a mistake in it when they build.
pub trait IntoQuota {
    /// The quota, or why there is none.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Quota`] when the text is not a quota.
    fn into_quota(self) -> Result<Quota, ConfigError>;
}

impl IntoQuota for Quota {
    fn into_quota(self) -> Result<Quota, ConfigError> {
        Ok(self)
    }
}

impl IntoQuota for &str {
    fn into_quota(self) -> Result<Quota, ConfigError> {
        self.parse()
    }
}

impl IntoQuota for String {
    fn into_quota(self) -> Result<Quota, ConfigError> {
        self.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_writing_reads_the_same() {
        let five_a_minute = Quota::per_minute(5);
        for text in ["5/min", "5/m", "5 per minute", "5/60s", " 5 / 1 min ", "5/1minute", "5/60_000ms"] {
            assert_eq!(text.parse(), Ok(five_a_minute), "{text}");
        }
        assert_eq!("10/s burst 20".parse(), Ok(Quota::per_second(10).burst(20)));
        assert_eq!("1000/1h".parse(), Ok(Quota::per_hour(1_000)));
        assert_eq!("1_000_000/30d".parse(), Ok(Quota::new(1_000_000, Duration::from_secs(2_592_000))));
    }

    #[test]
    fn a_quota_prints_as_it_reads() {
        for text in ["100/min", "10/s burst 20", "1000/h", "5/90s", "3/500ms", "1/30d", "7/250us", "2/d"] {
            assert_eq!(text.parse::<Quota>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_mistake_is_named_with_what_would_do() {
        for (text, problem) in [
            ("", "no \"/\" or \"per\""),
            ("100", "no \"/\" or \"per\""),
            ("0/min", "the limit is 0"),
            ("5/0s", "the period is 0"),
            ("5/min burst 0", "the burst is 0"),
            ("5/1M", "\"M\" is not a unit"),
            ("5/10", "has no unit"),
            ("5/fortnight", "\"fortnight\" is not a unit"),
            ("-5/min", "\"-5\" is not a whole number"),
            ("1.5/s", "\"1.5\" is not a whole number"),
            ("1e3/s", "\"1e3\" is not a whole number"),
            ("18446744073709551616/s", "too large"),
            ("1/999999999999999w", "too long"),
            ("5/min burst", "the burst \"\" is not a whole number"),
            ("5/-1s", "\"-1s\" is not a unit"),
        ] {
            let message = text.parse::<Quota>().unwrap_err().to_string();
            assert!(message.contains(problem), "{text:?}: {message}");
            assert!(message.contains("write \"100/min\""), "{message}");
        }
    }
}
