//! The limits that adapt, a row each. Without any, the section is left out.
//!
//! The last hour is thirty bars of two minutes, for the limit and for the latency that it follows, each with a scale of its own. A limit in
//! shadow mode says that it would have shed requests, because none was refused.

use maud::{Markup, PreEscaped, html};
use sluicegate_plots::Bars;

use crate::document::{AdaptiveShown, ByClass, number};

/// Minutes of a bar.
const STEP: usize = 2;

pub(super) fn section(limits: &[AdaptiveShown]) -> Markup {
    html! {
        @if !limits.is_empty() {
            section aria-labelledby="adaptive" {
                h2 #adaptive { "Limits that adapt" }
                table {
                    thead {
                        tr {
                            th scope="col" { "limit" }
                            th.number scope="col" { "requests under way" }
                            th.number scope="col" { "median latency" }
                            th.number scope="col" { "requests waiting" }
                            th.number scope="col" { "critical refused" }
                            th.number scope="col" { "sheddable refused" }
                            th scope="col" { "last hour" }
                        }
                    }
                    tbody {
                        @for limit in limits { (row(limit)) }
                    }
                }
            }
        }
    }
}

fn row(limit: &AdaptiveShown) -> Markup {
    let AdaptiveShown { name, algorithm, mode, at_least, at_most, waiting, .. } = limit;
    let all = waiting.critical_plus + waiting.critical + waiting.sheddable_plus + waiting.sheddable;
    html! {
        tr {
            th scope="row" {
                (name)
                " " small { (algorithm) ", " (number::count(at_least)) " to " (number::count(at_most)) }
                @if mode != "enforce" { " " span.mode { "(" (mode) ")" } }
            }
            td.number data-label="requests under way" { (number::count(limit.in_flight)) " of " (number::count(limit.limit)) }
            td.number data-label="median latency" { (number::millis(limit.latency_ms)) }
            td.number data-label="requests waiting" { (number::count(all)) }
            td.number data-label="critical refused" { (shed(limit, |by| by.critical_plus + by.critical)) }
            td.number data-label="sheddable refused" { (shed(limit, |by| by.sheddable_plus + by.sheddable)) }
            td.plots data-label="last hour" { (bars(limit)) }
        }
    }
}

fn shed(limit: &AdaptiveShown, of: fn(&ByClass) -> u64) -> Markup {
    let (shed, would) = (of(&limit.shed), of(&limit.would_shed));
    html! {
        (number::count(shed))
        @if would > 0 { " " small { (number::count(would)) " if it were enforced" } }
    }
}

/// The limit and the latency, over the hour.
fn bars(limit: &AdaptiveShown) -> Markup {
    let minutes = limit.minutes.len();
    let steps = || limit.minutes.chunks(STEP).map(|part| part.iter().flatten().next_back());
    let ago = |place: usize| format!("{} min ago", minutes - place * STEP);
    let plot = |what: &str, caption: &str| {
        Bars::new(format!("{what} of {}", limit.name))
            .caption(caption)
            .at((0..steps().count()).map(ago))
            .marks([format!("{minutes} min ago"), "now".to_owned()])
    };
    let at_once = plot("requests at once", "at the end of two minutes").layer(
        "at once",
        "allowed",
        steps().map(|standing| standing.map(|standing| standing.limit)),
    );
    let latency = plot("latency", "at the end of two minutes").unit(" ms").layer(
        "median",
        "allowed",
        steps().map(|standing| standing.map(|standing| whole(standing.latency_ms))),
    );
    PreEscaped(at_once.draw() + &latency.draw())
}

/// Whole milliseconds, at least one unless the time is zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number to look at, and never below zero"
)]
fn whole(millis: f64) -> u64 {
    millis.ceil() as u64
}
