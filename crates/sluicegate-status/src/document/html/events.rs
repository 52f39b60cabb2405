//! The last events of all stores, as this instance saw them.

use maud::{Markup, html};

use crate::document::{Happened, number};

pub(super) fn section(events: &[Happened]) -> Markup {
    html! {
        section aria-labelledby="events" {
            h2 #events { "Events" }
            @if events.is_empty() { p { "Nothing has happened." } }
            ul.events {
                // The youngest event comes first.
                @for event in events.iter().rev() { (item(event)) }
            }
        }
    }
}

fn item(event: &Happened) -> Markup {
    let Happened { at, what, by, policy, key, room, from, to } = event;
    html! {
        li {
            time datetime=(at) { (number::clock(at)) } " "
            @if let Some(by) = by { (by) ": " }
            (what.replace('_', " "))
            @if let Some(name) = policy.as_ref().or(room.as_ref()) { " " strong { (name) } }
            @if let Some(key) = key { " " span.key { (key) } }
            @if let Some(from) = from { " " (from) }
            @if let Some(to) = to { " → " (to) }
            // An override replaces a policy in this way.
            @if by.is_some() && *what == "quota_changed" { ", spent is kept" }
        }
    }
}
