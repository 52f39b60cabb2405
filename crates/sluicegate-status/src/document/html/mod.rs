//! The page, drawn on the server: it has no scripts.
//!
//! `page` is the frame, and each section has a file that draws a part of the document. `maud` escapes all inserted text, so that a key, a
//! tenant or the name of a policy is always plain text.
//!
//! Parts that open and close are `details`, actions are forms, and choices are links with a query: all of it works in a browser with
//! scripts off, and by keyboard. Fields and buttons have names for screen readers, which do not see the row that they are in, and rows of
//! bars are read out as numbers. Colours come in pairs, light and dark, each with a contrast of 4.5 at least; below 45 rem a row of the
//! table becomes a card.

mod look_up;
mod parts;
mod policies;
mod rooms;

use http::Uri;
use maud::{DOCTYPE, Markup, html};
use sluicegate_core::store::BreakerState;
use sluicegate_observed::{OutageCounts, StoreSnapshot, StoreState};

use crate::document::html::parts::by_reference;
use crate::document::{Document, Happened, LookedUp, NextAction, NoticeShown, sentence, shape, steps};

// The frame of the page: [`page`].
//
// From top to bottom it follows the questions of an operator on call: a summary in one sentence, with the first steps; whether the store is the
// cause, which policy refuses, which keys, and what to do. The result of a form is at the very top, where the browser begins to read.

/// The style sheet of the page, which it links to.
pub(crate) const STYLE: &str = include_str!("style.css");

/// Everything that one page shows.
pub(crate) struct Look<'a> {
    pub(crate) document: &'a Document,
    /// The operator's name, if this visitor may act.
    pub(crate) operator: Option<&'a str>,
    /// The token that forms carry; without it there are no forms.
    pub(crate) token: Option<&'a str>,
    /// The names of the limits that a request can meet.
    pub(crate) limits: &'a [&'a str],
    pub(crate) theme: Theme,
    /// The action that was taken, or the reason why it was not.
    pub(crate) notice: Option<&'a Result<String, String>>,
    pub(crate) found: Option<&'a LookedUp>,
}

/// The colours of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// The colours that the browser prefers.
    Own,
    Light,
    Dark,
}

impl Theme {
    pub(crate) fn of(uri: &Uri) -> Self {
        let parts = || uri.query().into_iter().flat_map(|query| query.split('&'));
        if parts().any(|part| part == "theme=dark") {
            Self::Dark
        } else if parts().any(|part| part == "theme=light") {
            Self::Light
        } else {
            Self::Own
        }
    }

    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Own => None,
            Self::Light => Some("light"),
            Self::Dark => Some("dark"),
        }
    }
}

/// The whole page. Its links are queries, and its forms go to its own address, so that it works wherever it is put.
pub(crate) fn page(look: &Look<'_>) -> String {
    let Document { instance, policies, .. } = look.document;
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[look.theme.word()] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Sluicegate: " (instance) }
                link rel="stylesheet" href="?style";
            }
            body {
                a.skip href="#policies" { "Skip to the policies" }
                (header(look))
                main {
                    @if let Some(notice) = look.notice { (said(notice)) }
                    @if let Some(found) = look.found { (look_up::found(found, look.token)) }
                    (summary_section(look.document, look.token))
                    @for (place, notice) in look.document.notices.iter().enumerate() {
                        (put(notice, at_alarm(look, place)))
                    }
                    (stores_section(&look.document.stores))
                    (policies::policies_section(policies, look.token))
                    (policies::budgets_section(policies, look.token))
                    (rooms::at_once_section(&look.document.in_flight))
                    (rooms::adaptive_section(&look.document.adaptive))
                    (rooms::shared_section(&look.document.shared))
                    (rooms::rooms_section(&look.document.rooms, look.token))
                    (look_up::offenders_section(policies, look.token))
                    @if let Some(token) = look.token { (look_up::section(policies, look.limits, token)) }
                    (events_section(&look.document.events))
                }
            }
        }
    }
    .into_string()
}

fn header(look: &Look<'_>) -> Markup {
    let Document { instance, uptime_seconds, at, stores, .. } = look.document;
    html! {
        header {
            h1 { "Sluicegate" }
            p {
                strong { (instance) } " · up for " (shape::span(*uptime_seconds)) " · now " time datetime=(at) { (shape::clock(at)) " UTC" }
                " · " @match look.operator {
                    Some(name) => { "signed in as " (name) },
                    None => { "read-only: nobody is signed in, so keys are shown as digests" },
                }
            }
            @for store in stores { p { (in_short(store)) } }
            nav aria-label="colours" {
                @for (theme, word) in [(Theme::Light, "light"), (Theme::Dark, "dark")] {
                    a href={ "?theme=" (word) } aria-current=[(look.theme == theme).then_some("true")] { (word) }
                }
            }
            p.note { "Numbers are those of this instance, and times are UTC. " (looked_up_in(stores)) }
        }
    }
}

/// Says who knows the keys that are looked up.
fn looked_up_in(stores: &[StoreSnapshot]) -> Markup {
    let away: Vec<&str> =
        stores.iter().filter(|store| store.state != StoreState::Ok).map(|store| &*store.name).collect();
    html! {
        @if away.is_empty() { "Look-ups are answered by the store." }
        @else { "Look-ups show what this instance knows: " (away.join(", ")) " gives no answers." }
    }
}

/// The form at an alarm, once for each policy.
fn at_alarm(look: &Look<'_>, place: usize) -> Markup {
    let notices = &look.document.notices;
    let is_alarm_of = |notice: &NoticeShown| notice.is_alarm && notice.about == notices[place].about;
    let is_first = notices.iter().position(is_alarm_of) == Some(place);
    let policy = look.document.policies.iter().find(|policy| is_first && policy.name == notices[place].about);
    html! { @if let (Some(policy), Some(token)) = (policy, look.token) { (policies::at_alarm(policy, token)) } }
}

/// An alarm or a notice of the application, with the form to act on it.
fn put(NoticeShown { about, since, text, is_alarm }: &NoticeShown, form: Markup) -> Markup {
    html! {
        div.notice.problem role="note" {
            strong { @if *is_alarm { "Alarm of " } (about) } " since " time datetime=(since) { (shape::clock(since)) " UTC" }
            @match text {
                Some(text) => { pre { (text) } },
                None => { ": operators see more" },
            }
            (form)
        }
    }
}

fn said(notice: &Result<String, String>) -> Markup {
    match notice {
        Ok(done) => html! { p.notice role="status" { (done) } },
        Err(problem) => html! { p.notice.problem role="alert" { (problem) } },
    }
}

// The state in one sentence at the top of the page, with possible actions as the first buttons.

fn summary_section(document: &Document, token: Option<&str>) -> Markup {
    html! {
        section.summary aria-labelledby="summary" {
            h2.unseen #summary { "In short" }
            p.sentence { (sentence(document)) }
            @if let Some(token) = token {
                @let steps = steps(document);
                @if !steps.is_empty() {
                    div.buttons { @for step in &steps { (button(step, token)) } }
                }
            }
        }
    }
}

fn button(step: &NextAction<'_>, token: &str) -> Markup {
    match step {
        NextAction::LookUp(policy, offender) => by_reference(
            token,
            &offender.reference,
            &[("look-up", format!("look up {}", offender.key))],
            &format!("most refused by {}", policy.name),
        ),
        NextAction::Tighten(policy, tighter) => policies::at_once(policy, tighter, token),
        NextAction::Withdraw(policy) => policies::end(policy, token),
    }
}

// The state of the stores: a summary at the head of the page, and the details below.

fn stores_section(stores: &[StoreSnapshot]) -> Markup {
    html! {
        section aria-labelledby="stores" {
            h2 #stores { "Stores, since the start" }
            ul.stores {
                @for store in stores { (store_item(store)) }
            }
        }
    }
}

/// Writes `store redis: OK, 99 of 100 answers within 0.4 ms · 812 keys that have spent something, room for 187,000`; while it is away, the
/// time of its last answer.
fn in_short(store: &StoreSnapshot) -> Markup {
    let StoreSnapshot { name, state, breaker, .. } = store;
    let is_ok = *state == StoreState::Ok;
    html! {
        "store " strong { (name) } ": "
        @match state {
            StoreState::Ok => { span.state.ok { "OK" } },
            StoreState::Fallback => { span.state.outage { "in fallback" } },
            _ => { span.state { "down" } },
        }
        @match breaker {
            BreakerState::Closed => {},
            BreakerState::Open => { ", breaker open: it is not asked" },
            BreakerState::HalfOpen => { ", breaker half open: it is asked on trial" },
        }
        @if let Some(at) = store.answered_at.filter(|_| !is_ok) { ", last answer at " (shape::time_of_day(at)) " UTC" }
        @if let Some(p99) = store.p99 {
            @if is_ok { ", " } @else { ", until then " }
            "99 of 100 answers within " (shape::millis_of(p99))
        }
        @if store.slots > 0 {
            " · " (shape::counted(store.keys as u64, "key that has", "keys that have")) " spent something, room for " (shape::count(store.slots))
        }
    }
}

/// The counts of a store.
fn store_item(store: &StoreSnapshot) -> Markup {
    let StoreSnapshot { name, errors, undecided, .. } = store;
    let failed = errors.timeout + errors.unavailable + errors.protocol;
    html! {
        li {
            strong { (name) } ": " (shape::counted(failed, "call", "calls")) " without an answer"
            @if failed > 0 {
                " (" (shape::count(errors.timeout)) " not in time, " (shape::count(errors.unavailable)) " not reached, "
                (shape::count(errors.protocol)) " unreadable)"
            }
            " · its breaker has opened " (shape::counted(store.opened, "time", "times"))
            @if store.fallback_decisions > 0 || !store.in_fallback.is_zero() {
                " · " (shape::counted(store.fallback_decisions, "decision", "decisions")) " without it in "
                (shape::span(store.in_fallback.as_secs()))
            }
            @if store.unsettled_keys > 0 {
                " · " (shape::counted(store.unsettled_keys as u64, "key", "keys")) " whose spending " (name) " has not been told yet"
            }
            @if store.slots > 0 { " · " (shape::counted(store.evictions, "key", "keys")) " forgotten for lack of room" }
            @if !undecided.is_empty() {
                " · requests that it was not asked about: "
                @for (place, (why, count)) in undecided.iter().enumerate() {
                    @if place > 0 { ", " }
                    (shape::count(count)) " " (why.as_str().replace('_', " "))
                }
            }
        }
    }
}

// The last events of all stores, as this instance saw them.

fn events_section(events: &[Happened]) -> Markup {
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
    let Happened { at, until, what, by, policy, key, room, from, to, outage } = event;
    html! {
        li {
            time datetime=(at) { (shape::clock(at)) } " "
            @if let Some(by) = by { (by) ": " }
            (what.replace('_', " "))
            @if let Some(name) = policy.as_ref().or(room.as_ref()) { " " strong { (name) } }
            @if let Some(key) = key { " " span.key { (key) } }
            @match until {
                Some(until) => { " until " time datetime=(until) { (shape::clock(until)) } },
                None if outage.is_some() => { ", which lasts" },
                None => {},
            }
            @if let Some(from) = from { " " (from) }
            @if let Some(to) = to { @if outage.is_some() { ": " } @else { " → " } (to) }
            @if let Some(counts) = outage { (counted(counts)) }
            // An override replaces a policy in this way.
            @if by.is_some() && *what == "quota_changed" { ", spent is kept" }
        }
    }
}

/// Writes `; 240 decisions without the store; it was told of 8 keys, and 2 are left`.
fn counted(counts: &OutageCounts) -> Markup {
    html! {
        "; " (shape::counted(counts.decisions, "decision", "decisions")) " without the store"
        @if let Some(left) = counts.left {
            "; then it was told of " (shape::counted(counts.charged as u64, "key", "keys")) " that had spent meanwhile"
            @if left > 0 { ", and " (shape::count(left)) " are left" }
        }
    }
}
