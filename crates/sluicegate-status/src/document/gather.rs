//! What is known now, put together: [`gather`].

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::limiter::Overrides;
use sluicegate_core::observed::{
    Minute, Offender, OffenderKind, PastEvent, PolicySnapshot, Snapshot, StoreSnapshot, StoreState,
};
use sluicegate_core::policy::Override;
use sluicegate_core::resilient::BreakerState;
use sluicegate_core::{OnExceeded, Policy};

use super::instant::rfc3339;
use super::shape::{
    Document, Errors, Happened, MinuteShown, OffenderShown, OverrideShown, PerSecond, PolicyStatus,
    QuotaShown, StoreStatus,
};
use crate::scope::Scope;

/// Which keys a page may show.
pub(crate) enum Keys {
    /// As they are known: addresses and names in clear.
    Shown,
    /// All as digests, which are made with this seed.
    Digests(RandomState),
}

/// Puts the snapshots of all stores together. Of two policies of one name the first is shown.
pub(crate) fn gather(instance: &str, scope: &Scope, keys: &Keys) -> Document {
    let snapshots = scope.stores.iter().map(|(observed, overrides)| (observed.snapshot(), overrides));
    let snapshots: Vec<(Snapshot, &Overrides)> = snapshots.collect();
    let at = snapshots.iter().map(|(known, _)| known.at).max().unwrap_or(UNIX_EPOCH);
    let uptime = snapshots.iter().map(|(known, _)| known.uptime).max().unwrap_or_default();
    let mut names = HashSet::new();
    let policies = snapshots.iter().flat_map(|(known, overrides)| {
        let standing = overrides.list();
        let shown = known.policies.iter().filter(|it| names.insert(it.policy.name().to_owned()));
        let shown =
            shown.map(|it| PolicyStatus { over: over(scope, overrides, &standing, it), ..policy(it, keys) });
        shown.collect::<Vec<_>>()
    });
    let policies = policies.collect();
    let mut events: Vec<&PastEvent> = snapshots.iter().flat_map(|(known, _)| &known.events).collect();
    events.sort_by_key(|event| event.at);
    Document {
        version: 1,
        at: text(at),
        instance: instance.to_owned(),
        uptime_seconds: uptime.as_secs(),
        stores: snapshots.iter().flat_map(|(known, _)| &known.stores).map(store).collect(),
        policies,
        events: events.into_iter().map(happened).collect(),
    }
}

fn text(at: SystemTime) -> String {
    let since_epoch: Duration = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since_epoch)
}

fn store(store: &StoreSnapshot) -> StoreStatus {
    StoreStatus {
        name: store.name.clone(),
        state: match store.state {
            StoreState::Ok => "ok",
            StoreState::Fallback => "fallback",
            _ => "down",
        },
        breaker: match store.breaker {
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half_open",
            _ => "open",
        },
        opened: store.opened,
        errors: Errors {
            timeout: store.errors.timeout,
            unavailable: store.errors.unavailable,
            protocol: store.errors.protocol,
        },
        fallback_decisions: store.fallback_decisions,
        fallback_seconds: store.in_fallback.as_secs(),
        unsettled_keys: store.unsettled_keys,
        keys: store.keys,
        slots: store.slots,
        evictions: store.evictions,
    }
}

fn policy(known: &PolicySnapshot, keys: &Keys) -> PolicyStatus {
    let PolicySnapshot { policy, totals, per_second, .. } = known;
    PolicyStatus {
        name: policy.name().to_owned(),
        algorithm: policy.algorithm().to_string(),
        quotas: quotas(policy),
        mode: policy.mode().to_string(),
        hidden: policy.is_hidden(),
        over: None,
        on_exceeded: match policy.on_exceeded() {
            OnExceeded::Wait { .. } => "wait",
            _ => "deny",
        },
        on_outage: policy.on_outage().to_string(),
        per_second: PerSecond {
            allowed: per_second.allowed,
            rejected: per_second.rejected,
            delayed: per_second.delayed,
            suspended: per_second.suspended,
        },
        minutes: known.minutes.iter().map(minute).collect(),
        waiting: known.waiting,
        near_share: share(known.near, totals.allowed.saturating_add(totals.delayed)),
        suspended_seen: known.suspended_seen,
        offenders: known.offenders.iter().map(|it| offender(it, keys)).collect(),
    }
}

/// What an operator has made of this policy, if one has.
fn over(
    scope: &Scope,
    overrides: &Overrides,
    standing: &[Arc<Override>],
    known: &PolicySnapshot,
) -> Option<OverrideShown> {
    let name = known.policy.name();
    let over = standing.iter().find(|over| over.policy() == name)?;
    let own = scope.limiter(name)?.own_policy();
    Some(OverrideShown {
        by: over.by().to_owned(),
        until: rfc3339(Duration::from_micros(over.until_us())),
        version: over.version(),
        shared: overrides.are_shared(),
        own_quotas: own.quotas().iter().map(|quota| quota.quota().to_string()).collect(),
    })
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

/// Whole where it can be: `60`, and `0.5` for half a second.
fn seconds(span: Duration) -> serde_json::Number {
    let whole = (span.subsec_nanos() == 0).then(|| span.as_secs().into());
    whole
        .or_else(|| serde_json::Number::from_f64(span.as_secs_f64()))
        .unwrap_or_else(|| span.as_secs().into())
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn minute(minute: &Minute) -> MinuteShown {
    MinuteShown { at: text(minute.at), allowed: minute.allowed, rejected: minute.rejected }
}

fn offender(offender: &Offender, keys: &Keys) -> OffenderShown {
    let kind = match offender.kind {
        OffenderKind::Address => "address",
        OffenderKind::Name => "name",
        _ => "digest",
    };
    let (key, kind) = match keys {
        Keys::Digests(seed) if kind != "digest" => {
            (format!("{:016x}", seed.hash_one(&offender.key)), "digest")
        }
        _ => (offender.key.clone(), kind),
    };
    OffenderShown {
        key,
        kind,
        reference: offender.reference.clone(),
        rejected: offender.rejected,
        error: offender.error,
        share: offender.share,
    }
}

fn happened(event: &PastEvent) -> Happened {
    Happened {
        at: text(event.at),
        what: event.what,
        by: event.by.clone(),
        policy: event.policy.clone(),
        from: event.from.clone(),
        to: event.to.clone(),
    }
}
