//! Updates the decision of a request that was charged or refunded since its admission.
//!
//! Otherwise the response would show the quotas from before the request's cost was known. Only
//! answers that have arrived count: a response does not wait for a charge.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::micros;
use sluicegate_core::store::{QuotaStatus, judge};
use sluicegate_core::{Decision, Policy};
use smallvec::SmallVec;

use crate::respond::decided::Decided;

/// The status of a key under a policy, which may have replaced the one that decided on the request.
#[derive(Clone, Debug)]
pub(crate) struct Now {
    policy: Arc<Policy>,
    /// The moment at which the waits begin.
    stands_at: Duration,
    statuses: SmallVec<[QuotaStatus; 1]>,
}

impl Now {
    /// The status of the key of one ask in this decision.
    pub(crate) fn of(decision: &Decision, ask: usize, policy: &Arc<Policy>) -> Self {
        let own = decision.quotas().iter().filter(|status| status.policy_index() == ask);
        Self { policy: Arc::clone(policy), stands_at: decision.stands_at(), statuses: own.copied().collect() }
    }
}

/// Updates the decision on a request by the policy of each ask and the latest status of its key.
pub(super) fn restate(decided: &mut Decided, asks: impl Iterator<Item = (Arc<Policy>, Option<Now>)>) {
    let accounts: SmallVec<[_; 4]> = asks.collect();
    if accounts.iter().all(|(_, now)| now.is_none()) {
        return;
    }
    let known = accounts.iter().filter_map(|(_, now)| Some(now.as_ref()?.stands_at));
    let stands_at = known.fold(decided.stands_at(), Duration::max);
    let (mut statuses, mut policies) =
        (SmallVec::<[QuotaStatus; 4]>::new(), Vec::with_capacity(accounts.len()));
    for (place, (policy, now)) in accounts.into_iter().enumerate() {
        let now = now.unwrap_or_else(|| Now::of(decided, place, &policy));
        // An earlier status has drained since. The delay is over, and is taken off again below.
        let wait =
            |wait: Duration| micros((wait + decided.delay()).saturating_sub(stands_at - now.stands_at));
        let place = u8::try_from(place).unwrap_or(u8::MAX);
        statuses.extend(now.statuses.iter().map(|status| {
            // This status only informs, and has no spend to give back.
            let status = status.of_ask(place).spending(0).with_reset_after_us(wait(status.reset_after()));
            status.with_more_after_us(wait(status.available_after()))
        }));
        policies.push(now.policy);
    }
    if !statuses.is_empty() {
        let at = stands_at.saturating_sub(decided.delay());
        let restated = judge(micros(at), micros(decided.delay()), statuses).by(decided.decided_by());
        *decided = Decided::new(restated.after_delay(), policies.into());
    }
}
