//! The keys that are nearest to the end of their budgets, a row each. Without any, the section is left out.
//!
//! A bar is a `meter`, which browsers draw without our style and read out with its name.

use maud::{Markup, html};

use super::forms;
use crate::document::{BudgetShown, PolicyStatus, number};

/// The number of keys that are shown of each policy; the JSON has all of them.
const MOST: usize = 10;

/// The part from which a bar has another colour: that of the warning before the last.
const HIGH: f64 = 0.8;

pub(super) fn section(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    html! {
        @if policies.iter().any(|policy| !policy.budgets.is_empty()) {
            section aria-labelledby="budgets" {
                h2 #budgets { "Budgets: the keys nearest to the end" }
                table {
                    thead {
                        tr {
                            th scope="col" { "policy and key" }
                            th scope="col" { "used" }
                            th.number scope="col" { "units" }
                            th scope="col" { "period ends" }
                            th scope="col" { "used up at this pace" }
                            @if token.is_some() { th scope="col" { "look up" } }
                        }
                    }
                    tbody {
                        @for policy in policies {
                            @for budget in policy.budgets.iter().take(MOST) { (row(policy, budget, token)) }
                        }
                    }
                }
                p.note { "Of the limit, reserved units among them. The pace is that of the period so far. Times are UTC." }
            }
        }
    }
}

fn row(policy: &PolicyStatus, budget: &BudgetShown, token: Option<&str>) -> Markup {
    let BudgetShown { key, kind, used, limit, until, .. } = budget;
    let part = budget.part();
    let whose = format!("{key} of {}", policy.name);
    html! {
        tr {
            th scope="row" {
                (policy.name) " " span.key { @if *kind == "digest" { "digest " } (key) }
                @if policy.quotas.len() > 1 { " " small { (budget.label) } }
            }
            td data-label="used" {
                span {
                    meter min="0" max="1" value=(format!("{part:.4}")) high=(HIGH) optimum="0"
                        aria-label={ "used by " (whose) } {}
                    " " (number::percent_down(part))
                }
            }
            td.number data-label="units" { (number::count(used)) " of " (number::count(limit)) }
            td data-label="period ends" { time datetime=(until) { (number::minute(until)) } }
            td data-label="used up at this pace" {
                @match &budget.used_up_at {
                    _ if used >= limit => { strong.state { "used up" } },
                    Some(at) => { time datetime=(at) { (number::minute(at)) } },
                    None => { "lasts" },
                }
            }
            @if let Some(token) = token {
                td data-label="look up" {
                    @if budget.is_known {
                        (forms::by_reference(token, &budget.reference, &[("look-up", "look up".to_owned())], &whose))
                    }
                }
            }
        }
    }
}
