//! Drawings of the page: bars over time, a scale with marks, bars side by side. Floats only draw; they decide nothing.
//!
//! # Bars over time
//! Each bar covers the same number of whole minutes, the least that keeps the number of bars at 180 or less, and the first bar begins with
//! the first minute that has a request. Heights are relative to the highest bar, whose count is written in words, because an axis of
//! numbers would not fit 390 px.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::judge::{MINUTE_US, RuleMinute};
use crate::read::time::shown;

/// The width in units of the drawing, which a page scales to its own width.
pub(super) const WIDTH: u64 = 720;
const HEIGHT: u64 = 120;
/// The most bars that can be told apart at this width.
const BARS: u64 = 180;

/// Requests over time, those that were rejected on top of the others.
pub(super) struct Bars {
    /// The outline of all bars in one path, because a browser draws one path faster than a thousand elements.
    pub(super) allowed: String,
    pub(super) rejected: String,
    /// The number of requests of the highest bar; `minutes` is the number of minutes that it covers.
    highest: u64,
    minutes: u64,
}

impl Bars {
    /// Bars of these minutes, this high; `None` if there is none.
    pub(super) fn of(minutes: &[RuleMinute], tall: u64) -> Option<Self> {
        let (first, last) = (minutes.first()?, minutes.last()?);
        let all = (last.at_us - first.at_us) / MINUTE_US + 1;
        let per_bar = all.div_ceil(BARS);
        let bars = all.div_ceil(per_bar);
        let mut counts = vec![(0_u64, 0_u64); usize::try_from(bars).unwrap_or_default()];
        for minute in minutes {
            let place = (minute.at_us - first.at_us) / MINUTE_US / per_bar;
            let Some(bar) = usize::try_from(place).ok().and_then(|place| counts.get_mut(place)) else {
                continue;
            };
            bar.0 += minute.asked - minute.rejected;
            bar.1 += minute.rejected;
        }
        let highest = counts.iter().map(|(allowed, rejected)| allowed + rejected).max().unwrap_or(0).max(1);
        let (mut allowed, mut rejected) = (String::new(), String::new());
        for (place, (passed, refused)) in (0_u64..).zip(&counts) {
            let sides = (place * WIDTH * 10 / bars, (place + 1) * WIDTH * 10 / bars);
            let height = |count: u64| count * tall * 10 / highest;
            bar(&mut allowed, sides, (0, height(*passed)), tall);
            bar(&mut rejected, sides, (height(*passed), height(passed + refused)), tall);
        }
        Some(Self { allowed, rejected, highest, minutes: per_bar })
    }

    /// The height of the highest bar, in words.
    pub(super) fn scale(&self) -> String {
        let unit =
            if self.minutes == 1 { "a minute".to_owned() } else { format!("{} minutes", self.minutes) };
        format!("the highest bar is {} requests in {unit}", self.highest)
    }
}

/// The bars as a figure of the page.
pub(super) fn over_time(minutes: &[RuleMinute], title: &str) -> Markup {
    let (Some(bars), Some(first), Some(last)) = (Bars::of(minutes, HEIGHT), minutes.first(), minutes.last())
    else {
        return html! {};
    };
    html! {
        figure {
            figcaption { (title) ": " (bars.scale()) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(title) {
                path class="allowed" d=(bars.allowed) {}
                path class="rejected" d=(bars.rejected) {}
            }
            div.ends { span { (shown(first.at_us, false)) } span { (shown(last.at_us, false)) } }
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

/// Marks on a line from 0.
pub(super) fn scale(marks: &[(String, u64)]) -> Markup {
    let highest = marks.iter().map(|(_, at)| *at).max().unwrap_or(0).max(1);
    let left = |at: u64| 10 + at * (WIDTH - 20) / highest;
    html! {
        svg.scale viewBox=(format!("0 0 {WIDTH} 24")) preserveAspectRatio="none" aria-hidden="true" {
            path class="line" d=(format!("M10 12H{}", WIDTH - 10)) {}
            @for (name, at) in marks {
                circle class=(if name == "limit" { "rejected" } else { "allowed" }) cx=(left(*at)) cy="12" r="6" {}
            }
        }
        p.marks { @for (name, at) in marks { span { (name) " " b { (at) } } } }
    }
}

/// A bar as long as its part of the largest one.
pub(super) fn part(count: u64, largest: u64) -> Markup {
    let width = count * 100 / largest.max(1);
    html! {
        svg.part viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect class="rejected" width=(width.max(u64::from(count > 0))) height="8" {}
        }
    }
}
