//! Derives the expected decision from a peek, which does not consider waits: for explanations, and for the wait that an outer layer sends when
//! an inner layer would refuse as well.
//!
//! A policy that waits has room as soon as its turn comes in time, and a request departs when the last of its turns has come. Of inner layers it
//! uses only data at hand: no key is waited for, and no store is called over a network, because floods cause millions of refusals. A missing
//! key may be added by a layer in between, such as an authentication layer.

use std::time::Duration;

use sluicegate_core::algorithm::State;
use sluicegate_core::clock::micros;
use sluicegate_core::store::{Mode, QuotaStatus, judge};
use sluicegate_core::{Decision, Key, Outcome, Policy};
use smallvec::SmallVec;

use crate::admission::asks::RequestAsks;
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::key::RequestView;
use crate::limits::LimitsHandle;
use crate::limits::door::DoorVerdict;
use crate::limits::plan::LimitPlan;
use crate::limits::walk::{LimitFinding, RequestAsk, Walk, WalkStep};
use crate::respond::decided::Decided;

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

impl Refused {
    /// This refusal, with the waits of these limits added: a client that waits for this time passes all of them.
    pub(crate) fn with(
        mut self: Box<Self>,
        further_in: &[LimitsHandle],
        request: RequestView<'_>,
    ) -> Box<Self> {
        if self.decided().is_some_and(waits) {
            for inner in further_in.iter().filter_map(|inner| inner.current().would_refuse(request)) {
                self.merge(&inner);
            }
        }
        self
    }
}

impl Limits {
    /// The decision of these limits to refuse the request, if it could pass later. It spends nothing.
    fn would_refuse(&self, request: RequestView<'_>) -> Option<Decided> {
        let entry =
            self.settings().door.as_ref().map_or(DoorVerdict::ToTheLimits, |door| door.entry(request));
        let DoorVerdict::ToTheLimits = entry else { return None };
        let (plan, mut walk, mut asks) = (self.plan(), Walk::default(), RequestAsks::default());
        loop {
            match walk.next(plan, request) {
                WalkStep::Found(_, LimitFinding::Asks { ask, .. }) if ask.key == Key::shared() => {
                    return None;
                }
                WalkStep::Found(_, LimitFinding::Asks { ask, is_enforced: true }) => asks.push(ask),
                WalkStep::Found(_, LimitFinding::Refuses(_)) | WalkStep::Waits(_) => return None,
                WalkStep::Found(..) => {}
                WalkStep::End => break,
            }
        }
        let is_near = asks.limiters(plan).all(|limiter| limiter.store().always_answers());
        if asks.is_empty() || !is_near || asks.check(plan).is_err() {
            return None;
        }
        let looked = asks.decide(plan, Some(Mode::Peek)).now().ok()?.ok()?;
        let decided = asks.label(self.made(), foreseen(&asks, plan, &looked));
        waits(&decided).then_some(decided)
    }
}

/// Whether it refuses a request that could pass later.
fn waits(decided: &Decided) -> bool {
    matches!(decided.outcome(), Outcome::Denied | Outcome::Suspended)
}
