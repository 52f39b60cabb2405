//! The limits that adapt, a row each. Without any the section is not there.
//!
//! The last hour is thirty bars of two minutes, of the number at once and of the latency by which it goes, each with a scale of its own. What
//! a limit in shadow would have shed stands in brackets, because nobody was refused.

use maud::{Markup, html};

use super::number;
use crate::document::{AdaptiveShown, ByClass};

/// How many minutes a bar has.
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
                            th.number scope="col" { "at once" }
                            th.number scope="col" { "latency" }
                            th.number scope="col" { "waiting" }
                            th.number scope="col" { "shed: critical" }
                            th.number scope="col" { "shed: sheddable" }
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
            td.number data-label="at once" { (number::count(limit.in_flight)) " of " (number::count(limit.limit)) }
            td.number data-label="latency" { (number::millis(limit.latency_ms)) }
            td.number data-label="waiting" { (number::count(all)) }
            td.number data-label="shed: critical" { (shed(limit, |by| by.critical_plus + by.critical)) }
            td.number data-label="shed: sheddable" { (shed(limit, |by| by.sheddable_plus + by.sheddable)) }
            td data-label="last hour" { span { (bars(limit)) } }
        }
    }
}

fn shed(limit: &AdaptiveShown, of: fn(&ByClass) -> u64) -> Markup {
    let (shed, would) = (of(&limit.shed), of(&limit.would_shed));
    html! {
        (number::count(shed))
        @if would > 0 { " (" (number::count(would)) ")" }
    }
}

/// The number at once and the latency, over the hour.
fn bars(limit: &AdaptiveShown) -> Markup {
    let steps = || limit.minutes.chunks(STEP).map(|part| part.iter().flatten().next_back());
    let at_once: Vec<u64> = steps().map(|standing| standing.map_or(0, |standing| standing.limit)).collect();
    let latency: Vec<u64> =
        steps().map(|standing| standing.map_or(0, |standing| whole(standing.latency_ms))).collect();
    html! {
        @for (what, unit, steps) in [("at once", "", &at_once), ("latency", " ms", &latency)] {
            @let highest = steps.iter().copied().max().unwrap_or_default();
            @let label = format!("{what} in the last hour, the oldest first, up to {highest}{unit}: {}", number::row(steps));
            span.bars role="img" aria-label=(label) title=(label) { (number::bars(steps, highest)) }
        }
    }
}

/// Whole milliseconds, at least one where there are some.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number to look at, and never below zero"
)]
fn whole(millis: f64) -> u64 {
    millis.ceil() as u64
}
