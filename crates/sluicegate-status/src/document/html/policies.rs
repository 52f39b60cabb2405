//! The policies, a row each.
//!
//! Refusals of a policy in shadow mode are marked "if it were enforced", because no request was refused. The last hour
//! is thirty bars of two minutes, refused on top of allowed; the last bar includes the current minute, and each policy has its own scale.

use maud::{Markup, PreEscaped, html};
use sluicegate_observed::Minute;
use sluicegate_plots::{Bars, Table};

use crate::document::html::parts::{by_reference, field, hidden, withdraw, written};
use crate::document::{BudgetShown, GivenQuotas, GivenShown, OverrideShown, PolicyStatus, Tighter, shape};

/// The number of minutes that a bar of the hour covers.
const STEP: usize = 2;

pub(super) fn policies_section(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    html! {
        section aria-labelledby="policies" {
            h2 #policies { "Policies" }
            @if policies.is_empty() {
                p { "No policy is open yet." }
            } @else {
                (policies_table(policies, token))
                @if let Some(token) = token { (all_to_shadow(token)) }
            }
        }
    }
}

fn policies_table(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    Table::of(policies)
        .text("policy", |policy| html! { (policy.name) })
        .text("quota", |policy| quota(policy, token))
        .meaning(
            "The limit per period for each key, and the algorithm that counts it. In shadow, a policy counts and refuses nothing.",
        )
        .number("let in per second", |policy| html! { (shape::rate(policy.allowed())) })
        .meaning(
            "Requests that this policy and all others of the request let in, as the mean of the last ten seconds. A request that asks several policies is in the row of each, so the column has no sum.",
        )
        .number("refused per second", |policy| refused(policy))
        .meaning(
            "Requests that this policy refused, as the mean of the last ten seconds. Below: those of them that it refused only because the store did not answer; and requests for which it had room, but which another policy refused.",
        )
        .number("waiting for a turn", |policy| html! { (shape::count(policy.waiting)) })
        .meaning("Requests that are held back now until their turn comes.")
        .plots("last hour", |policy| bars(&policy.name, policy.is_shadow(), &policy.hour().collect::<Vec<_>>()))
        .meaning(
            "Requests of each two minutes: let in, refused by this policy, by another one, and for an outage of the store. The scale is that of the policy, and the last bar has the current minute.",
        )
        .number("close to the limit", |policy| html! { (shape::percent(policy.near_share)) })
        .meaning(
            "The part of the requests let in during the last hour that left their key less than a fifth of its quota.",
        )
        .number("suspended keys", |policy| html! { (shape::count(policy.suspended_seen)) })
        .meaning(
            "Keys that were refused in the last minute because they are suspended: after too many refusals, or by an operator.",
        )
        .forms("change for a time", token, |policy, token| change(policy, token))
        .draw()
}

/// The quotas in force, and everything that changes them.
fn quota(policy: &PolicyStatus, token: Option<&str>) -> Markup {
    html! {
        span {
            (policy.quotas())
            @if policy.mode != "enforce" { " " span.mode { "(" (policy.mode) ")" } }
            @if policy.hidden { " " span.mode { "(hidden from clients)" } }
            " " small { (policy.algorithm) }
            @if let Some(over) = &policy.over { (overridden(over)) }
            @for given in &policy.given { (given_to(policy, given, token)) }
            @if let Some(now) = &policy.in_outage { " " span.over { strong.state.outage { "now: " (now) } } }
            @if policy.key_quotas > 0 { " " small { (shape::counted(policy.key_quotas as u64, "other quota", "other quotas")) " of keys in use" } }
            @if policy.key_quotas_refused > 0 {
                " " span.over { (shape::count(policy.key_quotas_refused)) " times another quota of a key was refused: 65,535 are in use" }
            }
        }
    }
}

/// The refusals a second. A policy in shadow mode has refused no request.
fn refused(policy: &PolicyStatus) -> Markup {
    html! {
        span {
            (shape::rate(policy.refused()))
            @if policy.is_shadow() { " " small { "if it were enforced" } }
            @if policy.per_second.outage > 0.0 { " " small.outage { (shape::rate(policy.per_second.outage)) " by the outage" } }
            @if policy.per_second.other_refused > 0.0 {
                " " small { "another policy: " (shape::rate(policy.per_second.other_refused)) }
            }
        }
    }
}

/// The override that an operator has put on it.
fn overridden(over: &OverrideShown) -> Markup {
    html! {
        " " span.over {
            @if let Some(quotas) = &over.new_keys { "new keys have " (quotas.join(", ")) " " }
            "by " (over.by) " until " time datetime=(over.until) { (shape::clock(&over.until)) " UTC" }
            @if over.new_keys.is_none() { ", then " (over.own_quotas.join(", ")) " (" (over.own_mode) ")" }
            @if !over.shared { "; this instance only" }
        }
    }
}

/// The quotas that an operator has given to one key.
fn given_to(policy: &PolicyStatus, given: &GivenShown, token: Option<&str>) -> Markup {
    let GivenShown { key, given: GivenQuotas { quotas, by, until, version } } = given;
    html! {
        " " span.over {
            span.key { (key) } " alone has " (quotas.join(", ")) " by " (by) " until "
            time datetime=(until) { (shape::clock(until)) " UTC" }
            @if let Some(token) = token { (withdraw(token, (&policy.name, *version), &format!("end the quotas of {key}"))) }
        }
    }
}

/// A form that opens without a script. An empty field leaves the policy unchanged, so that a quota can be changed without naming the mode
/// again.
fn change(policy: &PolicyStatus, token: &str) -> Markup {
    let PolicyStatus { name, over, .. } = policy;
    html! {
        details {
            summary aria-label={ "change " (name) } { "change" }
            form method="post" {
                (hidden("token", token))
                (hidden("policy", name))
                @if let Some(over) = over { (hidden("version", &over.version.to_string())) }
                (field(&format!("quota-{name}"), "quota", "quota, or several with commas", &policy.quotas()))
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
            summary { "stop refusing: all policies" }
            form.confirm method="post" {
                (hidden("token", token))
                p { "Every policy is then in shadow mode: it counts requests and refuses none. Limits on requests at once still refuse." }
                p {
                    input #confirm type="checkbox" name="confirm" value="yes" required;
                    " " label for="confirm" { "I mean all policies" }
                }
                (field("for-all", "for", "for how long", "1h"))
                button name="do" value="all-to-shadow" { "stop refusing: all policies" }
            }
        }
    }
}

/// A number of a minute.
type CountOf = fn(&Minute) -> u64;

/// The hour in steps of two minutes. The refusals of others and of outages have a layer if there were any.
pub(super) fn bars(name: &str, is_shadow: bool, hour: &[&Minute]) -> Markup {
    let steps = || hour.chunks(STEP);
    let sums = |count: CountOf| steps().map(move |step| Some(step.iter().map(|minute| count(minute)).sum()));
    let layers: [(&str, &str, CountOf); 4] = [
        ("let in", "allowed", |minute| minute.allowed),
        (if is_shadow { "would be refused" } else { "refused" }, "rejected", |minute| minute.rejected),
        ("refused by another policy", "other", |minute| minute.other_refused),
        ("refused by the outage", "outage", |minute| minute.outage),
    ];
    let is_empty = |count: CountOf| hour.iter().all(|minute| count(minute) == 0);
    if layers.iter().all(|(_, _, count)| is_empty(*count)) {
        return html! { span { "no requests" } };
    }
    let marks = hour.first().into_iter().chain(hour.get(hour.len() / 2));
    let marks = marks.map(|minute| shape::hour_and_minute(minute.at)).chain(["now".to_owned()]);
    let plot = Bars::new(format!("requests of {name}"))
        .caption("per two minutes")
        .at(steps().filter_map(|step| step.first()).map(|minute| shape::hour_and_minute(minute.at)))
        .marks(marks);
    let shown =
        layers.into_iter().enumerate().filter(|(place, (_, _, count))| *place < 2 || !is_empty(*count));
    let plot = shown.fold(plot, |plot, (_, (name, color, count))| plot.layer(name, color, sums(count)));
    PreEscaped(plot.draw())
}

// The keys that are nearest to the end of their budgets, a row each. Without any, the section is left out.
//
// A bar is a `meter`, which browsers draw without our style and read out with its name.

/// The number of keys that are shown of each policy; the JSON has all of them.
const MOST: usize = 10;

/// The part from which a bar has another colour: that of the warning before the last.
const HIGH: f64 = 0.8;

pub(super) fn budgets_section(policies: &[PolicyStatus], token: Option<&str>) -> Markup {
    let budgets =
        policies.iter().flat_map(|policy| policy.budgets.iter().take(MOST).map(move |it| (policy, it)));
    let whose =
        |(policy, budget): &(&PolicyStatus, &BudgetShown)| format!("{} of {}", budget.key, policy.name);
    let mut table = Table::of(budgets)
        .text("policy and key", |(policy, budget)| {
            html! {
                (policy.name) " " span.key { @if budget.kind == "digest" { "digest " } (budget.key) }
                @if policy.quotas.len() > 1 { " " small { (budget.label) } }
            }
        })
        .text("used", |item| {
            let part = item.1.part();
            html! {
                span {
                    meter min="0" max="1" value=(format!("{part:.4}")) high=(HIGH) optimum="0"
                        aria-label={ "used by " (whose(item)) } {}
                    " " (shape::percent_down(part))
                }
            }
        })
        .number(
            "units",
            |(_, budget)| html! { (shape::count(budget.used)) " of " (shape::count(budget.limit)) },
        )
        .text("period ends", |(_, budget)| {
            html! { time datetime=(budget.until) { (shape::minute(&budget.until)) } }
        })
        .text("used up at this pace", |(_, budget)| {
            html! {
                @match &budget.used_up_at {
                    _ if budget.used >= budget.limit => { strong.state { "used up" } },
                    Some(at) => { time datetime=(at) { (shape::minute(at)) } },
                    None => { "lasts" },
                }
            }
        });
    if let Some(token) = token {
        let button = [("look-up", "look up".to_owned())];
        table = table.text("look up", |item| {
            html! { @if item.1.is_known { (by_reference(token, &item.1.reference, &button, &whose(item))) } }
        });
    }
    html! {
        @if policies.iter().any(|policy| !policy.budgets.is_empty()) {
            section aria-labelledby="budgets" {
                h2 #budgets { "Budgets: the keys nearest to the end" }
                (table.draw())
                p.note { "Of the limit, reserved units among them. The pace is that of the period so far. Times are UTC." }
            }
        }
    }
}

// Tightening the policy of an alarm, and ending that: forms at the alarm itself, and one button at the top of the page.

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
