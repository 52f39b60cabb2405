//! Keys: forms to look one up, its status, and the lists of those that are refused and that ask most.
//!
//! The forms are posted, and come back empty: typed text is in no address, in no history and not on the answer.

use maud::{Markup, html};

use crate::document::html::parts::{by_reference, field, hidden, withdraw, written};
use crate::document::look_up::{KeyStatus, LookedUp, QuotaStanding, StrikesStanding};
use crate::document::{AskerShown, GivenQuotas, OffenderShown, PolicyStatus, shape};

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

// The keys that were refused most, and those that ask most.
//
// Each key has its actions beside it. The form behind a button carries a sealed word and never the key.

/// The number of keys that are shown of each kind; the JSON has all of them.
const MOST: usize = 10;

pub(super) fn offenders_section(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    let is_listed =
        |policy: &&PolicyStatus| !policy.offenders.is_empty() || policy.crowd || !policy.askers.is_empty();
    let has_digest = |policy: &PolicyStatus| {
        let kinds =
            policy.offenders.iter().map(|key| key.kind).chain(policy.askers.iter().map(|key| key.kind));
        kinds.into_iter().any(|kind| kind == "digest")
    };
    html! {
        section aria-labelledby="offenders" {
            h2 #offenders { "Most refused keys, last 10 minutes" }
            @if !policies.iter().any(|policy| is_listed(&policy)) { p { "No key was refused." } }
            @if token.is_some() && policies.iter().any(has_digest) {
                p.note { "A digest stands for a key that may be a secret. If it is a name, let its extractor say so by of_kind(KeyKind::Name): then it is shown here." }
            }
            @for policy in policies.iter().filter(is_listed) {
                h3 { (policy.name) }
                @if !policy.offenders.is_empty() {
                    ol.offenders {
                        @for offender in policy.offenders.iter().take(MOST) { (offender_item(policy, offender, token)) }
                    }
                }
                @if policy.crowd { p.note { "Many keys were refused a few times each; of these none stands out." } }
                @if !policy.askers.is_empty() { (asking(&policy.askers)) }
            }
        }
    }
}

fn offender_item(policy: &PolicyStatus, offender: &OffenderShown, token: Option<&str>) -> Markup {
    let mut buttons = vec![("look-up", "look up".to_owned())];
    if policy.suspends {
        buttons.extend(["suspend", "release"].map(|verb| (verb, verb.to_owned())));
    }
    html! {
        li {
            (key(offender.kind, &offender.key))
            " refused " span.number { (shape::count(offender.rejected)) }
            @if offender.error > 0 { " (at most " (shape::count(offender.error)) " too high)" }
            " " (if offender.rejected == 1 { "time" } else { "times" }) ", " (shape::percent(offender.share)) " of all refusals"
            @if let Some(until) = &offender.suspended_until {
                " · suspended until " time datetime=(until) { (shape::clock(until)) " UTC" }
            }
            @if let Some(token) = token.filter(|_| offender.is_known) {
                (by_reference(token, &offender.reference, &buttons, &format!("{} of {}", offender.key, policy.name)))
            }
        }
    }
}

/// Lists the keys that ask most, because slow abuse below the limit is never refused.
fn asking(askers: &[AskerShown]) -> Markup {
    html! {
        p.note {
            "Keys that ask most: "
            @for (index, asker) in askers.iter().take(MOST).enumerate() {
                @if index > 0 { "; " }
                (key(asker.kind, &asker.key)) " asked about " (shape::counted(asker.asked, "time", "times")) ", "
                (shape::percent(asker.remaining)) " of its quota left"
            }
        }
    }
}

fn key(kind: &str, key: &str) -> Markup {
    html! { span.key { @if kind == "digest" { "digest " } (key) } }
}
