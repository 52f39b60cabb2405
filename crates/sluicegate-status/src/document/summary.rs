//! The state of the instance in one sentence: [`sentence`], and what to do about it: [`steps`].
//!
//! Both read only the document, so that the sentence agrees with the page. Its parts follow the questions of an operator on call:
//! refusals, their keys and their beginning; refusals of policies in shadow mode; unusual traffic; operators' changes; the store.

use crate::document::shape;
use crate::document::shape::{
    Document, MinuteShown, NoticeShown, OffenderShown, PolicyStatus, ShownStore, Tighter, counted,
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
    let is_refusing = document.policies.iter().any(|policy| !policy.is_shadow() && policy.refused() > 0.0);
    let shadow = in_shadow(&document.policies);
    let unusual: Vec<String> = [notices(&document.notices), changes(&document.policies)].concat();
    let stores = stores(&document.stores, &document.policies);
    let is_as_usual = unusual.is_empty() && document.stores.iter().all(|store| store.state == "ok");
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

/// Writes `login refuses 0.7 a second since 14:02 UTC, all of it one address, 203.0.113.9`.
fn refusals(document: &Document) -> String {
    let Some(policy) = worst(enforced(document)) else { return nothing_refused(document) };
    let all: Vec<f64> = enforced(document).map(PolicyStatus::refused).filter(|rate| *rate > 0.0).collect();
    let rest = shape::rate(all.iter().sum::<f64>() - policy.refused());
    let others = match all.len() - 1 {
        0 => String::new(),
        1 => format!("; 1 other policy refuses {rest} a second"),
        many => format!("; {many} other policies refuse {rest} a second"),
    };
    let (name, rate) = (&policy.name, shape::rate(policy.refused()));
    format!("{name} refuses {rate} a second{}{}{others}", since(policy), of_whom(policy))
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
    let mut first: Option<&MinuteShown> = None;
    let mut gap = 0;
    for minute in policy.hour().rev() {
        gap = if minute.rejected > 0 { 0 } else { gap + 1 };
        if gap > GAP {
            break;
        }
        if minute.rejected > 0 {
            first = Some(minute);
        }
    }
    match first {
        Some(first) if policy.hour().next().is_some_and(|oldest| oldest.at == first.at) => {
            " for an hour or longer".to_owned()
        }
        Some(first) => format!(" since {} UTC", shape::clock_minute(&first.at)),
        None => String::new(),
    }
}

/// The first part if no request is refused now.
fn nothing_refused(document: &Document) -> String {
    if let Some(policy) = lately_worst(document) {
        return refused_lately(document, policy);
    }
    let allowed: u64 =
        document.policies.iter().flat_map(PolicyStatus::hour).map(|minute| minute.allowed).sum();
    let rate: f64 = document.policies.iter().map(PolicyStatus::allowed).sum();
    match document.policies.len() as u64 {
        0 => "No policy is open yet".to_owned(),
        open if rate > 0.0 => {
            let policies = counted(open, "policy allows", "policies allow");
            format!("Nothing is refused; {policies} {} a second", shape::rate(rate))
        }
        _ if allowed > 0 => {
            let requests = counted(allowed, "request was", "requests were");
            format!("Nothing is refused; {requests} allowed in the last hour")
        }
        _ if document.uptime_seconds < 3_600 => "Nothing has been asked yet".to_owned(),
        _ => "Nothing was asked in the last hour".to_owned(),
    }
}

/// Writes `Nothing is refused now; login refused 7 requests in the last hour, the last at 14:31 UTC`.
fn refused_lately(document: &Document, policy: &PolicyStatus) -> String {
    let refused = policy.refused_in_hour();
    let last = policy.hour().rev().find(|minute| minute.rejected > 0);
    let last = last.map_or("", |last| shape::clock_minute(&last.at));
    let others = enforced(document).map(PolicyStatus::refused_in_hour).filter(|refused| *refused > 0);
    let (many, all) = others.fold((0, 0), |(many, all), refused| (many + 1, all + refused));
    let others = match many - 1 {
        0 => String::new(),
        others => {
            let policies = counted(others, "other policy", "other policies");
            format!("; {policies} refused {}", shape::count(all - refused))
        }
    };
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
fn stores(stores: &[ShownStore], policies: &[PolicyStatus]) -> Option<String> {
    let away: Vec<String> = stores
        .iter()
        .filter(|store| store.state != "ok")
        .map(|store| match store.state {
            "fallback" => format!(
                "the store {} is not asked, since its breaker is {}",
                store.name,
                store.breaker.replace('_', " ")
            ),
            _ => format!("the store {} does not answer", store.name),
        })
        .collect();
    if !away.is_empty() {
        return Some(format!("{}, and {}", away.join(", "), without_store(policies)));
    }
    let slowest = stores.iter().filter_map(|store| store.p99_ms).reduce(f64::max);
    let within = slowest.map_or_else(String::new, |slowest| format!(" within {}", shape::millis(slowest)));
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
        () => "each policy decides as it says for an outage",
    }
}

#[cfg(test)]
mod tests;
