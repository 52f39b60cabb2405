//! The bars over time of the page and of the picture: the time that a bar covers, and its counts.
//!
//! Each bar covers the same round number of minutes, the least that keeps the number of bars at 180 or less and fills three of four
//! bars: a quiet site has bars of hours, without gaps between slivers. Bars begin at round times.

use maud::{Markup, PreEscaped, html};
use sluicegate_plots::{Bars, outlines};

use crate::judge::{MINUTE_US, RuleMinute};
use crate::read::time::shown;
use crate::report::table::counted;

/// The most bars that can be told apart at the width of a page.
const BARS: u64 = 180;

/// The minutes that a bar may cover.
const MINUTES: [u64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 720, 1_440, 10_080];

/// Requests over time, by bars.
pub(super) struct OverTime {
    allowed: Vec<u64>,
    rejected: Vec<u64>,
    /// The number of minutes that a bar covers.
    minutes: u64,
    /// The beginning of the first bar.
    from_us: u64,
}

impl OverTime {
    /// The bars of these minutes; `None` if there is none.
    pub(super) fn of(minutes: &[RuleMinute]) -> Option<Self> {
        let (first, last) = (minutes.first()?.at_us / MINUTE_US, minutes.last()?.at_us / MINUTE_US);
        let bars_of = |per_bar: u64| last / per_bar - first / per_bar + 1;
        let filled = |per_bar: u64| {
            let same = |one: &RuleMinute, next: &RuleMinute| {
                one.at_us / MINUTE_US / per_bar == next.at_us / MINUTE_US / per_bar
            };
            minutes.chunk_by(same).count() as u64
        };
        let is_enough =
            |per_bar: &u64| bars_of(*per_bar) <= BARS && filled(*per_bar) * 4 >= bars_of(*per_bar) * 3;
        // A log of years has bars of several weeks.
        let longer = || MINUTES[MINUTES.len() - 1] * bars_of(MINUTES[MINUTES.len() - 1]).div_ceil(BARS);
        let per_bar = MINUTES.into_iter().find(is_enough).unwrap_or_else(longer);
        let begin = first / per_bar;
        let bars = usize::try_from(bars_of(per_bar)).unwrap_or_default();
        let (mut allowed, mut rejected) = (vec![0_u64; bars], vec![0_u64; bars]);
        for minute in minutes {
            let Ok(place) = usize::try_from(minute.at_us / MINUTE_US / per_bar - begin) else { continue };
            if place < bars {
                allowed[place] += minute.asked - minute.rejected;
                rejected[place] += minute.rejected;
            }
        }
        Some(Self { allowed, rejected, minutes: per_bar, from_us: begin * per_bar * MINUTE_US })
    }

    /// The outlines of the allowed and of the rejected requests in a drawing of this size.
    pub(super) fn outlines(&self, size: (u64, u64)) -> Vec<String> {
        outlines(&[self.allowed.clone(), self.rejected.clone()], size)
    }

    /// The height of the highest bar, in words.
    fn scale(&self) -> String {
        let unit = match self.minutes {
            1 => "a minute".to_owned(),
            60 => "an hour".to_owned(),
            1_440 => "a day".to_owned(),
            minutes if minutes % 1_440 == 0 => format!("{} days", minutes / 1_440),
            minutes if minutes % 60 == 0 => format!("{} hours", minutes / 60),
            minutes => format!("{minutes} minutes"),
        };
        let sums = self.allowed.iter().zip(&self.rejected).map(|(allowed, rejected)| allowed + rejected);
        format!("the highest bar is {} in {unit}", counted(sums.max().unwrap_or(0), "request"))
    }

    /// The beginning of a bar.
    fn at(&self, place: u64) -> String {
        shown(self.from_us + place * self.minutes * MINUTE_US, false)
    }
}

/// The bars as a figure of the page, with a scale, times and a table.
pub(super) fn over_time(minutes: &[RuleMinute], title: &str) -> Markup {
    let Some(found) = OverTime::of(minutes) else { return html! {} };
    let bars = found.allowed.len() as u64;
    let marks = bars.min(4);
    let plot = Bars::new(title)
        .caption(format!("{title}: {}", found.scale()))
        .at((0..bars).map(|place| found.at(place)))
        .marks((0..=marks).map(|mark| found.at(bars * mark / marks.max(1))))
        .layer("allowed", "allowed", found.allowed.iter().copied().map(Some))
        .layer("rejected", "rejected", found.rejected.iter().copied().map(Some));
    PreEscaped(plot.draw())
}

/// A bar as long as its part of the largest one, in the color of what was `rejected` or `allowed`.
pub(super) fn part(count: u64, largest: u64, color: &str) -> Markup {
    PreEscaped(sluicegate_plots::part(count, largest, color))
}
