//! To tighten the policy of an alarm, and to end that: forms at the alarm itself, and the same as one button at the top of the page.

use maud::{Markup, html};

use super::forms::{hidden, withdraw, written};
use crate::document::{PolicyStatus, Tighter};

/// The form at an alarm: to a number, for a time. Where the policy is changed already, the button that ends it.
pub(super) fn at_alarm(policy: &PolicyStatus, token: &str) -> Markup {
    let name = &policy.name;
    if policy.over.is_some() {
        return end(policy, token);
    }
    let (quota, lasts) =
        policy.tighter.as_ref().map_or(("", "30min"), |Tighter { quota, lasts }| (quota, lasts));
    html! {
        form.tighten method="post" {
            (hidden("token", token))
            (hidden("policy", name))
            div.fields {
                (written(&format!("tighten-{name}"), "quota", "tighten it to this quota", quota))
                (written(&format!("tighten-for-{name}"), "for", "for how long", lasts))
            }
            button name="do" value="change" { "tighten " (name) " now" }
        }
    }
}

/// One button that tightens the policy to the suggested numbers.
pub(super) fn at_once(policy: &PolicyStatus, Tighter { quota, lasts }: &Tighter, token: &str) -> Markup {
    let name = &policy.name;
    html! {
        form.buttons method="post" {
            (hidden("token", token))
            (hidden("policy", name))
            (hidden("quota", quota))
            (hidden("for", lasts))
            button name="do" value="change" { "tighten " (name) " to " (quota) " for " (lasts) }
        }
    }
}

/// The button that ends the change of a policy, if there is one.
pub(super) fn end(policy: &PolicyStatus, token: &str) -> Markup {
    let name = &policy.name;
    html! { @if let Some(over) = &policy.over { (withdraw(token, (name, over.version), &format!("end the change of {name}"))) } }
}
