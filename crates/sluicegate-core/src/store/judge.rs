//! Combines the statuses of quotas into a decision, alike for all stores: [`Judged`] for each quota, [`judge`] for all of them.

use crate::algorithm::{Balance, NEVER, Rule, Slot};
use crate::clock::micros;
use crate::decision::{Decision, QuotaStatus};
use crate::store::Mode;

/// Combines the statuses of all quotas of a request into one decision: allowed if each of them lets it pass, and impossible if one
/// never would. For authors of stores.
///
/// `at_us` is the moment of the decision, and `delay_us` the time after it at which an allowed request proceeds, both in microseconds of
/// the store's clock. The statuses come in the order of the asks and of the quotas in their policies, and say how much was spent
/// ([`QuotaStatus::spending`]); the decision carries the traces that are needed to give it back ([`Decision::with_traces`]).
///
/// # Panics
/// When there is no quota.
///
/// # Example
/// Spends from the states of one key, one per quota of its policy, or from none of them:
///
/// ```
/// use sluicegate_core::algorithm::State;
/// use sluicegate_core::store::{Judged, Mode, judge};
/// use sluicegate_core::{Decision, Policy};
///
/// fn spend(policy: &Policy, states: &mut [State], cost: u64, now_us: u64) -> Decision {
///     let quotas = policy.quotas().iter().map(|quota| quota.rule());
///     let slots = quotas.clone().zip(&*states).map(|(rule, state)| (rule, rule.slot(*state, now_us, cost)));
///     let judged: Vec<_> = slots.map(|(rule, slot)| Judged::new(rule, Mode::Spend, slot, now_us)).collect();
///     // All quotas spend, or none does.
///     let spent = if judged.iter().all(Judged::passed) { cost } else { 0 };
///     let statuses = (0..).zip(quotas).zip(states).zip(judged).map(|(((quota, rule), state), judged)| {
///         if spent > 0 {
///             *state = rule.spend(*state, now_us, now_us, spent);
///         }
///         let opens_us = |cost| rule.slot(*state, now_us, cost).opens_us;
///         judged.status((0, quota), rule.balance(*state, now_us), now_us, opens_us).spending(spent)
///     });
///     judge(now_us, 0, statuses)
/// }
///
/// let policy = Policy::gcra("search", "5/min").and("2/s").build()?;
/// let mut states = [State::REST; 2];
/// assert!(spend(&policy, &mut states, 2, 0).is_allowed());
/// let refused = spend(&policy, &mut states, 1, 0);
/// assert_eq!((refused.capacity(), refused.retry_after().map(|wait| wait.as_millis())), (2, Some(500)));
/// assert_eq!(refused.quotas()[0].remaining(), 3, "a refusal spends nothing anywhere");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[inline]
pub fn judge(at_us: u64, delay_us: u64, quotas: impl IntoIterator<Item = QuotaStatus>) -> Decision {
    Decision::of(at_us, delay_us, quotas)
}

/// Whether one quota lets an ask pass, and when. For authors of stores.
///
/// It has two times: when the cost would *pass*, and when it *departs*. They differ under a
/// reservation, which passes now and departs at its turn, and in a queue.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    slot: Slot,
    passed: bool,
    /// When the same ask would pass.
    passes_us: u64,
}

impl Judged {
    /// Judges an ask whose cost could pass at this slot, by its [mode](Mode::asks): a spend passes now or not at
    /// all, a reservation may wait, and a report always passes.
    #[inline]
    pub fn new(rule: &Rule, mode: Mode, slot: Slot, now_us: u64) -> Self {
        let (passed, passes_us) = match mode {
            Mode::Reserve { longest } => {
                let soonest_us = slot.departs_us.saturating_sub(micros(longest));
                // No request waits outside of a full queue.
                let passes_us = if rule.is_queue() { soonest_us.max(slot.opens_us) } else { soonest_us };
                (slot.opens_us != NEVER && passes_us <= now_us, passes_us)
            }
            Mode::Lease => (true, now_us),
            mode if mode.asks() => (slot.opens_us <= now_us, slot.opens_us),
            _ => (true, now_us),
        };
        Self { slot, passed, passes_us }
    }

    /// An ask that passes now.
    #[inline]
    pub fn passing(now_us: u64) -> Self {
        Self { slot: Slot::at(now_us), passed: true, passes_us: now_us }
    }

    /// An ask that passes at `passes_us`, and not before.
    pub fn refused_until(passes_us: u64) -> Self {
        Self { slot: Slot::at(passes_us), passed: false, passes_us }
    }

    /// Whether the ask passes.
    #[inline]
    pub fn passed(&self) -> bool {
        self.passed
    }

    /// When a passing spend proceeds, in microseconds of the store's clock.
    #[inline]
    pub fn departs_us(&self) -> u64 {
        self.slot.departs_us
    }

    /// The status of the quota after the ask; `opens_us` says when a cost would pass now ([`Slot::opens_us`]). `place` is the index of
    /// the policy among the asks, and of the quota in the policy.
    #[inline]
    pub fn status(
        &self,
        place: (u8, u8),
        balance: Balance,
        now_us: u64,
        opens_us: impl FnOnce(u64) -> u64,
    ) -> QuotaStatus {
        let status = QuotaStatus::of(place, balance);
        match self.slot.opens_us {
            _ if self.passed && balance.remaining < balance.capacity => {
                let more = balance.remaining.saturating_add(1);
                status.with_more_after_us(opens_us(more).saturating_sub(now_us))
            }
            _ if self.passed => status,
            NEVER => status.impossible(),
            _ => status.refused_for_us(self.passes_us.saturating_sub(now_us)),
        }
    }
}
