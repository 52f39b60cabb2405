//! The keys that were refused most, and those that ask most.
//!
//! Each key has its actions beside it. The form behind a button carries a sealed word and never the key.

use maud::{Markup, html};

use super::forms;
use crate::document::{AskerShown, OffenderShown, PolicyStatus, number};

/// The number of keys that are shown of each kind; the JSON has all of them.
const MOST: usize = 10;

pub(super) fn section(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    let is_listed =
        |policy: &&PolicyStatus| !policy.offenders.is_empty() || policy.crowd || !policy.askers.is_empty();
    html! {
        section aria-labelledby="offenders" {
            h2 #offenders { "Most refused keys, last 10 minutes" }
            @if !policies.iter().any(|policy| is_listed(&policy)) { p { "No key was refused." } }
            @for policy in policies.iter().filter(is_listed) {
                h3 { (policy.name) }
                @if !policy.offenders.is_empty() {
                    ol.offenders {
                        @for offender in policy.offenders.iter().take(MOST) { (item(policy, offender, token)) }
                    }
                }
                @if policy.crowd { p.note { "Many keys were refused a few times each; of these none stands out." } }
                @if !policy.askers.is_empty() { (asking(&policy.askers)) }
            }
        }
    }
}

fn item(policy: &PolicyStatus, offender: &OffenderShown, token: Option<&str>) -> Markup {
    let mut buttons = vec![("look-up", "look up".to_owned())];
    if policy.suspends {
        buttons.extend(["suspend", "release"].map(|verb| (verb, verb.to_owned())));
    }
    html! {
        li {
            (key(offender.kind, &offender.key))
            " refused " span.number { (number::count(offender.rejected)) }
            @if offender.error > 0 { " (at most " (number::count(offender.error)) " too high)" }
            " " (if offender.rejected == 1 { "time" } else { "times" }) ", " (number::percent(offender.share)) " of all refusals"
            @if let Some(until) = &offender.suspended_until {
                " · suspended until " time datetime=(until) { (number::clock(until)) " UTC" }
            }
            @if let Some(token) = token.filter(|_| offender.is_known) {
                (forms::by_reference(token, &offender.reference, &buttons, &format!("{} of {}", offender.key, policy.name)))
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
                (key(asker.kind, &asker.key)) " asked about " (number::counted(asker.asked, "time", "times")) ", "
                (number::percent(asker.remaining)) " of its quota left"
            }
        }
    }
}

fn key(kind: &str, key: &str) -> Markup {
    html! { span.key { @if kind == "digest" { "digest " } (key) } }
}
