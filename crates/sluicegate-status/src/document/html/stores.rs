//! The state of the stores: a summary at the head of the page, and the details below.

use maud::{Markup, html};

use crate::document::{ShownStore, number};

pub(super) fn section(stores: &[ShownStore]) -> Markup {
    html! {
        section aria-labelledby="stores" {
            h2 #stores { "Stores, since the start" }
            ul.stores {
                @for store in stores { (item(store)) }
            }
        }
    }
}

/// Writes `store redis: OK, 99 of 100 answers within 0.4 ms · 812 keys in debt, room for 187,000`.
pub(super) fn in_short(store: &ShownStore) -> Markup {
    let ShownStore { name, state, breaker, .. } = store;
    html! {
        "store " strong { (name) } ": "
        span class={ "state " (state) } { @match *state { "ok" => "OK", "fallback" => "in fallback", _ => "down" } }
        @match *breaker {
            "closed" => {},
            "open" => { ", breaker open: it is not asked" },
            _ => { ", breaker half open: it is asked on trial" },
        }
        @if let Some(p99) = store.p99_ms { ", 99 of 100 answers within " (number::millis(p99)) }
        @if store.slots > 0 {
            " · " (number::counted(store.keys as u64, "key", "keys")) " in debt, room for " (number::count(store.slots))
        }
    }
}

/// The events of a store.
fn item(store: &ShownStore) -> Markup {
    let ShownStore { name, errors, .. } = store;
    let failed = errors.timeout + errors.unavailable + errors.protocol;
    html! {
        li {
            strong { (name) } ": " (number::counted(failed, "call", "calls")) " without an answer"
            @if failed > 0 {
                " (" (number::count(errors.timeout)) " not in time, " (number::count(errors.unavailable)) " not reached, "
                (number::count(errors.protocol)) " unreadable)"
            }
            " · its breaker has opened " (number::counted(store.opened, "time", "times"))
            @if store.fallback_decisions > 0 || store.fallback_seconds > 0 {
                " · " (number::counted(store.fallback_decisions, "decision", "decisions")) " without it in "
                (number::span(store.fallback_seconds))
            }
            @if store.unsettled_keys > 0 { " · " (number::counted(store.unsettled_keys as u64, "key", "keys")) " with spending that it does not know yet" }
            @if store.slots > 0 { " · " (number::counted(store.evictions, "key", "keys")) " forgotten for lack of room" }
            @if store.policies_kept_open > 0 {
                " · " (number::counted(store.policies_kept_open, "policy", "policies")) " opened beyond the bound of their limit, since keys owe under all others"
            }
        }
    }
}
