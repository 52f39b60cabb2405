//! The shape of `status.json`: [`Document`].

pub(super) use sluicegate_plots::grouped as count;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Number;
use sluicegate_core::limiter::Overrides;
use sluicegate_core::policy::{Override, PolicyMode, TimeSpan};
use sluicegate_core::{OnExceeded, OnOutage, Policy, Quota, RateLimiter, Store};
use sluicegate_in_flight::{AdaptiveStatus, SharedStatus};
use sluicegate_observed::{
    Asker, InFlightSnapshot, KeyBudget, Minute, Observed, Offender, OffenderKind, OutageCounts,
    PolicySnapshot, Rate, ShownKey, StoreSnapshot, StoreState,
};

use crate::page::rfc3339;
use crate::secret::Secret;

/// The state of one instance, in the shape of `status.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Document {
    /// The version of this shape. It changes only if an existing field changes its meaning.
    pub(super) version: u32,
    /// The moment when it was put together.
    pub(super) at: String,
    /// The instance that these numbers belong to.
    pub(super) instance: String,
    /// The time for which the first of the stores has been observed.
    pub(super) uptime_seconds: u64,
    pub(super) notices: Vec<NoticeShown>,
    pub(super) stores: Vec<StoreSnapshot>,
    pub(crate) policies: Vec<PolicyStatus>,
    /// The limits on requests at once; more about some of them follows.
    pub(super) in_flight: Vec<InFlightSnapshot>,
    pub(super) adaptive: Vec<NamedLimit<AdaptiveStatus>>,
    /// The limits whose permits instances share.
    pub(super) shared: Vec<NamedLimit<SharedStatus>>,
    pub(super) rooms: Vec<RoomShown>,
    pub(super) events: Vec<Happened>,
}

/// A text that the application has put on the page.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NoticeShown {
    /// Its subject, such as the name of a file.
    pub(super) about: String,
    /// The moment when it was put first.
    pub(super) since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    /// Whether it is an alarm about the policy of this name.
    #[serde(skip)]
    pub(super) is_alarm: bool,
}

/// A policy, and its counts in this instance.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyStatus {
    pub(crate) name: String,
    pub(super) algorithm: String,
    pub(super) quotas: Vec<QuotaShown>,
    pub(super) mode: String,
    pub(super) hidden: bool,
    #[serde(rename = "override")]
    pub(super) over: Option<OverrideShown>,
    /// Keys that operators have given quotas for a time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) given: Vec<GivenShown>,
    pub(super) on_exceeded: &'static str,
    pub(super) on_outage: String,
    /// The present treatment of requests, while the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_outage: Option<String>,
    pub(super) per_second: Rate,
    /// Whole minutes, the oldest first.
    pub(super) minutes: Vec<Minute>,
    /// The current minute.
    pub(super) minute: Minute,
    pub(super) waiting: usize,
    /// The part of the allowed requests of the last hour that left less than a fifth.
    #[serde(skip)]
    pub(super) near_share: f64,
    pub(super) suspended_seen: usize,
    /// Different quotas of keys in use in memory; `key_quotas_refused` counts how often one more was refused.
    pub(super) key_quotas: usize,
    pub(super) key_quotas_refused: u64,
    /// The numbers to which it can be tightened.
    #[serde(skip)]
    pub(super) tighter: Option<Tighter>,
    /// Whether its keys can be suspended.
    #[serde(skip)]
    pub(super) suspends: bool,
    pub(super) offenders: Vec<OffenderShown>,
    /// Whether other keys were refused beside them, none of which stands out.
    #[serde(skip)]
    pub(super) crowd: bool,
    #[serde(skip)]
    pub(super) askers: Vec<AskerShown>,
    /// The keys that are nearest to the end of their budgets.
    pub(super) budgets: Vec<BudgetShown>,
}

/// Lower numbers for a policy, as an operator would write them: those of its own tightening, or half of its first quota.
#[derive(Clone, Debug)]
pub(super) struct Tighter {
    pub(super) quota: String,
    pub(super) lasts: String,
    pub(super) of_new_keys: bool,
}

impl PolicyStatus {
    /// The last hour, the oldest minute first, with the minute that is under way.
    pub(super) fn hour(&self) -> impl DoubleEndedIterator<Item = &Minute> {
        self.minutes.iter().skip(1).chain([&self.minute])
    }

    /// Its quotas as people write them.
    pub(super) fn quotas(&self) -> String {
        self.quotas.iter().map(|quota| &*quota.text).collect::<Vec<_>>().join(", ")
    }

    /// Whether it is only tried out.
    pub(super) fn is_shadow(&self) -> bool {
        self.mode == "shadow"
    }

    /// Requests that were refused in the last hour.
    pub(super) fn refused_in_hour(&self) -> u64 {
        self.hour().map(refused_in).sum()
    }

    /// Requests that are let in a second, at once or after a wait.
    pub(super) fn allowed(&self) -> f64 {
        self.per_second.allowed + self.per_second.delayed
    }

    /// Requests that it refuses a second, with those of suspended keys and those of an outage.
    pub(super) fn refused(&self) -> f64 {
        self.per_second.rejected + self.per_second.suspended + self.per_second.outage
    }
}

/// Requests of a minute that a policy refused, for their keys or for an outage.
pub(super) fn refused_in(minute: &Minute) -> u64 {
    minute.rejected + minute.outage
}

/// The state of a limit on requests at once, which adapts or is shared by all instances.
#[derive(Clone, Debug, Serialize)]
pub(super) struct NamedLimit<T> {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) status: T,
}

/// The limit, the period and the burst of a quota.
#[derive(Clone, Debug, Serialize)]
pub(super) struct QuotaShown {
    pub(super) label: String,
    pub(super) limit: u64,
    pub(super) period_seconds: Number,
    pub(super) burst: u64,
    /// The quota as people write it.
    #[serde(skip)]
    pub(super) text: String,
}

/// An operator's override of a policy, for a time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OverrideShown {
    /// The operator.
    pub(super) by: String,
    /// The moment when it ends by itself.
    pub(super) until: String,
    /// Identifies it when it is replaced or withdrawn.
    pub(super) version: u64,
    /// Whether other instances have it, too.
    pub(super) shared: bool,
    /// The quotas of keys that are new, if it is for them alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) new_keys: Option<Vec<String>>,
    /// The quotas that are back when it ends.
    pub(super) own_quotas: Vec<String>,
    /// The mode that is back when it ends.
    pub(super) own_mode: String,
}

/// A key that has quotas of its own for a time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GivenShown {
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) given: GivenQuotas,
}

/// The quotas of one key alone, for a time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GivenQuotas {
    pub(super) quotas: Vec<String>,
    /// The operator.
    pub(super) by: String,
    /// The moment when it ends by itself.
    pub(super) until: String,
    /// Identifies it when it is replaced or withdrawn.
    pub(super) version: u64,
}

impl GivenQuotas {
    /// The quotas of this override, which is of one key.
    pub(super) fn of(over: &Override) -> Self {
        Self {
            quotas: over.quotas().iter().map(ToString::to_string).collect(),
            by: over.by().to_owned(),
            until: rfc3339(UNIX_EPOCH + Duration::from_micros(over.until_us())),
            version: over.version(),
        }
    }
}

/// A key that was refused often.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OffenderShown {
    /// An address, a name or a digest, as `kind` says.
    pub(super) key: String,
    pub(super) kind: &'static str,
    /// A word that stands for the key in look-ups.
    #[serde(rename = "ref")]
    pub(super) reference: String,
    pub(super) rejected: u64,
    /// The count is at most this much too high.
    pub(super) error: u64,
    pub(super) share: f64,
    pub(super) suspended_until: Option<String>,
    /// Whether it can be looked up by its reference.
    #[serde(skip)]
    pub(super) is_known: bool,
}

/// A key that asked often.
#[derive(Clone, Debug)]
pub(super) struct AskerShown {
    pub(super) key: String,
    pub(super) kind: &'static str,
    pub(super) asked: u64,
    /// The part of its burst that is left.
    pub(super) remaining: f64,
}

/// A key's use of a budget in the period under way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BudgetShown {
    /// As for an offender.
    pub(super) key: String,
    pub(super) kind: &'static str,
    #[serde(rename = "ref")]
    pub(super) reference: String,
    /// The label of the quota.
    pub(super) label: String,
    /// The units of the limit that are used; `limit` is the key's own number, if it has one.
    pub(super) used: u64,
    pub(super) limit: u64,
    /// The period.
    pub(super) from: String,
    pub(super) until: String,
    /// The moment at which the budget is used up at the pace of the period so far, if that is before its end.
    pub(super) used_up_at: Option<String>,
    #[serde(skip)]
    pub(super) is_known: bool,
}

impl BudgetShown {
    /// The part that is used, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a number to look at")]
    pub(super) fn part(&self) -> f64 {
        self.used as f64 / self.limit.max(1) as f64
    }
}

/// A waiting room.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RoomShown {
    pub(super) name: String,
    /// `metered`, `paused` or `open`.
    pub(super) mode: &'static str,
    /// The rate as people write it.
    pub(super) rate: String,
    /// Visitors that wait; `active` are those inside, if their number is bounded.
    pub(super) waiting: u64,
    pub(super) active: Option<u64>,
    /// Visitors that were let in since the room began; `passed_over` counts places.
    pub(super) admitted: u64,
    pub(super) passed_over: u64,
    /// The estimated wait of a visitor that comes now.
    pub(super) wait_seconds: Option<u64>,
    /// Rate and mode, as a form sends them back.
    #[serde(skip)]
    pub(super) seen: String,
}

/// Something that an operator did, or that happened to a store.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Happened {
    pub(super) at: String,
    /// The end of an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    pub(super) what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy: Option<String>,
    /// The key as a look-up names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) room: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    /// The counts of an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outage: Option<OutageCounts>,
}

// Numbers as the page shows them: rounded, for a quick look. The JSON has them exactly.

/// Writes `12.4`; whole from a hundred on.
pub(super) fn rate(number: f64) -> String {
    if number >= 100.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

/// Writes `1 request` or `1,200 requests`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Writes `0.4 ms`, with two significant digits, and `5 µs` for less than a tenth of that.
fn millis(millis: f64) -> String {
    match millis {
        _ if millis >= 10.0 => format!("{millis:.0} ms"),
        _ if millis >= 0.1 => format!("{millis:.1} ms"),
        _ if millis >= 0.001 => format!("{:.0} µs", millis * 1_000.0),
        _ => format!("{:.1} µs", millis * 1_000.0),
    }
}

/// Writes a duration as [`millis`] does.
pub(super) fn millis_of(time: Duration) -> String {
    millis(time.as_secs_f64() * 1e3)
}

/// Writes `61 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Writes `61 %`, rounded down: no budget is used up before all of it is.
pub(super) fn percent_down(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).floor())
}

/// Writes `3 h 12 min`.
pub(super) fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Writes a wait as [`span`] does, rounded up so that it is over by then.
pub(super) fn wait(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..86_400 => span(seconds.div_ceil(60) * 60),
        _ => span(seconds.div_ceil(3_600) * 3_600),
    }
}

/// The time of day of a moment in RFC 3339.
pub(super) fn clock(at: &str) -> &str {
    at.get(11..19).unwrap_or(at)
}

/// The time of day of a moment: `15:00:00`.
pub(super) fn time_of_day(at: SystemTime) -> String {
    clock(&rfc3339(at)).to_owned()
}

/// The hour and the minute of a moment: `15:00`.
pub(super) fn hour_and_minute(at: SystemTime) -> String {
    clock_minute(&rfc3339(at)).to_owned()
}

/// The hour and the minute of a moment in RFC 3339: `15:00`.
pub(super) fn clock_minute(at: &str) -> &str {
    at.get(11..16).unwrap_or(at)
}

/// The day and the minute of a moment in RFC 3339: `2026-11-21 15:00`.
pub(super) fn minute(at: &str) -> String {
    at.get(..16).unwrap_or(at).replace('T', " ")
}

// A policy as it is shown: [`status`].
//
// A key whose count is within its error is not listed, because in a flood of keys the count would reflect the flood. A listed key
// is shown as its extractor's kind allows, or as a digest to visitors without a name. Its word is sealed anew for each document,
// because the store's reference is valid only on this instance.

/// The default time for which a policy is tightened.
const HALF_AN_HOUR: Duration = Duration::from_secs(1_800);

/// Says which keys a page may show.
#[derive(Clone, Copy)]
pub(crate) enum ShownKeys<'a> {
    /// Keys as they are known: addresses and names in clear. Words that stand for them are sealed with this.
    Shown(&'a Secret),
    /// All keys as digests, and no words.
    Digests,
}

/// Everything that is known about a policy.
pub(super) struct PolicyView<'a> {
    pub(super) observed: &'a Observed,
    pub(super) overrides: &'a Overrides,
    pub(super) standing: &'a [Arc<Override>],
    pub(super) policy: &'a PolicySnapshot,
    /// The state of its store.
    pub(super) store: Option<&'a StoreSnapshot>,
    pub(super) keys: ShownKeys<'a>,
    /// The moment of the snapshot.
    pub(super) at: SystemTime,
}

pub(super) fn status(known: &PolicyView<'_>) -> PolicyStatus {
    let PolicySnapshot { policy, per_second, minutes, minute: running, offenders, askers, budgets, .. } =
        known.policy;
    let in_all = |of: fn(&Minute) -> u64| minutes.iter().skip(1).chain([running]).map(of).sum::<u64>();
    PolicyStatus {
        name: policy.name().to_owned(),
        algorithm: policy.algorithm().to_string(),
        quotas: quotas(policy),
        mode: policy.mode().to_string(),
        hidden: policy.is_hidden(),
        over: over(known),
        given: given(known),
        on_exceeded: match policy.on_exceeded() {
            OnExceeded::Wait { .. } => "wait",
            _ => "deny",
        },
        on_outage: policy.on_outage().to_string(),
        in_outage: known.store.and_then(|store| in_outage(policy, store)),
        per_second: *per_second,
        minutes: minutes.clone(),
        minute: *running,
        waiting: known.policy.waiting,
        near_share: share(in_all(|minute| minute.near), in_all(|minute| minute.allowed)),
        suspended_seen: known.policy.suspended_seen,
        key_quotas: known.policy.key_quotas,
        key_quotas_refused: known.policy.key_quotas_refused,
        tighter: tighter(policy),
        suspends: policy.suspension().is_some(),
        offenders: offenders.iter().filter(|it| it.stands_out()).map(|it| offender(known, it)).collect(),
        crowd: offenders.iter().any(|it| !it.stands_out()),
        askers: askers.iter().filter(|it| it.stands_out()).map(|it| asker(known, it)).collect(),
        budgets: budgets.iter().map(|it| budget(known, it)).collect(),
    }
}

/// The override that an operator has put on it, if there is one.
fn over(known: &PolicyView<'_>) -> Option<OverrideShown> {
    let name = known.policy.policy.name();
    let over = known.standing.iter().find(|over| over.policy() == name && over.key().is_none())?;
    let limiter: RateLimiter = Arc::<dyn Store>::from(known.observed).limiters().get(name)?;
    let own = limiter.own_policy();
    Some(OverrideShown {
        by: over.by().to_owned(),
        until: rfc3339(UNIX_EPOCH + Duration::from_micros(over.until_us())),
        version: over.version(),
        shared: known.overrides.are_shared(),
        new_keys: over.is_for_new_keys().then(|| over.quotas().iter().map(Quota::to_string).collect()),
        own_quotas: own.quotas().iter().map(|quota| quota.quota().to_string()).collect(),
        own_mode: own.mode().to_string(),
    })
}

/// The keys that operators have given quotas, as far as this visitor may see them.
fn given(known: &PolicyView<'_>) -> Vec<GivenShown> {
    let name = known.policy.policy.name();
    let of_keys = known.standing.iter().filter(|over| over.policy() == name);
    let shown = of_keys.filter_map(|over| {
        let key = ShownKey::of(over.key()?);
        Some(GivenShown {
            key: match known.keys {
                ShownKeys::Shown(_) => key.to_string(),
                ShownKeys::Digests => format!("digest {}", key.digest),
            },
            given: GivenQuotas::of(over),
        })
    });
    shown.collect()
}

fn quotas(policy: &Policy) -> Vec<QuotaShown> {
    let quotas = policy.quotas().iter().map(|each| (each.label(), each.quota()));
    let shown = quotas.map(|(label, quota)| QuotaShown {
        label: label.to_owned(),
        limit: quota.limit(),
        period_seconds: seconds(quota.period()),
        burst: quota.burst_size(),
        text: quota.to_string(),
    });
    shown.collect()
}

/// The quotas of the policy's own tightening, or half of its first quota for half an hour; the other quotas stay. `None` if they make no
/// valid policy.
fn tighter(policy: &Policy) -> Option<Tighter> {
    let mut quotas: Vec<Quota> = policy.quotas().iter().map(|quota| quota.quota()).collect();
    let first = quotas.first_mut()?;
    let (quota, lasts, of_new_keys) = match policy.tightening() {
        Some(own) => (own.quota(), own.longest(), own.is_of_new_keys()),
        None => (first.with_units(first.limit() / 2, (first.burst_size() / 2).max(1)), HALF_AN_HOUR, false),
    };
    *first = quota;
    policy.with_quotas(&quotas).ok()?;
    let quota = quotas.iter().map(Quota::to_string).collect::<Vec<_>>().join(", ");
    Some(Tighter { quota, lasts: TimeSpan::from(lasts).to_string(), of_new_keys })
}

/// Seconds, whole where possible: `60`, and `0.5` for half a second.
fn seconds(span: Duration) -> Number {
    let whole = (span.subsec_nanos() == 0).then(|| span.as_secs().into());
    whole.or_else(|| Number::from_f64(span.as_secs_f64())).unwrap_or_else(|| span.as_secs().into())
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// The treatment of requests while the store does not decide.
fn in_outage(policy: &Policy, store: &StoreSnapshot) -> Option<String> {
    if store.state == StoreState::Ok || policy.mode() != PolicyMode::Enforce {
        return None;
    }
    let quotas = policy.quotas().iter().map(|quota| quota.quota().to_string()).collect::<Vec<_>>();
    let quotas = quotas.join(" and ");
    Some(match (policy.on_outage(), store.replicas) {
        (OnOutage::Deny, _) => "refuses all requests (503)".to_owned(),
        (OnOutage::Allow, _) => "lets all requests in, uncounted".to_owned(),
        (OnOutage::Local, Some(2)) => format!("this instance's half of {quotas}"),
        (OnOutage::Local, Some(3)) => format!("this instance's third of {quotas}"),
        (OnOutage::Local, Some(4)) => format!("this instance's quarter of {quotas}"),
        (OnOutage::Local, Some(replicas @ 5..)) => {
            format!("this instance's part of {quotas}: one of {replicas}")
        }
        (OnOutage::Local, _) => format!("{quotas}, counted by this instance alone"),
        (other, _) => format!("{other}, counted by this instance alone"),
    })
}

fn offender(known: &PolicyView<'_>, offender: &Offender) -> OffenderShown {
    let (key, kind) = shown(known.keys, (&offender.key, &offender.digest, offender.kind));
    let sealed = sealed(known, &offender.reference);
    OffenderShown {
        key,
        kind,
        is_known: sealed.is_some(),
        reference: sealed.unwrap_or_else(|| offender.reference.clone()),
        rejected: offender.rejected,
        error: offender.error,
        share: offender.share,
        suspended_until: offender.suspended_until.map(rfc3339),
    }
}

fn asker(known: &PolicyView<'_>, asker: &Asker) -> AskerShown {
    let (key, kind) = shown(known.keys, (&asker.key, &asker.digest, asker.kind));
    AskerShown { key, kind, asked: asker.asked, remaining: asker.remaining }
}

fn budget(known: &PolicyView<'_>, budget: &KeyBudget) -> BudgetShown {
    let (key, kind) = shown(known.keys, (&budget.key, &budget.digest, budget.kind));
    let sealed = sealed(known, &budget.reference);
    let quota = known.policy.policy.quotas().get(budget.quota);
    BudgetShown {
        key,
        kind,
        is_known: sealed.is_some(),
        reference: sealed.unwrap_or_else(|| budget.reference.clone()),
        label: quota.map(|quota| quota.label().to_owned()).unwrap_or_default(),
        used: budget.used,
        limit: budget.limit,
        from: rfc3339(budget.from),
        until: rfc3339(budget.until),
        used_up_at: budget.used_up_at(known.at).map(rfc3339),
    }
}

/// The key as this visitor may see it, and the kind of this text.
fn shown(keys: ShownKeys<'_>, (key, digest, kind): (&str, &str, OffenderKind)) -> (String, &'static str) {
    match keys {
        ShownKeys::Shown(_) => (key.to_owned(), kind.as_str()),
        ShownKeys::Digests => (digest.to_owned(), OffenderKind::Digest.as_str()),
    }
}

/// A word for the key that every instance with the same secret can read, unless the key was too long to be kept.
fn sealed(known: &PolicyView<'_>, reference: &str) -> Option<String> {
    let ShownKeys::Shown(secret) = known.keys else { return None };
    let policy = known.policy.policy.name();
    let key = known.observed.listed_key(policy, reference)?;
    Some(secret.seal(policy, &key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1_000, 187_000, 1_234_567].map(count),
            ["0", "999", "1,000", "187,000", "1,234,567"]
        );
        assert_eq!([0, 59, 61, 11_520, 90_000].map(span), ["0 s", "59 s", "1 min", "3 h 12 min", "1 d 1 h"]);
        assert_eq!(
            (rate(12.44), rate(880.6), percent(0.614)),
            ("12.4".to_owned(), "881".to_owned(), "61 %".to_owned())
        );
        assert_eq!(
            [44, 119, 120, 6_123, 86_401].map(wait),
            ["44 s", "119 s", "2 min", "1 h 43 min", "1 d 1 h"]
        );
        assert_eq!(
            (percent_down(0.999), percent_down(1.0), minute("2026-11-21T15:00:59.999Z")),
            ("99 %".to_owned(), "100 %".to_owned(), "2026-11-21 15:00".to_owned())
        );
        assert_eq!([0.0004, 0.012, 0.42, 12.4].map(millis), ["0.4 µs", "12 µs", "0.4 ms", "12 ms"]);
    }
}
