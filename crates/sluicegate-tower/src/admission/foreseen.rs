//! Derives the expected decision from a peek, which does not consider waits.
//!
//! A policy that waits has room as soon as its turn comes in time, and a request departs when the last of its turns has come.

use std::time::Duration;

use sluicegate_core::algorithm::State;
use sluicegate_core::clock::micros;
use sluicegate_core::store::{QuotaStatus, judge};
use sluicegate_core::{Decision, Policy};
use smallvec::SmallVec;

use crate::admission::asks::RequestAsks;
use crate::limits::finding::RequestAsk;
use crate::limits::plan::LimitPlan;

/// The waits from now until one quota would let the cost pass.
struct Foreseen {
    status: QuotaStatus,
    /// The wait until the request would proceed: until there is room, or longer in a queue.
    departs: Duration,
    /// The wait until the same ask would pass, which is shorter if the policy waits.
    turn: Duration,
}

/// The expected decision on these asks, derived from a peek.
pub(super) fn foreseen(asks: &RequestAsks, plan: &LimitPlan, looked: &Decision) -> Decision {
    let asked: SmallVec<[&RequestAsk; 4]> = asks.iter().collect();
    let each: SmallVec<[Foreseen; 4]> = looked
        .quotas()
        .iter()
        .map(|status| {
            let asked = asked[status.policy_index()];
            asked.limiter(plan).with_policy(|policy| Foreseen::of(status, policy, asked.cost, looked.at_us()))
        })
        .collect();
    let delay = each.iter().map(|quota| quota.departs).max().unwrap_or_default();
    let statuses = each.iter().map(Foreseen::status);
    judge(looked.at_us(), micros(delay), statuses).by(looked.decided_by())
}

impl Foreseen {
    fn of(status: &QuotaStatus, policy: &Policy, cost: u64, now_us: u64) -> Self {
        let opens = if status.passed() { Duration::ZERO } else { status.available_after() };
        let rule = policy.quotas()[status.quota_index()].rule();
        let is_queue = rule.is_queue();
        let departs = if is_queue {
            let rests_us = now_us.saturating_add(micros(status.reset_after()));
            let departs_us = rule.slot(State::new(rests_us, 0), now_us, cost).departs_us;
            Duration::from_micros(departs_us.saturating_sub(now_us))
        } else {
            opens
        };
        let turn = match policy.on_exceeded().longest_wait() {
            // A full queue lets no request wait outside it.
            Some(longest) if is_queue => departs.saturating_sub(longest).max(opens),
            Some(longest) => departs.saturating_sub(longest),
            None => opens,
        };
        Self { status: *status, departs, turn }
    }

    /// The status of an ask that passes at its turn: a refusal, unless the turn comes now.
    fn status(&self) -> QuotaStatus {
        match () {
            () if self.status.is_impossible() || self.status.is_suspended() => self.status,
            () if self.turn.is_zero() => {
                self.status.with_more_after_us(micros(self.status.available_after()))
            }
            () => self.status.refused_for_us(micros(self.turn)),
        }
    }
}
