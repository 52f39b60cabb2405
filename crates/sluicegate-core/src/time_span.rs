//! Spans of time as text: [`TimeSpan`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::ConfigError;
use crate::text::{Fault, number};

/// A span of time as it is written in quotas and options: `5s`, `500 ms`, `1h`, `30 days`.
///
/// A span is a number with one unit: ns, us, ms, s, min, h, d or w, short or in full; `0.5s` is half a second. It prints in the largest
/// unit that it is a whole number of.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::policy::TimeSpan;
///
/// let wait: TimeSpan = "1500 ms".parse()?;
/// assert_eq!(Duration::from(wait), Duration::from_millis(1_500));
/// assert_eq!(TimeSpan::from(Duration::from_secs(120)).to_string(), "2min");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// There are no months and years, whose length is a matter of the [calendar](crate::calendar).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(Duration);

/// Nanoseconds of each unit, its short name, and what else it is called; the largest first.
const UNITS: [(u64, &str, &[&str]); 8] = [
    (604_800_000_000_000, "w", &["week", "weeks"]),
    (86_400_000_000_000, "d", &["day", "days"]),
    (3_600_000_000_000, "h", &["hr", "hour", "hours"]),
    (60_000_000_000, "min", &["m", "minute", "minutes"]),
    (1_000_000_000, "s", &["sec", "second", "seconds"]),
    (1_000_000, "ms", &["millisecond", "milliseconds"]),
    (1_000, "us", &["\u{b5}s", "\u{3bc}s"]),
    (1, "ns", &[]),
];

impl TimeSpan {
    /// Reads a period as a quota has it, where `min` is one minute.
    pub(crate) fn of_period(text: &str) -> Result<Duration, Fault<'_>> {
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
        let (count, unit) = text.split_at(unit_at);
        let (fraction, unit) = fraction_of(unit);
        let is_less_than_one = count.trim_matches('0').is_empty() && !fraction.trim_matches('0').is_empty();
        let count = match count {
            "" if fraction.is_empty() => 1,
            _ if is_less_than_one => 0,
            count => number(count, "period")?,
        };
        let unit = unit.trim();
        let known = UNITS.iter().find(|(_, short, others)| *short == unit || others.contains(&unit));
        let Some((nanos, ..)) = known else {
            return Err(Fault::unreadable(
                if unit.is_empty() { text } else { unit },
                if unit.is_empty() {
                    format!("the period {text:?} has no unit (ns, us, ms, s, min, h, d or w)")
                } else {
                    no_unit(text, unit)
                },
            ));
        };
        // A fraction has at most nine digits, so that this does not overflow.
        let part = fraction.parse().unwrap_or(0_u128) * u128::from(*nanos);
        let parts = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
        if !part.is_multiple_of(parts) {
            return Err(Fault::unreadable(text, format!("{text:?} is not a whole number of nanoseconds")));
        }
        let nanos = u128::from(count) * u128::from(*nanos) + part / parts;
        // A duration of this many seconds has room for any rest of nanoseconds.
        let (secs, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        match (u64::try_from(secs), u32::try_from(rest)) {
            (Ok(secs), Ok(rest)) => Ok(Duration::new(secs, rest)),
            _ => Err(Fault::out_of_range(text, format!("the period {text} is too long"))),
        }
    }

    /// Writes the period of a quota: a single unit stands without its count, from minutes on.
    pub(crate) fn write_period(period: Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self(period).in_unit() {
            (1, unit) if unit != "ns" => f.write_str(unit),
            (count, unit) => write!(f, "{count}{unit}"),
        }
    }

    /// The count of the largest unit, up to days, of which the span is a whole number.
    fn in_unit(self) -> (u128, &'static str) {
        let nanos = self.0.as_nanos();
        let whole =
            |(unit, ..): &&(u64, &str, &[&str])| nanos != 0 && nanos.is_multiple_of(u128::from(*unit));
        let (unit, name, _) = UNITS.iter().skip(1).find(whole).unwrap_or(&UNITS[7]);
        (nanos / u128::from(*unit), name)
    }
}

/// The digits behind a point, up to nine, and the unit behind them.
fn fraction_of(text: &str) -> (&str, &str) {
    let Some(rest) = text.strip_prefix('.') else { return ("", text) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    if (1..=9).contains(&end) { rest.split_at(end) } else { ("", text) }
}

/// Says why this is not a unit, and what to write instead where that is known.
fn no_unit(text: &str, unit: &str) -> String {
    let problem = format!("{unit:?} is not a unit of time (ns, us, ms, s, min, h, d or w)");
    match unit.split_once(' ') {
        _ if unit.starts_with(['.', ',']) => format!("{text:?} is not a number with a unit, as 1.5s"),
        Some((_, more)) => format!("{more:?} after the unit of time is not understood"),
        None => match unit {
            "M" | "mo" | "months" => {
                format!("{problem}: 30d is a span, \"month\" a quota's period of the calendar")
            }
            "y" | "years" => format!("{problem}: 365d is a span, \"year\" a quota's period of the calendar"),
            "month" | "year" => format!("{problem}: only quotas have periods of the calendar"),
            _ => problem,
        },
    }
}

/// A span of time: a [`TimeSpan`], a [`Duration`], or text such as `"10min"`.
///
/// Text that cannot be read is reported where the span is used, by the builder's `build` or `on`. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no span of time",
    label = "a span of time is expected here",
    note = "write it with its unit as text, \"30s\" or \"10min\", or as a `Duration`"
)]
pub trait IntoTimeSpan: sealed::Sealed {
    /// The span, or why there is none.
    ///
    /// # Errors
    /// As reading a [`TimeSpan`] from its text.
    fn into_time_span(self) -> Result<TimeSpan, ConfigError>;
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody else shall implement it")]
    pub trait Sealed {}

    impl Sealed for super::TimeSpan {}
    impl Sealed for std::time::Duration {}
    impl Sealed for &str {}
}

impl IntoTimeSpan for TimeSpan {
    fn into_time_span(self) -> Result<TimeSpan, ConfigError> {
        Ok(self)
    }
}

impl IntoTimeSpan for Duration {
    fn into_time_span(self) -> Result<TimeSpan, ConfigError> {
        Ok(self.into())
    }
}

impl IntoTimeSpan for &str {
    fn into_time_span(self) -> Result<TimeSpan, ConfigError> {
        self.parse()
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        span.0
    }
}

impl From<Duration> for TimeSpan {
    fn from(span: Duration) -> Self {
        Self(span)
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = self.in_unit();
        write!(f, "{count}{unit}")
    }
}

impl FromStr for TimeSpan {
    type Err = ConfigError;

    /// Reads `5s`, `500 ms`, `1 hour`.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Unreadable`](crate::error::ConfigErrorKind::Unreadable) when the text is not a number with a unit.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let trimmed = text.trim();
        let span = if !trimmed.starts_with(|c: char| c.is_ascii_digit()) {
            Err(Fault::unreadable(trimmed, "it does not begin with a number".to_owned()))
        } else {
            Self::of_period(trimmed)
        };
        span.map(Self).map_err(|fault| fault.in_text(text, "a time", "; write \"5s\", \"500ms\" or \"1h\""))
    }
}
