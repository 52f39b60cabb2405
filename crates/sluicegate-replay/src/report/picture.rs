//! The picture: the drawings of the page alone, for a document.
//!
//! It has the bars of the rules and the comparison of algorithms, with the colours of both grounds in it, so that the same file serves a
//! light and a dark page.

use maud::{Markup, PreEscaped, html};
use sluicegate_plots::{Bars, outlines};

use crate::judge::{Compared, MINUTE_US, RuleFigures, RuleMinute};
use crate::outcome::ReplayOutcome;
use crate::read::time::shown;
use crate::report::json::{quota, quotas};
use crate::report::table::counted;

/// The colours of the page, for both kinds of ground.
const STYLE: &str = "text{font:13px system-ui,'Segoe UI','DejaVu Sans',sans-serif;fill:#1b1f24}.quiet{fill:#545d68}\
.allowed{fill:#0b4fb3}.rejected{fill:#a8201a}.ground{fill:#fff}.line{stroke:#868f99}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#a5b1bd}.allowed{fill:#8cbfff}.rejected{fill:#ff9d94}\
.ground{fill:#0f1419}.line{stroke:#6b7683}}";

/// The width of the drawings, in units of the picture.
const WIDTH: u64 = 720;
const MARGIN: u64 = 16;
/// The height of the bars of a rule.
const TALL: u64 = 64;
/// The distance from one line of text to the next.
const LINE: u64 = 20;
/// The place where the bars of a comparison begin.
const COMPARED_AT: u64 = 240;

impl ReplayOutcome {
    /// A picture of all rules, as SVG, for light and dark backgrounds: requests over time, comparisons and suggestions. Texts
    /// appear as plain text, and it loads nothing.
    ///
    /// Use it in a README or a slide instead of the page. A viewer that knows `prefers-color-scheme` shows it light or dark.
    pub fn to_svg(&self) -> String {
        let mut below = MARGIN;
        let mut rules = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.asked > 0) {
            rules.push(html! { g transform=(format!("translate({MARGIN} {below})")) { (self.drawn(rule)) } });
            below += height(rule);
        }
        let (wide, tall) = (WIDTH + 2 * MARGIN, below + LINE);
        let span = self.span.map_or_else(String::new, |(from, to)| {
            format!("{} to {} UTC; clients do not react", shown(from, false), shown(to, false))
        });
        let title = format!("Replay of {}: allowed and rejected requests over time", self.logs.join(", "));
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {wide} {tall}")) width=(wide) height=(tall) role="img" aria-label=(title) {
                style { (PreEscaped(STYLE)) }
                rect.ground width=(wide) height=(tall) rx="6" {}
                @for rule in &rules { (rule) }
                text.quiet x=(MARGIN) y=(below + 4) { (span) }
                (legend(below + 4))
            }
        }
        .into_string()
    }

    fn drawn(&self, rule: &RuleFigures) -> Markup {
        let Some(bars) = OverTime::of(&rule.minutes) else { return html! {} };
        let [allowed, rejected] = &bars.outlines((WIDTH, TALL))[..] else { return html! {} };
        let after = TALL + 2 * LINE;
        html! {
            text y="12" { (rule.name) ": " (rule.policy.algorithm()) ", " (quota(rule)) }
            text.quiet x=(WIDTH) y="12" text-anchor="end" {
                (rule.rejected) " of " (counted(rule.asked, "request")) " and " (rule.rejected_keys) " of " (counted(rule.keys, "key")) " rejected"
            }
            g transform=(format!("translate(0 {LINE})")) {
                path.allowed d=(allowed) {}
                path.rejected d=(rejected) {}
                path.line d=(format!("M0 {TALL}H{WIDTH}")) {}
            }
            @if !rule.compared.is_empty() {
                text y=(after) { "requests that each algorithm rejects alone, with the same quotas:" }
            }
            @let after = after + heading(rule);
            @let largest = rule.compared.iter().filter_map(|compared| compared.rejected.as_ref().ok()).max();
            @for (place, compared) in (0_u64..).zip(&rule.compared) {
                g transform=(format!("translate(0 {})", after + place * LINE)) {
                    (compared_bar(compared, largest.copied().unwrap_or(0)))
                }
            }
            @if let Some(found) = &rule.suggestion {
                text y=(after + rule.compared.len() as u64 * LINE) {
                    "suggestion for at most " (found.share) ": " (quotas(&found.policy)) ", which rejects " (counted(found.rejected, "request"))
                }
            }
        }
    }
}

/// The height of the drawing of a rule, with room below.
fn height(rule: &RuleFigures) -> u64 {
    let lines = rule.compared.len() as u64 + u64::from(rule.suggestion.is_some());
    TALL + 2 * LINE + heading(rule) + lines * LINE
}

/// The height of the line above the bars of a comparison.
fn heading(rule: &RuleFigures) -> u64 {
    if rule.compared.is_empty() { 0 } else { LINE }
}

fn compared_bar(compared: &Compared, largest: u64) -> Markup {
    let rejected = compared.rejected.as_ref().copied().unwrap_or(0);
    let width = (rejected * (WIDTH - COMPARED_AT - 60)).checked_div(largest).unwrap_or(0);
    let burst = if compared.drops_burst { ", no burst" } else { "" };
    html! {
        text.quiet { (compared.algorithm) (burst) }
        rect.rejected x=(COMPARED_AT) y="-10" width=(width) height="11" {}
        text.quiet x=(COMPARED_AT + width + 6) { @match &compared.rejected { Ok(rejected) => (rejected), Err(_) => "-" } }
    }
}

fn legend(y: u64) -> Markup {
    html! {
        rect.allowed x=(WIDTH - 132) y=(y - 10) width="11" height="11" {}
        text x=(WIDTH - 116) y=(y) { "allowed" }
        rect.rejected x=(WIDTH - 52) y=(y - 10) width="11" height="11" {}
        text x=(WIDTH - 36) y=(y) { "rejected" }
    }
}

// The bars over time of the page and of the picture: the time that a bar covers, and its counts.
//
// Each bar covers the same round number of minutes, the least that keeps the number of bars at 180 or less and fills three of four
// bars: a quiet site has bars of hours, without gaps between slivers. Bars begin at round times.

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
    fn outlines(&self, size: (u64, u64)) -> Vec<String> {
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
