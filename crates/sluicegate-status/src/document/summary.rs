//! The state of the instance in one sentence: [`sentence`], and what to do about it: [`steps`].
//!
//! Both read only the document, so that the sentence agrees with the page. Its parts follow the questions of an operator on call:
//! refusals, their keys and their beginning; refusals of policies in shadow mode; unusual traffic; operators' changes; the store.

use std::cmp::Reverse;

use sluicegate_observed::{Minute, StoreSnapshot, StoreState};

use crate::document::shape;
use crate::document::shape::{
    Document, NoticeShown, OffenderShown, PolicyStatus, Tighter, counted, refused_in,
};

/// The share of the refusals from which they are attributed to one key.
const MOST: f64 = 0.5;
/// The share from which the rest is not mentioned.
const ALL: f64 = 0.995;
/// Minutes without a refusal that do not end a row of minutes with refusals.
const GAP: usize = 2;

/// An action that the page offers below the sentence.
pub(super) enum NextAction<'a> {
    /// Look up the key that is refused most.
    LookUp(&'a PolicyStatus, &'a OffenderShown),
    /// Tighten the policy of an alarm.
    Tighten(&'a PolicyStatus, &'a Tighter),
    /// End the change of a policy.
    Withdraw(&'a PolicyStatus),
}

/// The state in words.
pub(super) fn sentence(document: &Document) -> String {
    let is_refusing = !refusing_now(document).is_empty();
    let shadow = in_shadow(&document.policies);
    let unusual: Vec<String> = [notices(&document.notices), changes(&document.policies)].concat();
    let stores = stores(&document.stores, &document.policies);
    let is_as_usual = unusual.is_empty() && document.stores.iter().all(|store| store.state == StoreState::Ok);
    let usual = match is_refusing || shadow.is_some() {
        _ if !is_as_usual => None,
        true => Some("nothing else is unusual".to_owned()),
        false => Some("nothing is unusual".to_owned()),
    };
    let parts = [refusals(document)].into_iter().chain(shadow).chain(unusual).chain(stores).chain(usual);
    parts.collect::<Vec<_>>().join("; ") + "."
}

/// The possible actions, the most urgent first.
pub(super) fn steps(document: &Document) -> Vec<NextAction<'_>> {
    let policy = worst(enforced(document)).or_else(|| lately_worst(document));
    let key = policy.and_then(|policy| {
        let first = policy.offenders.first().filter(|offender| offender.is_known);
        first.map(|offender| NextAction::LookUp(policy, offender))
    });
    let has_alarm =
        |policy: &&PolicyStatus| document.notices.iter().any(|it| it.is_alarm && it.about == policy.name);
    let alarmed = document.policies.iter().filter(|policy| policy.over.is_none()).filter(has_alarm);
    let tighten = alarmed.filter_map(|policy| Some(NextAction::Tighten(policy, policy.tighter.as_ref()?)));
    let changed = document.policies.iter().filter(|policy| policy.over.is_some()).map(NextAction::Withdraw);
    // If no key stands out, looking up one does not help.
    let (first, last) = key
        .into_iter()
        .partition::<Vec<_>, _>(|step| matches!(step, NextAction::LookUp(_, key) if key.share >= MOST));
    first.into_iter().chain(tighten).chain(changed).chain(last).collect()
}

/// The enforced policies.
fn enforced(document: &Document) -> impl Iterator<Item = &PolicyStatus> {
    document.policies.iter().filter(|policy| !policy.is_shadow())
}

/// The policy with the most refusals per second among these; `None` if they refuse nothing.
fn worst<'a>(policies: impl Iterator<Item = &'a PolicyStatus>) -> Option<&'a PolicyStatus> {
    let refusing = policies.filter(|policy| policy.refused() > 0.0);
    refusing.max_by(|one, other| one.refused().total_cmp(&other.refused()))
}

/// The policy with the most refusals in the last hour.
fn lately_worst(document: &Document) -> Option<&PolicyStatus> {
    let refused = enforced(document).filter(|policy| policy.refused_in_hour() > 0);
    refused.max_by_key(|policy| policy.refused_in_hour())
}

/// A policy, or a limit on requests at once, that refuses this many requests a second.
struct Refusing<'a> {
    name: &'a str,
    rate: f64,
    /// `None` for a limit on requests at once, which may have the name of a policy.
    policy: Option<&'a PolicyStatus>,
}

/// The enforced policies and the limits on requests at once that refuse requests now, the highest rate first.
fn refusing_now(document: &Document) -> Vec<Refusing<'_>> {
    let policies = enforced(document).map(|policy| Refusing {
        name: &policy.name,
        rate: policy.refused(),
        policy: Some(policy),
    });
    let at_once = document.in_flight.iter().map(|limit| Refusing {
        name: &limit.name,
        rate: limit.per_second.rejected,
        policy: None,
    });
    let mut refusing: Vec<_> = policies.chain(at_once).filter(|it| it.rate > 0.0).collect();
    refusing.sort_by(|one, other| other.rate.total_cmp(&one.rate));
    refusing
}

/// Writes `login refuses 0.7 a second since 14:02 UTC, all of it one address, 203.0.113.9; api refuses 0.2 a second`. A request that two
/// policies refuse is in the rates of both, so they have no sum.
fn refusals(document: &Document) -> String {
    let refusing = refusing_now(document);
    let Some(Refusing { name, rate, policy }) = refusing.first() else { return nothing_refused(document) };
    let more = match policy {
        Some(policy) if is_for_outage(policy) => since(policy) + ", all because the store does not answer",
        Some(policy) => [since(policy), by_outage(policy), of_whom(policy)].concat(),
        None => " because its permits are in use".to_owned(),
    };
    let rest: Vec<_> = refusing.iter().skip(1).map(|it| (it.name, it.rate)).collect();
    let others = others(&rest, |rate| format!("refuses {} a second", shape::rate(*rate)));
    format!("{name} refuses {} a second{more}{others}", shape::rate(*rate))
}

/// Whether a policy refuses requests only because its store does not answer.
fn is_for_outage(policy: &PolicyStatus) -> bool {
    policy.per_second.outage > 0.0 && policy.per_second.outage >= policy.refused()
}

/// Names the first of the other policies, and counts the rest.
fn others<T>(others: &[(&str, T)], says: impl Fn(&T) -> String) -> String {
    const NAMED: usize = 3;
    let named = others.iter().take(NAMED).map(|(name, number)| format!("; {name} {}", says(number)));
    let rest = others.len().saturating_sub(NAMED);
    let rest = if rest > 0 { format!("; {rest} more do so, too") } else { String::new() };
    named.collect::<String>() + &rest
}

/// Writes `, 3.0 of them because the store does not answer`.
fn by_outage(policy: &PolicyStatus) -> String {
    match policy.per_second.outage {
        outage if outage <= 0.0 => String::new(),
        outage => format!(", {} of them because the store does not answer", shape::rate(outage)),
    }
}

/// The keys with most of the refusals.
fn of_whom(policy: &PolicyStatus) -> String {
    let Some(first) = policy.offenders.first() else {
        return if policy.crowd {
            ", of many keys, none of which stands out".to_owned()
        } else {
            String::new()
        };
    };
    let part = |share: f64| {
        if share >= ALL { "all of it".to_owned() } else { format!("{} of it", shape::percent_down(share)) }
    };
    let leading = policy.offenders.iter().take(10);
    let sum: f64 = leading.clone().map(|offender| offender.share).sum();
    match (first.share, sum) {
        (share, _) if share >= MOST => format!(", {} {}", part(share), one_key(first)),
        (_, sum) if sum >= MOST => format!(", {} {} keys, first {}", part(sum), leading.count(), key(first)),
        (share, _) => {
            format!(", of many keys; most of one key, {} of it, {}", shape::percent_down(share), key(first))
        }
    }
}

fn one_key(offender: &OffenderShown) -> String {
    match offender.kind {
        "address" => format!("one address, {}", offender.key),
        _ => format!("one key, {}", key(offender)),
    }
}

fn key(offender: &OffenderShown) -> String {
    match offender.kind {
        "digest" => format!("digest {}", offender.key),
        _ => offender.key.clone(),
    }
}

/// Writes `since 14:02 UTC`, from the first of the minutes that have refused without a longer pause.
fn since(policy: &PolicyStatus) -> String {
    let mut first: Option<&Minute> = None;
    let mut gap = 0;
    for minute in policy.hour().rev() {
        gap = if refused_in(minute) > 0 { 0 } else { gap + 1 };
        if gap > GAP {
            break;
        }
        if refused_in(minute) > 0 {
            first = Some(minute);
        }
    }
    match first {
        Some(first) if policy.hour().next().is_some_and(|oldest| oldest.at == first.at) => {
            " for an hour or longer".to_owned()
        }
        Some(first) => format!(" since {} UTC", shape::hour_and_minute(first.at)),
        None => String::new(),
    }
}

/// The first part if no request is refused now.
fn nothing_refused(document: &Document) -> String {
    if let Some(policy) = lately_worst(document) {
        return refused_lately(document, policy);
    }
    let policies = &document.policies;
    // A request may ask several policies, so no sum over them is a number of requests.
    let most = match policies.len() {
        0 | 1 => String::new(),
        all => format!(", the most of {all} policies"),
    };
    let in_hour = |policy: &PolicyStatus| policy.hour().map(|minute| minute.allowed).sum::<u64>();
    // A policy in shadow mode lets everything in, so it is named only if no other one lets in anything.
    let now = policies.iter().filter(|policy| policy.allowed() > 0.0);
    let now = now.max_by(|one, other| {
        let is_enforced = |policy: &PolicyStatus| !policy.is_shadow();
        is_enforced(one).cmp(&is_enforced(other)).then(one.allowed().total_cmp(&other.allowed()))
    });
    let lately =
        policies.iter().max_by_key(|policy| (in_hour(policy) > 0, !policy.is_shadow(), in_hour(policy)));
    match (now, lately) {
        (Some(policy), _) => {
            let (name, rate) = (&policy.name, shape::rate(policy.allowed()));
            format!("Nothing is refused; {name} lets in {rate} a second{most}")
        }
        (_, Some(policy)) if in_hour(policy) > 0 => {
            let requests = counted(in_hour(policy), "request", "requests");
            format!("Nothing is refused; {} let in {requests} in the last hour{most}", policy.name)
        }
        (_, None) => "No policy is open yet".to_owned(),
        _ if document.uptime_seconds < 3_600 => "Nothing has been asked yet".to_owned(),
        _ => "Nothing was asked in the last hour".to_owned(),
    }
}

/// Writes `Nothing is refused now; login refused 7 requests in the last hour, the last at 14:31 UTC`.
fn refused_lately(document: &Document, policy: &PolicyStatus) -> String {
    let refused = policy.refused_in_hour();
    let last = policy.hour().rev().find(|minute| refused_in(minute) > 0);
    let last = last.map_or_else(String::new, |last| shape::hour_and_minute(last.at));
    let mut rest: Vec<_> = enforced(document)
        .filter(|other| other.name != policy.name)
        .map(|other| (&*other.name, other.refused_in_hour()))
        .filter(|(_, refused)| *refused > 0)
        .collect();
    rest.sort_by_key(|(_, refused)| Reverse(*refused));
    let others = others(&rest, |refused| format!("refused {}", shape::count(refused)));
    let requests = counted(refused, "request", "requests");
    let name = &policy.name;
    format!(
        "Nothing is refused now; {name} refused {requests} in the last hour, the last at {last} UTC{others}"
    )
}

/// Writes `tighter would refuse 0.3 a second if it were enforced`.
fn in_shadow(policies: &[PolicyStatus]) -> Option<String> {
    let policy = worst(policies.iter().filter(|policy| policy.is_shadow()))?;
    Some(format!(
        "{} would refuse {} a second if it were enforced",
        policy.name,
        shape::rate(policy.refused())
    ))
}

/// The first alarm, the number of others, and the notices of the application.
fn notices(all: &[NoticeShown]) -> Vec<String> {
    let told = |alarm: &NoticeShown| {
        // The rest of the text is shown below.
        let text = alarm.text.as_deref().and_then(|text| text.split(';').next());
        let since = shape::clock_minute(&alarm.since);
        match text {
            Some(text) => format!("alarm since {since} UTC: {text}"),
            None => format!("{} has an alarm since {since} UTC", alarm.about),
        }
    };
    let (alarms, others): (Vec<_>, Vec<_>) = all.iter().partition(|notice| notice.is_alarm);
    let first = alarms.first().map(|alarm| told(alarm));
    let more = alarms.len().saturating_sub(1) as u64;
    let more = (more > 0).then(|| counted(more, "more alarm lasts", "more alarms last"));
    let others = others.len() as u64;
    let others = (others > 0).then(|| counted(others, "notice stands below", "notices stand below"));
    first.into_iter().chain(more).chain(others).collect()
}

/// The policies that an operator has changed for a time, and the number of keys with quotas of their own from one.
fn changes(policies: &[PolicyStatus]) -> Vec<String> {
    let changed = policies.iter().filter_map(|policy| Some((&policy.name, policy.over.as_ref()?)));
    let mut told = changed
        .clone()
        .take(1)
        .map(|(name, over)| {
            let until = shape::clock_minute(&over.until);
            format!("{name} is changed by {} until {until} UTC", over.by)
        })
        .collect::<Vec<_>>();
    let more = changed.count().saturating_sub(1) as u64;
    told.extend((more > 0).then(|| counted(more, "more policy is changed", "more policies are changed")));
    let given: u64 = policies.iter().map(|policy| policy.given.len() as u64).sum();
    told.extend(
        (given > 0)
            .then(|| counted(given, "key has quotas from an operator", "keys have quotas from an operator")),
    );
    told
}

/// The stores that do not answer, or how fast all of them do.
fn stores(stores: &[StoreSnapshot], policies: &[PolicyStatus]) -> Option<String> {
    let away: Vec<String> = stores
        .iter()
        .filter(|store| store.state != StoreState::Ok)
        .map(|store| {
            let last = store.answered_at.map(shape::time_of_day);
            let last = last.map_or_else(String::new, |at| format!(" (it last did at {at} UTC)"));
            match store.state {
                StoreState::Fallback => {
                    format!("the store {} does not answer{last}, and is asked on trial only", store.name)
                }
                _ => format!("the store {} does not answer{last}", store.name),
            }
        })
        .collect();
    if !away.is_empty() {
        return Some(format!("{}; {}", away.join(", "), without_store(policies)));
    }
    let slowest = stores.iter().filter_map(|store| store.p99).max();
    let within = slowest.map_or_else(String::new, |slowest| format!(" within {}", shape::millis_of(slowest)));
    match stores.len() {
        0 => None,
        1 => Some(format!("the store answers{within}")),
        many => Some(format!("all {many} stores answer{within}")),
    }
}

/// The decisions that policies make meanwhile.
fn without_store(policies: &[PolicyStatus]) -> &'static str {
    let all = |what: &str| !policies.is_empty() && policies.iter().all(|policy| policy.on_outage == what);
    match () {
        () if all("local") => "this instance decides by its share of the quotas",
        () if all("allow") => "every request passes uncounted",
        () if all("deny") => "every request is refused",
        () => "the table says what each policy does meanwhile",
    }
}

#[cfg(test)]
mod tests;
