//! A policy as it is shown: [`status`].
//!
//! A key whose count is within its error is not listed, because in a flood of keys the count would reflect the flood. A listed key
//! is shown as its extractor's kind allows, or as a digest to visitors without a name. Its word is sealed anew for each document,
//! because the store's reference is valid only on this instance.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Number;
use sluicegate_core::limiter::Overrides;
use sluicegate_core::policy::{Override, PolicyMode, TimeSpan};
use sluicegate_core::{OnExceeded, OnOutage, Policy, Quota, RateLimiter, Store};
use sluicegate_observed::{
    Asker, KeyBudget, Minute, Observed, Offender, OffenderKind, PolicySnapshot, ShownKey, StoreSnapshot,
    StoreState,
};

use crate::document::shape::{
    AskerShown, BudgetShown, GivenQuotas, GivenShown, OffenderShown, OverrideShown, PolicyStatus, QuotaShown,
    Tighter,
};
use crate::page::rfc3339;
use crate::secret::Secret;

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
