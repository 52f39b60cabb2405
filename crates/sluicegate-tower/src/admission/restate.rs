//! The fields of a response whose request was charged, or given back to, since it was let through.
//!
//! Without this a response would show where the client stood before its own cost was known. Only
//! what the store has answered already is shown: a response does not wait for a charge.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::store::{QuotaStatus, judge};
use sluicegate_core::{Decision, Policy};
use smallvec::SmallVec;

use crate::respond::decided::Decided;

/// Where a key stands by a policy, which may have replaced the one that decided on the request.
#[derive(Clone, Debug)]
pub(crate) struct Now {
    policy: Arc<Policy>,
    statuses: SmallVec<[QuotaStatus; 1]>,
}

impl Now {
    /// Where the key of the ask in this place stands, as this decision says.
    pub(crate) fn of(decision: &Decision, ask: usize, policy: &Arc<Policy>) -> Self {
        let own = decision.quotas().iter().filter(|status| status.policy_index() == ask);
        Self { policy: Arc::clone(policy), statuses: own.copied().collect() }
    }
}

/// The decision on a request, with where its keys stand now: by which policy each ask was decided, and what is known since.
pub(crate) fn restate(decided: &mut Decided, asks: impl Iterator<Item = (Arc<Policy>, Option<Now>)>) {
    let accounts: SmallVec<[_; 4]> = asks.collect();
    if accounts.iter().all(|(_, now)| now.is_none()) {
        return;
    }
    let (mut statuses, mut policies) =
        (SmallVec::<[QuotaStatus; 4]>::new(), Vec::with_capacity(accounts.len()));
    for (place, (policy, now)) in accounts.into_iter().enumerate() {
        let now = now.unwrap_or_else(|| Now::of(decided, place, &policy));
        statuses.extend(now.statuses.iter().map(|status| at(place, status)));
        policies.push(now.policy);
    }
    if !statuses.is_empty() {
        let restated = judge(decided.at_us(), micros(decided.delay()), statuses);
        *decided = Decided::new(restated.by(decided.decided_by()), policies.into());
    }
}

/// A status in this place among the asks. It says where a key stands, and has nothing to give back.
fn at(place: usize, status: &QuotaStatus) -> QuotaStatus {
    let place = u8::try_from(place).unwrap_or(u8::MAX);
    status.of_ask(place).with_more_after_us(micros(status.available_after())).spending(0)
}

fn micros(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)
}
