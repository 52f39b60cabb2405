use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;

use super::*;
use crate::algorithm::{Algorithm, Rule, State};
use crate::quota::Quota;

/// With daylight saving, without it, with half an hour of it, across the date line, and with a skipped midnight.
const ZONES: [&str; 6] = [
    "Europe/Berlin",
    "America/New_York",
    "Asia/Seoul",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Santiago",
];

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap_or_else(|error| panic!("the tests need tzdata: {error}"))
}

/// The first day of the period that a moment falls into, by a wall calendar.
fn first_day(unit: &str, zone: &TimeZone, at_us: u64) -> Date {
    let at = i64::try_from(at_us).ok().and_then(|at_us| Timestamp::from_microsecond(at_us).ok());
    let day = zone.to_datetime(at.expect("it is before the year 9999")).date();
    match unit {
        "day" => day,
        "week from sunday" => day.saturating_sub(i64::from(day.weekday().to_sunday_zero_offset()).days()),
        "month" => day.first_of_month(),
        "quarter" => date(day.year(), (day.month() - 1) / 3 * 3 + 1, 1),
        _ => day.first_of_year(),
    }
}

/// Some moment from 2026 to 2027, in microseconds.
fn moments() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let span = 1_767_225_600_000_000_u64..1_830_297_600_000_000;
    prop::collection::vec((span, 1_u64..5), 1..60).prop_map(|mut moments| {
        moments.sort_unstable();
        moments
    })
}

proptest! {
    #[test]
    fn each_period_of_the_calendar_passes_its_limit_and_no_more(
        unit in prop::sample::select(&["day", "week from sunday", "month", "quarter", "year"][..]),
        zone_name in prop::sample::select(&ZONES[..]),
        moments in moments(),
        // Most of the moments near a border.
        hours in prop::collection::vec(-30_i64..30, 60),
    ) {
        let period: CalendarPeriod = format!("{unit} in {zone_name}").parse().unwrap();
        let rule = Rule::new(Algorithm::Gcra, Quota::in_calendar(6, period)).unwrap();
        let zone = zone(zone_name);
        let (mut state, mut model) = (State::REST, (date(1, 1, 1), 0));
        let mut last_us = 0;
        for ((at_us, cost), hours) in moments.into_iter().zip(hours) {
            let near_us = period.around(at_us).1.saturating_add_signed(hours * 3_600_000_000);
            let now_us = if hours % 3 == 0 { at_us } else { near_us }.max(last_us);
            last_us = now_us;
            let day = first_day(unit, &zone, now_us);
            if day != model.0 {
                model = (day, 0);
            }
            let passes = model.1 + cost <= 6;
            let slot = rule.slot(state, now_us, cost);
            prop_assert_eq!(slot.opens_us == now_us, passes, "{} at {}", rule.used(state, now_us), now_us);
            if passes {
                state = rule.spend(state, now_us, now_us, cost);
                model.1 += cost;
                prop_assert_eq!(first_day(unit, &zone, state.until_us - 1), day);
                prop_assert_ne!(first_day(unit, &zone, state.until_us), day);
            } else {
                prop_assert_eq!(first_day(unit, &zone, slot.opens_us - 1), day);
                prop_assert_ne!(first_day(unit, &zone, slot.opens_us), day);
            }
            prop_assert_eq!(rule.remaining(state, now_us), 6 - model.1);
            // A store that knows no calendar decides by the borders of this moment.
            let (borders, around) = (rule.borders(now_us), period.around(now_us));
            prop_assert!(borders.is_sorted() && [around.0, around.1].iter().all(|border| borders.contains(border)));
        }
    }
}

#[test]
fn days_have_the_hours_that_the_clocks_on_the_wall_show() {
    const HOUR: u64 = 3_600_000_000;
    let hours = |text: &str, on: Date, zone_name: &str| {
        let period: CalendarPeriod = text.parse().unwrap();
        let noon = on.at(12, 0, 0, 0).to_zoned(zone(zone_name)).unwrap().timestamp();
        let (start, end) = period.around(u64::try_from(noon.as_microsecond()).unwrap());
        (end - start) / HOUR
    };
    for (zone_name, shorter, longer) in [
        ("Europe/Berlin", date(2026, 3, 29), date(2026, 10, 25)),
        ("America/New_York", date(2027, 3, 14), date(2027, 11, 7)),
        // Midnight is skipped on one day and occurs twice on the other.
        ("America/Santiago", date(2026, 9, 6), date(2026, 4, 4)),
    ] {
        let text = format!("day in {zone_name}");
        assert_eq!(
            (hours(&text, shorter, zone_name), hours(&text, longer, zone_name)),
            (23, 25),
            "{zone_name}"
        );
    }
    assert_eq!(hours("month", date(2028, 2, 29), "UTC"), 29 * 24);
    assert_eq!(hours("month in Europe/Berlin", date(2026, 3, 5), "Europe/Berlin"), 31 * 24 - 1);
    assert_eq!(hours("year", date(2028, 7, 1), "UTC"), 366 * 24);
    let last = |text: &str| hours(text, date(2150, 7, 1), "UTC");
    assert_eq!((last("month"), last("day in UTC")), (31 * 24, 24), "beyond the borders that are kept");
}

#[test]
fn a_quota_by_the_calendar_prints_as_it_reads() {
    for text in [
        "1000/month",
        "100/day in Asia/Seoul",
        "5/week from monday",
        "5/week from sunday in Europe/Berlin",
        "20/quarter in UTC",
        "50/year",
        "1000/month carry over 200",
        "100/month burst 120 start 10 by token-bucket-aligned",
    ] {
        let quota: Quota = text.parse().unwrap();
        assert_eq!(quota.to_string(), text);
        Rule::new(Algorithm::Gcra, quota).unwrap();
    }
    let of_text = |text: &str| text.parse::<Quota>().unwrap();
    assert_eq!(of_text("1000/month carry over 20%"), of_text("1000/month carry over 200"));
    assert_eq!(of_text("100/d carry over 5"), Quota::per_day(100).carrying_over(5));
    assert_eq!(of_text("5/week in UTC"), of_text("5/w from monday in UTC"));
    assert_eq!(of_text("5/week"), Quota::new(5, Duration::from_secs(604_800)), "seven days");
}

#[test]
fn a_mistake_in_a_period_is_named_with_its_place() {
    for (text, part, problem) in [
        ("5/day in Europe/Seoul", "Europe/Seoul", "did you mean \"Asia/Seoul\"?"),
        ("5/day in Atlantis", "Atlantis", "\"Atlantis\" is not a time zone that the system knows"),
        ("5/week from caturday", "caturday", "is not a day of the week"),
        ("5/month from monday", "monday", "only a week does"),
        ("5/fortnight in UTC", "fortnight", "is not a period of the calendar"),
        ("5/2 months in UTC", "2 months", "is not a period of the calendar"),
        ("5/month carry over 0%", "0", "is 0, and must be at least 1"),
        ("5/month carry over much", "much", "is not a whole number"),
        ("5/month burst 9 carry over 2", "2", "leave \"burst\" and \"start\" out"),
    ] {
        let error = text.parse::<Quota>().unwrap_err();
        assert!(error.problem().contains(problem), "{text}: {error}");
        assert_eq!(&text[error.span().unwrap()], part, "{text}: {error}");
    }
    for algorithm in ["gcra", "sliding-log", "sliding-counter", "fixed-window-from-first-hit", "leaky-bucket"]
    {
        let quota: Quota = format!("5/month by {algorithm}").parse().unwrap();
        let error = Rule::new(Algorithm::Gcra, quota).unwrap_err().to_string();
        assert!(error.contains(&format!("{algorithm} has no periods of the calendar")), "{error}");
    }
}
