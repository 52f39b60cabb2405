//! Periods of a calendar: [`CalendarPeriod`].

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use crate::error::ConfigError;
use crate::support::lock;
use crate::text::Fault;

/// A day, week, month, quarter or year of the calendar in a time zone, for quotas with periods of different lengths.
///
/// A period begins at midnight of its first day, or at the first moment of that day if midnight is skipped; on a day that has midnight
/// twice, at the first. Text names the unit, the first day of a week, and the zone, which is UTC unless it is named: `month`,
/// `day in Asia/Seoul`, `week from sunday in Europe/Berlin`, `quarter`, `year in UTC`.
///
/// Zones come from the database of the system, such as `/usr/share/zoneinfo`, when the first quota of this period is read. The borders up
/// to the year 2100 are kept for as long as the process runs, four bytes each, once for each unit and zone; after 2100 all periods are as
/// long as the longest. Borders count on the clock of the store. Instances with different databases agree once the last
/// of them has begun a period.
///
/// ```
/// use sluicegate_core::calendar::CalendarPeriod;
/// use sluicegate_core::{Policy, Quota};
///
/// let month: CalendarPeriod = "month in Asia/Seoul".parse()?;
/// assert_eq!(Quota::in_calendar(1_000_000, month), "1000000/month in Asia/Seoul".parse()?);
/// // Unused units of a month are added to the next month, up to a fifth of its limit.
/// let tokens = Policy::gcra("tokens", "1000000/month in Asia/Seoul carry over 20%").build()?;
/// assert_eq!(tokens.to_string(), "tokens: 1000000/month in Asia/Seoul carry over 200000 (token-bucket-aligned)");
/// let error = "5/day in Europe/Seoul".parse::<Quota>().unwrap_err();
/// assert!(error.problem().contains("\"Europe/Seoul\" is not a time zone"), "{error}");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// Available with the feature `calendar`; without it, no text is a calendar period.
#[derive(Clone, Copy)]
pub struct CalendarPeriod(&'static Periods);

/// The periods of a unit in a zone.
struct Periods {
    name: String,
    /// The first second of each period since the epoch; the first is 0.
    starts: Vec<u32>,
    longest_us: NonZeroU64,
}

/// The periods that were read: a few units in a few zones.
static KNOWN: Mutex<Vec<&'static Periods>> = Mutex::new(Vec::new());

const SECOND_US: u64 = 1_000_000;

impl CalendarPeriod {
    /// The length of the longest of these periods, such as 31 days of months.
    pub fn longest(self) -> Duration {
        Duration::from_micros(self.0.longest_us.get())
    }

    /// The beginning of the period that this moment falls into and the beginning of the next, in microseconds since the epoch.
    pub fn around(self, at_us: u64) -> (u64, u64) {
        let period = self.number(at_us);
        (self.start_us(period), self.start_us(period.saturating_add(1)))
    }

    /// A number for the calendar, the same in every process.
    pub(crate) fn id(self) -> u32 {
        // FNV-1a.
        self.0.name.bytes().fold(0x811c_9dc5, |id, byte| (id ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }

    pub(crate) fn longest_us(self) -> NonZeroU64 {
        self.0.longest_us
    }

    /// The number of the period that this moment falls into.
    pub(crate) fn number(self, at_us: u64) -> u64 {
        let second = at_us / SECOND_US;
        let begun = self.0.starts.partition_point(|start| u64::from(*start) <= second);
        let period = u64::try_from(begun).unwrap_or(u64::MAX).saturating_sub(1);
        let beyond = at_us.saturating_sub(self.start_us(period)) / self.0.longest_us;
        if self.0.starts.get(begun).is_some() { period } else { period.saturating_add(beyond) }
    }

    /// The beginning of the period of this number.
    pub(crate) fn start_us(self, period: u64) -> u64 {
        let index = usize::try_from(period).unwrap_or(usize::MAX);
        let last = self.0.starts.len().saturating_sub(1);
        let start = self.0.starts.get(index.min(last)).copied().unwrap_or(0);
        let beyond = period.saturating_sub(u64::try_from(last).unwrap_or(u64::MAX));
        u64::from(start)
            .saturating_mul(SECOND_US)
            .saturating_add(beyond.saturating_mul(self.0.longest_us.get()))
    }

    /// Whether the text after the slash of a quota means a period of a calendar, valid or not, and not a span of time.
    pub(crate) fn is_meant(text: &str) -> bool {
        let unit = text.split_whitespace().next().unwrap_or_default();
        matches!(unit, "month" | "quarter" | "year") || text.contains(" in ") || text.contains(" from ")
    }

    pub(crate) fn of_text(text: &str) -> Result<Self, Fault<'_>> {
        let (unit, zone) =
            text.split_once(" in ").map_or((text, None), |(unit, zone)| (unit, Some(zone.trim())));
        let (unit, from) = unit
            .split_once(" from ")
            .map_or_else(|| (unit.trim(), None), |(unit, day)| (unit.trim(), Some(day.trim())));
        let unit = match (unit, from) {
            ("d" | "day", None) => Unit::Day,
            ("w" | "week", from) => Unit::Week(from.map_or(Ok(0), weekday)?),
            ("month", None) => Unit::Months(1),
            ("quarter", None) => Unit::Months(3),
            ("year", None) => Unit::Months(12),
            (_, Some(day)) => {
                return Err(Fault::unreadable(
                    day,
                    format!("a {unit} does not begin from {day:?}: only a week does"),
                ));
            }
            _ => {
                let problem =
                    format!("{unit:?} is not a period of the calendar (day, week, month, quarter or year)");
                return Err(Fault::unreadable(unit, problem));
            }
        };
        let name = match zone {
            Some(zone) => format!("{unit} in {zone}"),
            None => unit.to_string(),
        };
        // A panic cannot leave the list half-changed.
        let mut known = lock(&KNOWN);
        if let Some(periods) = known.iter().find(|periods| periods.name == name) {
            return Ok(Self(periods));
        }
        let starts = self::zone::starts(&unit, zone)?;
        let lengths =
            starts.windows(2).map(|pair| pair.last().zip(pair.first()).map_or(0, |(end, start)| end - start));
        let longest_us = u64::from(lengths.max().unwrap_or(1)).saturating_mul(SECOND_US);
        let longest_us = NonZeroU64::new(longest_us).unwrap_or(NonZeroU64::MIN);
        let periods: &'static Periods = Box::leak(Box::new(Periods { name, starts, longest_us }));
        known.push(periods);
        Ok(Self(periods))
    }
}

/// A unit of the calendar.
enum Unit {
    Day,
    /// A week, and the days from Monday to its first day.
    Week(u8),
    Months(u8),
}

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

fn weekday(text: &str) -> Result<u8, Fault<'_>> {
    (0..).zip(WEEKDAYS).find(|(_, day)| day.eq_ignore_ascii_case(text)).map(|(number, _)| number).ok_or_else(
        || Fault::unreadable(text, format!("{text:?} is not a day of the week (monday, tuesday .. sunday)")),
    )
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day => f.write_str("day"),
            Self::Week(from) => {
                write!(f, "week from {}", WEEKDAYS.get(usize::from(*from)).unwrap_or(&"monday"))
            }
            Self::Months(3) => f.write_str("quarter"),
            Self::Months(12) => f.write_str("year"),
            Self::Months(_) => f.write_str("month"),
        }
    }
}

impl fmt::Display for CalendarPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

crate::debug_as!(CalendarPeriod, period => period.0.name);

impl PartialEq for CalendarPeriod {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for CalendarPeriod {}

impl Hash for CalendarPeriod {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl FromStr for CalendarPeriod {
    type Err = ConfigError;

    /// Reads `month`, `day in Asia/Seoul`, `week from sunday in Europe/Berlin`.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Unreadable`](crate::error::ConfigErrorKind::Unreadable) when the unit, the day or the zone is not known.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let advice = "; write \"month\", \"day in Asia/Seoul\" or \"week from monday\"";
        Self::of_text(text.trim()).map_err(|fault| fault.in_text(text, "a period of the calendar", advice))
    }
}

/// The calendar itself, from another crate.
#[cfg(feature = "calendar")]
mod zone {
    use jiff::civil::{Date, date};
    use jiff::tz::TimeZone;
    use jiff::{Span, ToSpan};

    use super::Unit;
    use crate::text::Fault;

    /// The first seconds of all periods from the epoch to the year 2100.
    pub(super) fn starts<'a>(unit: &Unit, zone: Option<&'a str>) -> Result<Vec<u32>, Fault<'a>> {
        let zone = zone.map_or(Ok(TimeZone::UTC), self::zone)?;
        let (first, step): (Date, Span) = match unit {
            Unit::Day => (date(1970, 1, 1), 1.day()),
            // The fifth of January 1970 was a Monday.
            Unit::Week(from) => (date(1970, 1, 5).saturating_add(i64::from(*from).days()), 1.week()),
            Unit::Months(months) => (date(1970, 1, 1), i64::from(*months).months()),
        };
        let first_seconds = (0_i64..)
            .map(|number| first.saturating_add(step.checked_mul(number).unwrap_or_default()))
            .take_while(|day| *day < date(2100, 1, 1))
            .filter_map(|day| zone.to_ambiguous_timestamp(day.at(0, 0, 0, 0)).compatible().ok())
            .filter_map(|start| u32::try_from(start.as_second()).ok())
            .filter(|start| *start > 0);
        Ok(std::iter::once(0).chain(first_seconds).collect())
    }

    fn zone(name: &str) -> Result<TimeZone, Fault<'_>> {
        TimeZone::get(name).map_err(|_| {
            let known: Vec<String> =
                jiff::tz::db().available().map(|name| name.as_str().to_owned()).collect();
            let place = |name: &str| name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
            let near = known.iter().find(|known| place(known) == place(name));
            let advice = match near {
                Some(near) => format!("; did you mean {near:?}?"),
                None if known.is_empty() => {
                    ": the system has no database of time zones, as the package tzdata brings it".to_owned()
                }
                None => String::new(),
            };
            Fault::unreadable(name, format!("{name:?} is not a time zone that the system knows{advice}"))
        })
    }
}

#[cfg(not(feature = "calendar"))]
mod zone {
    use super::Unit;
    use crate::text::Fault;

    pub(super) fn starts<'a>(unit: &Unit, zone: Option<&'a str>) -> Result<Vec<u32>, Fault<'a>> {
        let problem = format!("{unit} is a period of the calendar, which needs the feature `calendar`");
        Err(Fault::unreadable(zone.unwrap_or_default(), problem))
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests;
