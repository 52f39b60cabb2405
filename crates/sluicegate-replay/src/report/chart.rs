//! Drawings of the page: bars over time, bars side by side. Floats only draw; they decide nothing.
//!
//! # Bars over time
//! Each bar covers the same round number of minutes, the least that keeps the number of bars at 180 or less and fills three of four
//! bars: a quiet site has bars of hours, without gaps between slivers. Bars begin at round times. Heights are relative to the highest bar,
//! which a scale beside the bars says. Each bar tells its numbers under the pointer, and all of them stand in a table below.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::judge::{MINUTE_US, RuleMinute};
use crate::read::time::shown;
use crate::report::table::counted;

/// The width in units of the drawing, which a page scales to its own width.
pub(super) const WIDTH: u64 = 720;
const HEIGHT: u64 = 120;
/// The most bars that can be told apart at this width.
const BARS: u64 = 180;

/// The minutes that a bar may cover.
const MINUTES: [u64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 720, 1_440, 10_080];

/// Requests over time, those that were rejected on top of the others.
pub(super) struct Bars {
    /// The outline of all bars in one path, because a browser draws one path faster than a thousand elements.
    pub(super) allowed: String,
    pub(super) rejected: String,
    /// The number of requests of the highest bar; `minutes` is the number of minutes that it covers.
    highest: u64,
    minutes: u64,
    /// The beginning of the first bar.
    from_us: u64,
    /// The allowed and the rejected requests of each bar.
    counts: Vec<(u64, u64)>,
}

impl Bars {
    /// Bars of these minutes, this high; `None` if there is none.
    pub(super) fn of(minutes: &[RuleMinute], tall: u64) -> Option<Self> {
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
        let mut counts = vec![(0_u64, 0_u64); usize::try_from(bars_of(per_bar)).unwrap_or_default()];
        for minute in minutes {
            let place = minute.at_us / MINUTE_US / per_bar - begin;
            let Some(bar) = usize::try_from(place).ok().and_then(|place| counts.get_mut(place)) else {
                continue;
            };
            bar.0 += minute.asked - minute.rejected;
            bar.1 += minute.rejected;
        }
        let highest = counts.iter().map(|(allowed, rejected)| allowed + rejected).max().unwrap_or(0).max(1);
        let (mut allowed, mut rejected) = (String::new(), String::new());
        let bars = counts.len() as u64;
        for (place, (passed, refused)) in (0_u64..).zip(&counts) {
            let sides = (place * WIDTH * 10 / bars, (place + 1) * WIDTH * 10 / bars);
            let height = |count: u64| count * tall * 10 / highest;
            bar(&mut allowed, sides, (0, height(*passed)), tall);
            bar(&mut rejected, sides, (height(*passed), height(passed + refused)), tall);
        }
        let from_us = begin * per_bar * MINUTE_US;
        Some(Self { allowed, rejected, highest, minutes: per_bar, from_us, counts })
    }

    /// The height of the highest bar, in words.
    pub(super) fn scale(&self) -> String {
        let unit = match self.minutes {
            1 => "a minute".to_owned(),
            60 => "an hour".to_owned(),
            1_440 => "a day".to_owned(),
            minutes if minutes % 1_440 == 0 => format!("{} days", minutes / 1_440),
            minutes if minutes % 60 == 0 => format!("{} hours", minutes / 60),
            minutes => format!("{minutes} minutes"),
        };
        format!("the highest bar is {} in {unit}", counted(self.highest, "request"))
    }

    /// The beginning of a bar.
    fn at_us(&self, place: u64) -> u64 {
        self.from_us + place * self.minutes * MINUTE_US
    }

    /// Moments at equal distances, from the beginning of the first bar to the end of the last.
    fn moments(&self) -> impl Iterator<Item = u64> {
        let bars = self.counts.len() as u64;
        let marks = bars.min(4);
        (0..=marks).map(move |mark| self.at_us(bars * mark / marks.max(1)))
    }
}

/// The bars as a figure of the page, with a scale, times and a table.
pub(super) fn over_time(minutes: &[RuleMinute], title: &str) -> Markup {
    let Some(bars) = Bars::of(minutes, HEIGHT) else { return html! {} };
    let many = bars.counts.len() as u64;
    html! {
        figure {
            figcaption { (title) ": " (bars.scale()) }
            div.plot {
                div.up aria-hidden="true" { span { (bars.highest) } @if bars.highest > 1 { span { (bars.highest / 2) } } span { "0" } }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(format!("{title}, as a table below")) {
                    path.line d=(format!("M0 {}H{WIDTH}", HEIGHT / 2)) {}
                    path class="allowed" d=(bars.allowed) {}
                    path class="rejected" d=(bars.rejected) {}
                    @for (place, (passed, refused)) in (0_u64..).zip(&bars.counts) {
                        rect.under x=(place * WIDTH / many) width=(WIDTH.div_ceil(many)) height=(HEIGHT) {
                            title { (shown(bars.at_us(place), false)) ": " (passed) " allowed, " (refused) " rejected" }
                        }
                    }
                }
                div.ends { @for at_us in bars.moments() { span { (shown(at_us, false)) } } }
            }
            details {
                summary { (title) " as a table" }
                table {
                    thead { tr { th { "From (UTC)" } th.number { "Allowed" } th.number { "Rejected" } } }
                    tbody {
                        @for (place, (passed, refused)) in (0_u64..).zip(&bars.counts) {
                            tr {
                                th { (shown(bars.at_us(place), false)) }
                                td.number data-label="Allowed" { (passed) }
                                td.number data-label="Rejected" { (refused) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Adds a bar between two heights above the ground of a drawing this tall; the other numbers are tenths.
fn bar(path: &mut String, (left, right): (u64, u64), (low, high): (u64, u64), tall: u64) {
    if high <= low {
        return;
    }
    let tenths = |number: u64| format!("{}.{}", number / 10, number % 10);
    // A bar with requests is always visible.
    let (bottom, top) = (tall * 10 - low, (tall * 10).saturating_sub(high.max(low + 10)));
    let [left, right, bottom, top] = [left, right, bottom, top].map(tenths);
    _ = write!(path, "M{left} {bottom}V{top}H{right}V{bottom}z");
}

/// A bar as long as its part of the largest one, in the color of what was `rejected` or `allowed`.
pub(super) fn part(count: u64, largest: u64, color: &str) -> Markup {
    let width = count * 100 / largest.max(1);
    html! {
        svg.part viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect class=(color) width=(width.max(u64::from(count > 0))) height="8" {}
        }
    }
}
