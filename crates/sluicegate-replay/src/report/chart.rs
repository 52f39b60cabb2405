//! Drawings of the page: bars over time, a scale with marks, bars side by side. Floats only draw; nothing is decided by them.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::figures::{MINUTE_US, Minute};
use crate::format::time::shown;

const WIDTH: u64 = 720;
const HEIGHT: u64 = 120;
/// The most bars that are told apart at this width.
const BARS: u64 = 180;

/// Requests over time, those that were rejected on top of the others.
pub(super) fn over_time(minutes: &[Minute], title: &str) -> Markup {
    let (Some(first), Some(last)) = (minutes.first(), minutes.last()) else { return html! {} };
    let all = (last.at_us - first.at_us) / MINUTE_US + 1;
    let per_bar = all.div_ceil(BARS);
    let bars = all.div_ceil(per_bar);
    let mut counts = vec![(0_u64, 0_u64); usize::try_from(bars).unwrap_or_default()];
    for minute in minutes {
        let place = (minute.at_us - first.at_us) / MINUTE_US / per_bar;
        let Some(bar) = usize::try_from(place).ok().and_then(|place| counts.get_mut(place)) else { continue };
        bar.0 += minute.asked - minute.rejected;
        bar.1 += minute.rejected;
    }
    let highest = counts.iter().map(|(allowed, rejected)| allowed + rejected).max().unwrap_or(0).max(1);
    let (mut allowed, mut rejected) = (String::new(), String::new());
    for (place, (passed, refused)) in (0_u64..).zip(&counts) {
        let (left, right) = (place * WIDTH * 10 / bars, (place + 1) * WIDTH * 10 / bars);
        let height = |count: u64| count * HEIGHT * 10 / highest;
        bar(&mut allowed, (left, right), 0, height(*passed));
        bar(&mut rejected, (left, right), height(*passed), height(passed + refused));
    }
    let unit = if per_bar == 1 { "minute".to_owned() } else { format!("{per_bar} minutes") };
    html! {
        figure {
            figcaption { (title) ": the highest bar is " (highest) " requests in " (unit) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(title) {
                path class="allowed" d=(allowed) {}
                path class="rejected" d=(rejected) {}
            }
            div.ends { span { (shown(first.at_us, false)) } span { (shown(last.at_us, false)) } }
        }
    }
}

/// A bar between two heights above the ground; numbers are tenths.
fn bar(path: &mut String, (left, right): (u64, u64), low: u64, high: u64) {
    if high <= low {
        return;
    }
    let tenths = |number: u64| format!("{}.{}", number / 10, number % 10);
    // A bar that is there is seen.
    let (bottom, top) = (HEIGHT * 10 - low, (HEIGHT * 10).saturating_sub(high.max(low + 10)));
    _ = write!(
        path,
        "M{} {}V{}H{}V{}z",
        tenths(left),
        tenths(bottom),
        tenths(top),
        tenths(right),
        tenths(bottom)
    );
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
