//! The parts of one request, one per hash slot.

use std::sync::Arc;

use sluicegate_core::clock::micros;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{QuotaStatus, Trace, judge};
use sluicegate_core::{Decision, StoreError};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::store::decide::ask::KeyAsk;
use crate::store::decide::caller::Caller;
use crate::store::decide::request::DecisionResult;

/// The asks of one slot, and their decision.
pub(super) struct SlotPart {
    pub(super) asks: Vec<KeyAsk>,
    pub(super) decision: Decision,
}

/// The asks of each slot.
///
/// By hash tag rather than by slot: two tags in one slot could share a call, and would rarely do so
/// among 16,384 slots.
pub(super) fn by_slot(asks: Vec<KeyAsk>) -> Vec<Vec<KeyAsk>> {
    let mut groups: Vec<Vec<KeyAsk>> = Vec::new();
    for ask in asks {
        match groups.iter_mut().find(|group| group[0].lives_with(&ask)) {
            Some(group) => group.push(ask),
            None => groups.push(vec![ask]),
        }
    }
    groups
}

/// Calls for all groups at the same time.
pub(super) async fn each(
    caller: &Arc<Caller>,
    groups: Vec<Vec<KeyAsk>>,
    deadline: Instant,
) -> Result<Vec<SlotPart>, StoreError> {
    let calls: Vec<(Vec<KeyAsk>, JoinHandle<_>)> = groups
        .into_iter()
        .map(|asks| {
            let (caller, asked) = (Arc::clone(caller), asks.clone());
            (asks, tokio::spawn(async move { caller.ask(asked, deadline).await }))
        })
        .collect();
    let mut parts = Vec::with_capacity(calls.len());
    for (asks, call) in calls {
        let decision = call.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))?;
        parts.push(SlotPart { asks, decision });
    }
    Ok(parts)
}

/// The parts as one decision; their statuses already say which asks they belong to.
///
/// Its moment is that of the slot that departs last, because the slots' clocks may differ a little.
pub(super) fn joined(parts: Vec<SlotPart>) -> DecisionResult {
    let decisions = || parts.iter().map(|part| &part.decision);
    let delay = decisions().map(Decision::delay).max().unwrap_or_default();
    let Some(spent_us) = decisions().map(Decision::spent_us).max() else {
        return Err(StoreError::new(StoreErrorKind::NothingAsked));
    };
    let mut lines: Vec<(QuotaStatus, Trace)> = Vec::new();
    for SlotPart { asks, mut decision } in parts {
        let statuses = decision.quotas().to_vec();
        let receipts: Vec<_> =
            asks.iter().map(|ask| (ask, decision.take_receipt(usize::from(ask.at)))).collect();
        for status in statuses {
            let of = receipts.iter().find(|(ask, _)| usize::from(ask.at) == status.policy_index());
            let trace = of.and_then(|(ask, receipt)| {
                let is_kept = ask.prepared.gives_back || !delay.is_zero();
                let quota = u8::try_from(status.quota_index()).ok()?;
                receipt.as_ref().filter(|_| is_kept)?.trace(quota).copied()
            });
            lines.push((status, trace.unwrap_or_default()));
        }
    }
    lines.sort_by_key(|(status, _)| (status.policy_index(), status.quota_index()));
    let delay_us = micros(delay);
    let statuses = lines.iter().map(|(status, _)| *status);
    let decision = judge(spent_us.saturating_sub(delay_us), delay_us, statuses);
    let traces: Vec<Trace> = lines.into_iter().map(|(_, trace)| trace).collect();
    Ok(if traces.iter().any(|trace| trace.birth > 0) { decision.with_traces(traces) } else { decision })
}
