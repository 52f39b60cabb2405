//! Quotas as text: `10/s burst 20`, `2M/month in Asia/Seoul carry over 20%`.

use std::fmt;
use std::str::FromStr;

use super::Quota;
use crate::algorithm::{Algorithm, Anchor};
use crate::calendar::CalendarPeriod;
use crate::error::ConfigError;
use crate::text::{Fault, number, number_or_none, units};
use crate::time_span::TimeSpan;

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.limit)?;
        match self.calendar {
            Some(period) => write!(f, "{period}")?,
            None => TimeSpan::write_period(self.period, f)?,
        }
        if let Some(units) = self.carries() {
            return write!(f, " carry over {units}");
        }
        if self.burst != self.limit {
            write!(f, " burst {}", self.burst)?;
        }
        if let Some(start) = self.start {
            write!(f, " start {start}")?;
        }
        let is_implied = |algorithm: &Algorithm| {
            self.calendar.is_some() && *algorithm == Algorithm::FixedWindow(Anchor::Epoch)
        };
        match self.algorithm.filter(|algorithm| !is_implied(algorithm)) {
            Some(algorithm) => write!(f, " by {algorithm}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Quota {
    type Err = ConfigError;

    /// Reads `"100/min"`, `"10/s burst 20"`, `"5 per minute"`, `"1000/1h"`, `"3/500ms"`, `"60/min burst 100 start 10"`,
    /// `"10000/d by token-bucket-aligned"`, `"1.5k/min"`, `"10MB/s burst 20MB"` (a k is 1,000), and with the feature `calendar`
    /// `"2M/month in Asia/Seoul carry over 20%"`.
    ///
    /// # Errors
    /// [`Unreadable`](crate::error::ConfigErrorKind::Unreadable) when the text is not a quota,
    /// [`Quota`](crate::error::ConfigErrorKind::Quota) when one of its numbers is zero or too large. The error says which
    /// [part](ConfigError::span) of the text it is about.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let advice = "; write \"100/min\", \"10/s burst 20\", \"5 per minute\" or \"1000/1h\"";
        parse(text).map_err(|fault| fault.in_text(text, "a quota", advice))
    }
}

fn parse(text: &str) -> Result<Quota, Fault<'_>> {
    let (text, algorithm) = match text.trim().split_once(" by ") {
        Some((text, algorithm)) => (text.trim_end(), Some(self::algorithm(algorithm.trim())?)),
        None => (text.trim(), None),
    };
    let (text, carried) = match text.split_once(" carry over ") {
        Some((text, carried)) => (text.trim_end(), Some(carried.trim())),
        None => (text, None),
    };
    let (text, start) = match text.split_once("start") {
        Some((text, start)) => (text.trim_end(), Some(number_or_none(start, "start")?)),
        None => (text, None),
    };
    let (rate, burst) = match text.split_once("burst") {
        Some((rate, burst)) => (rate.trim_end(), Some(units(burst, "burst")?)),
        None => (text, None),
    };
    let parts = rate.split_once('/').or_else(|| rate.split_once(" per "));
    let (limit, period) = parts.ok_or_else(|| {
        Fault::unreadable(rate, "there is no \"/\" or \"per\" between limit and period".to_owned())
    })?;
    let period = period.trim();
    let limit = units(limit, "limit").map_err(|fault| match in_whole_units(limit.trim(), period) {
        Some(whole) => {
            let problem = format!("the limit {:?} is not a whole number: write {whole}", limit.trim());
            Fault::unreadable(limit.trim(), problem)
        }
        None => fault,
    })?;
    let quota = match CalendarPeriod::is_meant(period) {
        true => Quota::in_calendar(limit, CalendarPeriod::of_text(period)?),
        false => Quota::new(limit, TimeSpan::of_period(period)?),
    };
    let quota = burst.map_or(quota, |burst| quota.burst(burst));
    let quota = start.map_or(quota, |start| quota.starting_with(start));
    let quota = match carried {
        Some(carried) if burst.is_some() || start.is_some() => {
            let problem = "what is carried over is the burst: leave \"burst\" and \"start\" out".to_owned();
            return Err(Fault::unreadable(carried, problem));
        }
        Some(carried) => quota.carrying_over(units_of(limit, carried)?),
        None => quota,
    };
    Ok(algorithm.map_or(quota, |algorithm| quota.counted_by(algorithm)))
}

/// The same rate with a whole limit: `1/2s` for `0.5/s`.
fn in_whole_units(limit: &str, period: &str) -> Option<String> {
    let (whole, part) = limit.split_once('.').filter(|(_, part)| part.len() <= 3)?;
    let parts_of = 10_u64.pow(u32::try_from(part.len()).ok()?);
    let parts = whole.parse::<u64>().ok()?.checked_mul(parts_of)?.checked_add(part.parse().ok()?)?;
    let divisor = (1..=parts_of).rev().find(|divisor| parts % divisor == 0 && parts_of % divisor == 0)?;
    let (count, unit) = period.split_at(period.find(|c: char| !c.is_ascii_digit())?);
    let count = if count.is_empty() { 1 } else { count.parse::<u64>().ok()? };
    let span = count.checked_mul(parts_of / divisor)?;
    let quota = format!("{}/{span}{}", parts / divisor, unit.trim());
    parse(&quota).is_ok().then_some(quota)
}

/// Units, or a part of the limit in per cent.
fn units_of(limit: u64, text: &str) -> Result<u64, Fault<'_>> {
    let what = "number of units to carry over";
    let Some(percent) = text.strip_suffix('%') else { return units(text, what) };
    let percent = number(percent, "part to carry over, in per cent,")?;
    Ok(u64::try_from(u128::from(limit) * u128::from(percent) / 100).unwrap_or(u64::MAX))
}

fn algorithm(text: &str) -> Result<Algorithm, Fault<'_>> {
    text.parse().map_err(|error: ConfigError| Fault::unreadable(text, error.problem().to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_way_of_writing_reads_the_same() {
        let five_a_minute = Quota::per_minute(5);
        for text in ["5/min", "5/m", "5 per minute", "5/60s", " 5 / 1 min ", "5/1minute", "5/60_000ms"] {
            assert_eq!(text.parse(), Ok(five_a_minute), "{text}");
        }
        assert_eq!("10/s burst 20".parse(), Ok(Quota::per_second(10).burst(20)));
        assert_eq!("1000/1h".parse(), Ok(Quota::per_hour(1_000)));
        for (text, limit) in [
            ("1.5k/s", 1_500),
            ("10MB/s", 10_000_000),
            ("2M/s", 2_000_000),
            ("7 kB per s", 7_000),
            ("500B/s", 500),
            ("0.25G/s", 250_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Quota::per_second(limit)), "{text}");
        }
        assert_eq!("10/s burst 20 start 5".parse(), Ok(Quota::per_second(10).starting_with(5).burst(20)));
        assert_eq!("10/s start 0".parse(), Ok(Quota::per_second(10).starting_with(0)));
        assert_eq!("1_000_000/30d".parse(), Ok(Quota::new(1_000_000, Duration::from_secs(2_592_000))));
        let log = Quota::per_second(10).burst(20).starting_with(5).counted_by(Algorithm::SlidingLog);
        assert_eq!("10 per s  burst 20 start 5  by  sliding-log ".parse(), Ok(log));
    }

    #[test]
    fn a_quota_prints_as_it_reads() {
        for text in [
            "100/min",
            "10/s burst 20",
            "1000/h",
            "5/90s",
            "3/500ms",
            "1/30d",
            "7/250us",
            "2/d",
            "9/s start 0",
            "9/s burst 12 start 9",
            "10000/d by token-bucket-aligned",
            "9/s burst 12 start 9 by gcra",
            "5/min by sliding-log-in-20",
        ] {
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
            ("0.5/s", "\"0.5\" is not a whole number: write 1/2s;"),
            ("1.25 per 2 min", "\"1.25\" is not a whole number: write 5/8min;"),
            ("0.5/fortnight", "\"0.5\" is not a whole number;"),
            ("0.5/month", "\"0.5\" is not a whole number;"),
            ("0.0/s", "\"0.0\" is not a whole number;"),
            ("1e3/s", "\"1e3\" is not a whole number"),
            ("1.2345k/s", "\"1.2345k\" is no whole number of units"),
            ("1.k.5k/s", "\"1.k.5k\" is not a number"),
            ("0.0M/s", "the limit is 0"),
            ("99999999999G/s", "99999999999G is too large"),
            ("18446744073709551616/s", "too large"),
            ("1/999999999999999w", "too long"),
            ("5/min burst", "the burst \"\" is not a whole number"),
            ("5/-1s", "\"-1s\" is not a unit"),
            ("5/min start", "the start \"\" is not a whole number"),
            ("5/min start 1 burst 9", "the start \"1 burst 9\" is not a whole number"),
            (
                "5/min by midnight",
                "\"midnight\" does not say by which algorithm the quota is counted: use \"fixed",
            ),
            ("5/min by gcra burst 9", "\"gcra burst 9\" does not say by which algorithm"),
            ("5/min by", "\"by\" after the unit of time is not understood"),
        ] {
            let message = text.parse::<Quota>().unwrap_err().to_string();
            assert!(message.contains(problem), "{text:?}: {message}");
            assert!(message.contains("write \"100/min\""), "{message}");
        }
    }
}
