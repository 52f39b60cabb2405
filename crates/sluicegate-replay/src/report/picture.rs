//! The picture: the drawings of the page alone, for a document.
//!
//! It has the bars of the rules and the comparison of algorithms, with the colours of both grounds in it, so that the same file serves a
//! light and a dark page.

use maud::{Markup, PreEscaped, html};

use super::chart::OverTime;
use crate::judge::{Compared, RuleFigures};
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
