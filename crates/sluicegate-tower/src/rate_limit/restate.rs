//! The fields of a response whose request was charged, or given back to, since it was let through.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::store::QuotaStatus;
use sluicegate_core::{Decision, Policy};
use smallvec::SmallVec;

use crate::rate_limit::meter::Meter;

/// Where a key stands by a policy, which may have replaced the one that decided on the request.
#[derive(Clone, Debug)]
pub(crate) struct Now {
    policy: Arc<Policy>,
    standings: SmallVec<[QuotaStatus; 1]>,
}

impl Now {
    /// Where the key of the ask in this place stands, as this decision says.
    pub(crate) fn of(decision: &Decision, ask: usize, policy: &Arc<Policy>) -> Self {
        let own = decision.quotas().iter().filter(|standing| standing.policy_index() == ask);
        Self { policy: Arc::clone(policy), standings: own.copied().collect() }
    }
}

/// The decision on a request, with where its keys stand now as far as its meter knows.
pub(crate) fn restate(decision: &mut Decision, meter: &Meter) {
    let accounts: SmallVec<[_; 4]> = meter.now().collect();
    if accounts.iter().all(|(_, now)| now.is_none()) {
        return;
    }
    let (mut standings, mut policies) =
        (SmallVec::<[QuotaStatus; 4]>::new(), Vec::with_capacity(accounts.len()));
    for (place, (policy, now)) in accounts.into_iter().enumerate() {
        let now = now.unwrap_or_else(|| Now::of(decision, place, &policy));
        standings.extend(now.standings.iter().map(|standing| at(place, standing)));
        policies.push(now.policy);
    }
    if !standings.is_empty() {
        let delay_us = micros(decision.delay());
        let at_us = decision.spent_us().saturating_sub(delay_us);
        let restated = Decision::new(decision.outcome(), at_us, delay_us, standings);
        *decision = restated.by(decision.decided_by());
        decision.set_policies(policies.into());
    }
}

/// A standing in this place among the asks. It says where a key stands, and has nothing to give back.
fn at(place: usize, standing: &QuotaStatus) -> QuotaStatus {
    let short = |place: usize| u8::try_from(place).unwrap_or(u8::MAX);
    let (reset, available) = (micros(standing.reset_after()), micros(standing.available_after()));
    let quota = standing.quota_index();
    QuotaStatus::new(
        (short(place), short(quota)),
        true,
        standing.limit(),
        standing.remaining(),
        reset,
        available,
    )
}

fn micros(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)
}
