//! The frame of the page: [`page`].
//!
//! From top to bottom it follows the questions of an operator on call: a summary in one sentence, with the first steps; whether the store is the
//! cause, which policy refuses, which keys, and what to do. The result of a form is at the very top, where the browser begins to read.

use http::Uri;
use maud::{DOCTYPE, Markup, html};

use super::{
    adaptive, budgets, events, look_up, offenders, policies, rooms, shared, stores, summary, tighten,
};
use crate::document::{Document, LookedUp, NoticeShown, number};

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
                    (summary::section(look.document, look.token))
                    @for (place, notice) in look.document.notices.iter().enumerate() {
                        (put(notice, at_alarm(look, place)))
                    }
                    (stores::section(&look.document.stores))
                    (policies::section(policies, look.token))
                    (budgets::section(policies, look.token))
                    (adaptive::section(&look.document.adaptive))
                    (shared::section(&look.document.shared))
                    (rooms::section(&look.document.rooms, look.token))
                    (offenders::section(policies, look.token))
                    @if let Some(token) = look.token { (look_up::section(policies, look.limits, token)) }
                    (events::section(&look.document.events))
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
                strong { (instance) } " · up for " (number::span(*uptime_seconds)) " · now " time datetime=(at) { (number::clock(at)) " UTC" }
                " · " @match look.operator {
                    Some(name) => { "signed in as " (name) },
                    None => { "read-only: nobody is signed in, so keys are shown as digests" },
                }
            }
            @for store in stores { p { (stores::in_short(store)) } }
            nav aria-label="colours" {
                @for (theme, word) in [(Theme::Light, "light"), (Theme::Dark, "dark")] {
                    a href={ "?theme=" (word) } aria-current=[(look.theme == theme).then_some("true")] { (word) }
                }
            }
            p.note { "Numbers are those of this instance, and times are UTC. Look-ups are answered by the store." }
        }
    }
}

/// The form at an alarm, once for each policy.
fn at_alarm(look: &Look<'_>, place: usize) -> Markup {
    let notices = &look.document.notices;
    let is_alarm_of = |notice: &NoticeShown| notice.is_alarm && notice.about == notices[place].about;
    let is_first = notices.iter().position(is_alarm_of) == Some(place);
    let policy = look.document.policies.iter().find(|policy| is_first && policy.name == notices[place].about);
    html! { @if let (Some(policy), Some(token)) = (policy, look.token) { (tighten::at_alarm(policy, token)) } }
}

/// An alarm or a notice of the application, with the form to act on it.
fn put(NoticeShown { about, since, text, is_alarm }: &NoticeShown, form: Markup) -> Markup {
    html! {
        div.notice.problem role="note" {
            strong { @if *is_alarm { "Alarm of " } (about) } " since " time datetime=(since) { (number::clock(since)) " UTC" }
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
