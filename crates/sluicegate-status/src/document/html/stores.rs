//! The state of the stores: in short at the head of the page, where the first look goes, and in detail below.

use maud::{Markup, html};

use super::number;
use crate::document::ShownStore;

pub(super) fn section(stores: &[ShownStore]) -> Markup {
    html! {
        section aria-labelledby="stores" {
            h2 #stores { "Stores" }
            ul.stores {
                @for store in stores { (item(store)) }
            }
        }
    }
}

/// Writes `redis: OK, closed, 0.4 ms p99 · table 812 of 187,000`.
pub(super) fn in_short(store: &ShownStore) -> Markup {
    let ShownStore { name, state, breaker, .. } = store;
    html! {
        strong { (name) } ": "
        span class={ "state " (state) } { @match *state { "ok" => "OK", "fallback" => "in fallback", _ => "down" } }
        ", " (breaker.replace('_', " "))
        @if let Some(p99) = store.p99_ms { ", " (number::millis(p99)) " p99" }
        @if store.slots > 0 {
            " · table " (number::count(store.keys)) " of " (number::count(store.slots))
        }
    }
}

/// The events of a store.
fn item(store: &ShownStore) -> Markup {
    let ShownStore { name, errors, .. } = store;
    let failed = errors.timeout + errors.unavailable + errors.protocol;
    html! {
        li {
            strong { (name) } ": breaker opened " (number::count(store.opened)) " times"
            " · " (number::count(failed)) " errors"
            @if failed > 0 {
                " (" (number::count(errors.timeout)) " timeouts, " (number::count(errors.unavailable)) " unavailable, "
                (number::count(errors.protocol)) " unreadable)"
            }
            @if store.fallback_decisions > 0 || store.fallback_seconds > 0 {
                " · " (number::count(store.fallback_decisions)) " decisions without it in "
                (number::span(store.fallback_seconds))
            }
            @if store.unsettled_keys > 0 { " · " (store.unsettled_keys) " keys not settled" }
            @if store.slots > 0 { " · " (number::count(store.evictions)) " evictions" }
            @if store.policies_kept_open > 0 {
                " · " (number::count(store.policies_kept_open)) " policies opened beyond the bound of their limit, since keys owe under all others"
            }
        }
    }
}
