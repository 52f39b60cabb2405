//! The frontier of a rule on the page: a small curve, its knees, and all of its limits as a table.
//!
//! Both axes go from nothing to all. The axis of ordinary requests shows the square root of their part, because the relevant values are small.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::frontier::{Counted, Frontier, FrontierPoint};
use crate::judge::RuleFigures;
use crate::report::table::percent;

/// The size of the square of the curve, and the room around it.
const SIDE: u64 = 200;
const LEFT: u64 = 52;
const BELOW: u64 = 36;

pub(super) fn figure(rule: &RuleFigures, frontier: &Frontier) -> Markup {
    let Frontier { ordinary, unusual, points, knees } = frontier;
    let suggested = rule.suggestion.as_ref().map(|found| found.limit);
    let place = |point: &FrontierPoint| {
        let across = (u128::from(point.ordinary.part(*ordinary)) * u128::from(WHOLE)).isqrt();
        let across = u64::try_from(across).unwrap_or(WHOLE);
        (LEFT + across * SIDE / WHOLE, SIDE + 8 - point.unusual.part(*unusual) * SIDE / WHOLE)
    };
    let mut curve = String::new();
    for (number, point) in points.iter().enumerate() {
        let (x, y) = place(point);
        _ = write!(curve, "{}{x} {y}", if number == 0 { "M" } else { "L" });
    }
    let is_marked = |point: &&FrontierPoint| knees.contains(point) || Some(point.limit) == suggested;
    let (wide, tall) = (LEFT + SIDE + 90, SIDE + 8 + BELOW);
    html! {
        figure.frontier {
            figcaption { "Rejected of " (ordinary.requests) " ordinary requests (across) and of " (unusual.requests) " unusual ones (up), by limit" }
            svg viewBox=(format!("0 0 {wide} {tall}")) role="img" aria-label="Rejected of ordinary and of unusual requests, as a table below" {
                path.line d=(format!("M{LEFT} 8V{}H{}", SIDE + 8, LEFT + SIDE)) {}
                @for (text, y) in [("100 %", 12), ("50 %", SIDE / 2 + 12), ("0", SIDE + 12)] {
                    text x=(LEFT - 6) y=(y) text-anchor="end" { (text) }
                }
                @for (text, thousandth) in [("0", 0), ("1 %", 100), ("10 %", 316), ("100 %", 1_000)] {
                    text x=(LEFT + SIDE * thousandth / 1_000) y=(SIDE + 26) text-anchor="middle" { (text) }
                }
                path.curve d=(curve) {}
                @for point in points.iter().filter(is_marked) {
                    @let (x, y) = place(point);
                    circle class=(if Some(point.limit) == suggested { "rejected" } else { "allowed" }) cx=(x) cy=(y) r="4" {
                        title { "limit " (point.limit) }
                    }
                    text x=(x + 7) y=(y + 4) { (point.limit) }
                }
            }
            details {
                summary { "All limits as a table" }
                table {
                    thead { tr { th.number { "Limit" } th.number { "Ordinary rejected" } th.number { "Ordinary keys" } th.number { "Unusual rejected" } th.number { "Unusual keys" } } }
                    tbody {
                        @for point in points {
                            tr {
                                th.number { (point.limit) @if knees.contains(point) { " (knee)" } @if Some(point.limit) == suggested { " (suggested)" } }
                                (cells("Ordinary rejected", "Ordinary keys", point.ordinary, *ordinary))
                                (cells("Unusual rejected", "Unusual keys", point.unusual, *unusual))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The whole, in the parts that [`Counted::part`] counts in.
const WHOLE: u64 = 1_000_000_000;

fn cells(requests: &str, keys: &str, rejected: Counted, all: Counted) -> Markup {
    html! {
        td.number data-label=(requests) { (percent(rejected, all)) }
        td.number data-label=(keys) { (rejected.keys) " of " (all.keys) }
    }
}
