//! Tightening the policy of an alarm, and ending that: forms at the alarm itself, and one button at the top of the page.

use maud::{Markup, html};

use super::forms::{hidden, withdraw, written};
use crate::document::{PolicyStatus, Tighter};

/// The form at an alarm, for a quota and a time. If the policy is already changed, the button that ends the change.
pub(super) fn at_alarm(policy: &PolicyStatus, token: &str) -> Markup {
    let name = &policy.name;
    if policy.over.is_some() {
        return end(policy, token);
    }
    let (quota, lasts, keys) = policy
        .tighter
        .as_ref()
        .map_or(("", "30min", ""), |tighter| (&tighter.quota, &tighter.lasts, keys(tighter)));
    html! {
        form.tighten method="post" {
            (hidden("token", token))
            (hidden("policy", name))
            (hidden("keys", keys))
            div.fields {
                (written(&format!("tighten-{name}"), "quota", "tighten it to this quota", quota))
                (written(&format!("tighten-for-{name}"), "for", "for how long", lasts))
            }
            button name="do" value="change" { "tighten " (name) @if !keys.is_empty() { " for new keys" } " now" }
        }
    }
}

/// One button that tightens the policy to the suggested numbers.
pub(super) fn at_once(policy: &PolicyStatus, tighter: &Tighter, token: &str) -> Markup {
    let (name, Tighter { quota, lasts, of_new_keys }) = (&policy.name, tighter);
    html! {
        form.buttons method="post" {
            (hidden("token", token))
            (hidden("policy", name))
            (hidden("quota", quota))
            (hidden("for", lasts))
            (hidden("keys", keys(tighter)))
            button name="do" value="change" {
                "tighten " (name) @if *of_new_keys { " for new keys" } " to " (quota) " for " (lasts)
            }
        }
    }
}

/// The word for new keys, if it applies only to them.
fn keys(tighter: &Tighter) -> &'static str {
    if tighter.of_new_keys { "new" } else { "" }
}

/// The button that ends the change of a policy, if there is one.
pub(super) fn end(policy: &PolicyStatus, token: &str) -> Markup {
    let name = &policy.name;
    html! { @if let Some(over) = &policy.over { (withdraw(token, (name, over.version), &format!("end the change of {name}"))) } }
}
