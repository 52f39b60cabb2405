//! Forms to look up a key, and its status.
//!
//! The forms are posted, and come back empty: typed text is in no address, in no history and not on the answer.

use maud::{Markup, html};

use crate::document::look_up::{KeyStatus, LookedUp, QuotaStanding, StrikesStanding};
use crate::document::{GivenQuotas, PolicyStatus, shape};

pub(super) fn section(policies: &[PolicyStatus], limits: &[&str], token: &str) -> Markup {
    html! {
        section aria-labelledby="look-up" {
            h2 #look-up { "Look up a key" }
            @if !limits.is_empty() { (by_request(limits, token)) }
            @if !policies.is_empty() { (by_key(policies, token)) }
        }
    }
}

/// Looks up by a request, whose keys the extractors find.
fn by_request(limits: &[&str], token: &str) -> Markup {
    html! {
        form.look-up method="post" {
            h3 { "as a request" }
            (hidden("token", token))
            div.fields {
                div.field {
                    label for="limits" { "limits" }
                    select #limits name="request.limits" {
                        @for name in limits { option value=(name) { (name) } }
                    }
                }
                div.field {
                    label for="method" { "method" }
                    select #method name="request.method" {
                        @for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] { option { (method) } }
                    }
                }
                (field("path", "request.path", "path", "/"))
                (field("peer", "request.peer", "peer address", "192.0.2.1"))
                div.field.wide {
                    label for="headers" { "header fields, one in a line" }
                    textarea #headers name="request.headers" rows="2" placeholder="x-api-key: …" autocomplete="off" spellcheck="false" {}
                }
            }
            button name="do" value="look-up" { "Look the request up" }
        }
    }
}

/// Looks up by the key itself.
fn by_key(policies: &[PolicyStatus], token: &str) -> Markup {
    html! {
        form.look-up method="post" {
            h3 { "as a key" }
            (hidden("token", token))
            div.fields {
                div.field {
                    label for="policy" { "policy" }
                    select #policy name="policy" {
                        @for policy in policies { option { (policy.name) } }
                    }
                }
                (field("key", "key", "key", "192.0.2.1"))
                div.field {
                    label for="as" { "read it as" }
                    select #as name="as" {
                        option value="any" { "an address, else text" }
                        option value="text" { "text" }
                        option value="number" { "a number" }
                        option value="secret" { "an API key, token or cookie" }
                        option value="subject" { "the subject of a token" }
                    }
                }
                (field("issuer", "issuer", "issuer of the token", "https://login.example.com"))
            }
            button name="do" value="look-up" { "Look the key up" }
        }
    }
}

/// The status of a key, and the actions on it.
pub(super) fn found(found: &LookedUp, token: Option<&str>) -> Markup {
    html! {
        section.found aria-labelledby="found" {
            h2 #found { "Looked up" }
            p {
                @match &found.key {
                    Some(key) => { span.key { (key) } },
                    None => { "The request" },
                }
                " " (found.would_be) "."
            }
            ul {
                @for standing in &found.limits { (stands(standing, token)) }
            }
        }
    }
}

fn stands(standing: &KeyStatus, token: Option<&str>) -> Markup {
    html! {
        li {
            strong { (standing.limit) }
            @if let Some(policy) = standing.policy.as_deref().filter(|policy| *policy != standing.limit) { " (" (policy) ")" }
            @if let Some(tier) = &standing.tier { ", tier " (tier) }
            @if let Some(key) = &standing.key { " for " span.key { (key) } }
            ": "
            @if let Some(why) = &standing.not_asked { "not asked: " (why) }
            @else if standing.quotas.is_empty() { "the store gives no answer" }
            @for (index, quota) in standing.quotas.iter().enumerate() {
                @if index > 0 { "; " }
                (quota.label) ": " (stands_at(quota))
            }
            @if let Some(refused) = standing.refused {
                "; refused here " (shape::counted(refused, "time", "times")) " in the last 10 minutes, when it asked for more than the policy had left for it"
            }
            @if let Some(strikes) = &standing.strikes { "; " (struck(strikes)) }
            @if let Some(note) = standing.note { " (" (note) ")" }
            @if let (Some(token), Some(reference), Some(policy)) = (token, &standing.reference, &standing.policy) {
                (by_reference(token, reference, &buttons(standing.suspends_for), policy))
                (give(standing, policy, (token, reference)))
            }
        }
    }
}

/// The form that gives the key quotas of its own for a time, or the button that ends that.
fn give(standing: &KeyStatus, policy: &str, (token, reference): (&str, &str)) -> Markup {
    html! {
        @if let Some(GivenQuotas { quotas, by, until, version }) = &standing.given {
            p {
                "This key alone has " (quotas.join(", ")) " by " (by) " until " time datetime=(until) { (shape::clock(until)) " UTC" } ". "
                (withdraw(token, (policy, *version), "end its quotas"))
            }
        } @else if let Some(twice) = &standing.twice {
            form.give method="post" {
                (hidden("token", token))
                (hidden("ref", reference))
                div.fields {
                    (written(&format!("give-{policy}"), "quota", "give this key alone this quota", twice))
                    (written(&format!("give-for-{policy}"), "for", "for how long", "1h"))
                }
                button name="do" value="give" { "give it now" }
            }
        }
    }
}

fn buttons(suspends_for: Option<u64>) -> Vec<(&'static str, String)> {
    let mut all = vec![("reset", "reset".to_owned())];
    if let Some(seconds) = suspends_for {
        all.push(("suspend", format!("suspend for {}", shape::wait(seconds))));
        all.push(("release", "release".to_owned()));
    }
    all
}

/// Writes `strikes 31 of 100, suspended 2 times before`.
fn struck(StrikesStanding { counted, of, suspensions }: &StrikesStanding) -> Markup {
    html! {
        "strikes " (shape::count(counted)) " of " (shape::count(of))
        @match suspensions {
            0 => {},
            1 => { ", suspended once before" },
            times => { ", suspended " (shape::count(times)) " times before" },
        }
    }
}

/// Writes `0 of 5 left, back in 44 s`.
fn stands_at(quota: &QuotaStanding) -> Markup {
    html! {
        (shape::count(quota.remaining)) " of " (shape::count(quota.capacity)) " left"
        @if quota.suspended { ", suspended" }
        @if let Some(back) = quota.back_seconds { ", back in " (shape::wait(back)) }
        @else if quota.reset_seconds > 0 { ", all of it in " (shape::wait(quota.reset_seconds)) }
    }
}

// The common parts of the page's forms. They are sent to the address of the page, with its query, so that the chosen colours stay, and
// each carries the token.

/// A form whose buttons act on a key that only a word stands for. Screen readers hear `whose` with each button.
pub(super) fn by_reference(token: &str, reference: &str, buttons: &[(&str, String)], whose: &str) -> Markup {
    html! {
        form.buttons method="post" {
            (hidden("token", token))
            (hidden("ref", reference))
            @for (verb, text) in buttons {
                button name="do" value=(verb) aria-label={ (text) ": " (whose) } { (text) }
            }
        }
    }
}

pub(super) fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

/// A field with its label. Browsers neither keep its text nor show it again.
pub(super) fn field(id: &str, name: &str, label: &str, hint: &str) -> Markup {
    html! {
        div.field {
            label for=(id) { (label) }
            input #(id) name=(name) placeholder=(hint) autocomplete="off" spellcheck="false";
        }
    }
}

/// A field that has a text already, to be sent as it is or changed.
pub(super) fn written(id: &str, name: &str, label: &str, text: &str) -> Markup {
    html! {
        div.field {
            label for=(id) { (label) }
            input #(id) name=(name) value=(text) required autocomplete="off" spellcheck="false";
        }
    }
}

/// The button that ends the override of this version.
pub(super) fn withdraw(token: &str, (policy, version): (&str, u64), text: &str) -> Markup {
    html! {
        form.buttons method="post" {
            (hidden("token", token))
            (hidden("policy", policy))
            (hidden("version", &version.to_string()))
            button name="do" value="withdraw" { (text) }
        }
    }
}
