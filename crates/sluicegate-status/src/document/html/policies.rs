//! The policies, a row each.
//!
//! A refusal of a policy in shadow mode stands in brackets, because nobody was refused. The last hour is twelve bars of five minutes; the
//! last bar includes the current minute. Allowed and rejected have one scale, and each policy has its own.

use maud::{Markup, html};

use super::forms::{field, hidden};
use super::number;
use crate::document::{MinuteShown, OverrideShown, PolicyStatus};

/// The number of bars of an hour.
const BARS: usize = 12;

pub(super) fn section(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    html! {
        section aria-labelledby="policies" {
            h2 #policies { "Policies" }
            @if policies.is_empty() {
                p { "No policy is open yet." }
            } @else {
                table {
                    thead {
                        tr {
                            th scope="col" { "policy" }
                            th scope="col" { "quota" }
                            th.number scope="col" { "allowed a second" }
                            th.number scope="col" { "rejected a second" }
                            th.number scope="col" { "waiting" }
                            th scope="col" { "last hour: allowed, rejected" }
                            th.number scope="col" { "near" }
                            th.number scope="col" { "suspended" }
                            @if token.is_some() { th scope="col" { "change" } }
                        }
                    }
                    tbody {
                        @for policy in policies { (row(policy, token)) }
                    }
                }
                @if let Some(token) = token { (all_to_shadow(token)) }
            }
        }
    }
}

fn row(policy: &PolicyStatus, token: Option<&str>) -> Markup {
    let quotas: Vec<&str> = policy.quotas.iter().map(|quota| &*quota.text).collect();
    let rejected = number::rate(policy.per_second.rejected);
    html! {
        tr {
            th scope="row" { (policy.name) }
            td data-label="quota" {
                span {
                    (quotas.join(", "))
                    @if policy.mode != "enforce" { " " span.mode { "(" (policy.mode) ")" } }
                    @if policy.hidden { " " span.mode { "(hidden)" } }
                    " " small { (policy.algorithm) }
                    @if let Some(over) = &policy.over { (overridden(over)) }
                    @if policy.key_quotas > 0 { " " small { (number::count(policy.key_quotas)) " quotas of keys" } }
                    @if policy.key_quotas_refused > 0 {
                        " " span.over { (number::count(policy.key_quotas_refused)) " times another quota of a key was refused: 65,535 are in use" }
                    }
                }
            }
            td.number data-label="allowed a second" { (number::rate(policy.per_second.allowed + policy.per_second.delayed)) }
            td.number data-label="rejected a second" {
                // Nobody was refused by a policy in shadow.
                @if policy.mode == "shadow" { "(" (rejected) ")" } @else { (rejected) }
            }
            td.number data-label="waiting" { (number::count(policy.waiting)) }
            td data-label="last hour" {
                span { (bars(policy)) }
            }
            td.number data-label="near" { (number::percent(policy.near_share)) }
            td.number data-label="suspended" { (number::count(policy.suspended_seen)) }
            @if let Some(token) = token { td.change { (change(policy, token)) } }
        }
    }
}

/// The override that an operator has put on it.
fn overridden(over: &OverrideShown) -> Markup {
    html! {
        " " span.over {
            "by " (over.by) " until " time datetime=(over.until) { (number::clock(&over.until)) " UTC" }
            ", then " (over.own_quotas.join(", ")) " (" (over.own_mode) ")"
            @if !over.shared { "; this instance only" }
        }
    }
}

/// A form that opens without a script. An empty field leaves the policy unchanged, so that a quota can be changed without naming the mode
/// again.
fn change(policy: &PolicyStatus, token: &str) -> Markup {
    let PolicyStatus { name, over, .. } = policy;
    let quotas: Vec<&str> = policy.quotas.iter().map(|quota| &*quota.text).collect();
    html! {
        details {
            summary aria-label={ "change " (name) } { "change" }
            form method="post" {
                (hidden("token", token))
                (hidden("policy", name))
                @if let Some(over) = over { (hidden("version", &over.version.to_string())) }
                (field(&format!("quota-{name}"), "quota", "quota, or several with commas", &quotas.join(", ")))
                div.field {
                    label for={ "mode-" (name) } { "mode" }
                    select id={ "mode-" (name) } name="mode" {
                        option value="" { "as it is" }
                        @for mode in ["enforce", "shadow", "off"] { option { (mode) } }
                    }
                }
                (field(&format!("for-{name}"), "for", "for how long", "1h"))
                div.buttons {
                    button name="do" value="change" aria-label={ "change " (name) " now" } { "change" }
                    @if over.is_some() {
                        button name="do" value="withdraw" aria-label={ "withdraw the change of " (name) } { "withdraw" }
                    }
                }
            }
        }
    }
}

/// One button for all policies, which has to be confirmed.
fn all_to_shadow(token: &str) -> Markup {
    html! {
        details {
            summary { "all to shadow" }
            form.confirm method="post" {
                (hidden("token", token))
                p { "Every policy is then only tried out: it counts, and refuses nobody." }
                p {
                    input #confirm type="checkbox" name="confirm" value="yes" required;
                    " " label for="confirm" { "I mean all policies" }
                }
                (field("for-all", "for", "for how long", "1h"))
                button name="do" value="all-to-shadow" { "all to shadow" }
            }
        }
    }
}

/// The hour in steps of five minutes.
fn bars(policy: &PolicyStatus) -> Markup {
    let hour: Vec<&MinuteShown> = policy.minutes.iter().skip(1).chain([&policy.minute]).collect();
    let step = hour.len().div_ceil(BARS);
    let sums = |count: fn(&MinuteShown) -> u64| -> Vec<u64> {
        hour.chunks(step).map(|part| part.iter().map(|minute| count(minute)).sum()).collect()
    };
    let rows = [("allowed", sums(|minute| minute.allowed)), ("rejected", sums(|minute| minute.rejected))];
    let highest = rows.iter().flat_map(|(_, sums)| sums).copied().max().unwrap_or_default();
    html! {
        @for (what, sums) in &rows {
            @let label = format!("{what} in the last hour, the oldest first: {}", number::row(sums));
            span class={ "bars " (what) } role="img" aria-label=(label) title=(label) { (number::bars(sums, highest)) }
        }
    }
}
