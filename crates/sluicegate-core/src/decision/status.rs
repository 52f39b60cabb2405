//! The [`Outcome`] of a decision, and the status of each of its quotas: [`QuotaStatus`].
//!
//! A status is 40 bytes of plain numbers, so that a decision over four quotas needs no allocation.

use std::time::Duration;

use crate::algorithm::Balance;
use crate::text::listed;

/// The status of one quota after a decision: the units that remain, and the waits.
///
/// # For authors of stores
/// A status starts as that of a quota at rest, and each method changes one thing. [`judge`](crate::store::judge) makes a
/// decision from the statuses of all quotas.
///
/// ```
/// use sluicegate_core::Outcome;
/// use sluicegate_core::store::{QuotaStatus, judge};
///
/// // The only quota of the only policy: 1 of 5 units remains, 2 were requested, and they fit in 7 s.
/// let status = QuotaStatus::at_rest((0, 0), 5)
///     .with_remaining(1)
///     .with_reset_after_us(28_000_000)
///     .refused_for_us(7_000_000);
/// let decision = judge(0, 0, [status]);
/// assert_eq!((decision.outcome(), decision.remaining()), (Outcome::Denied, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    pub(super) balance: Balance,
    pub(super) available_after_us: u64,
    pub(super) spent: u32,
    pub(super) policy: u8,
    quota: u8,
    outcome: Outcome,
    is_provisional: bool,
}

impl QuotaStatus {
    /// A quota with all of its `capacity`, the units that pass at once from rest. The ask passes. `policy` is
    /// the index of its policy among the asks, and `quota` its own index in the policy.
    #[inline]
    pub fn at_rest(place: (u8, u8), capacity: u64) -> Self {
        Self::of(place, Balance::at_rest(capacity))
    }

    /// A quota with this balance, at the [same indices](Self::at_rest). The ask passes.
    #[inline]
    pub fn of((policy, quota): (u8, u8), balance: Balance) -> Self {
        Self {
            balance,
            available_after_us: 0,
            spent: 0,
            policy,
            quota,
            outcome: Outcome::Allowed,
            is_provisional: false,
        }
    }
}

crate::setters! { small QuotaStatus
    /// Sets the units that would pass now.
    fn with_remaining(it, remaining: u64) { it.balance.remaining = remaining }

    /// Sets the time until all of its capacity is back, in microseconds.
    fn with_reset_after_us(it, reset_after_us: u64) { it.balance.reset_after_us = reset_after_us }

    /// The ask passes. Sets the time until one unit more remains, in microseconds.
    fn with_more_after_us(it, available_after_us: u64) { it.answer(Outcome::Allowed, available_after_us) }

    /// The ask does not pass. Sets the time until the same cost could, in microseconds.
    fn refused_for_us(it, available_after_us: u64) { it.answer(Outcome::Denied, available_after_us) }

    /// The ask does not pass: its cost is above the most that the quota ever passes at once.
    fn impossible(it) { it.answer(Outcome::Impossible, 0) }

    /// The key is suspended: nothing passes for `wait_us` microseconds.
    fn suspended_for_us(it, wait_us: u64) {
        it.balance.reset_after_us = it.balance.reset_after_us.max(wait_us);
        (it.balance.remaining, it.spent) = (0, 0);
        it.answer(Outcome::Suspended, wait_us);
    }

    /// The wait is an estimate. Requests that are decided in several places, such as slots of a Cluster, hold units for a moment and may
    /// give them back; the status counts these units as spent. Or others may have spent again since the wait was learned. A store
    /// around this one does not cache such a status.
    ///
    /// ```
    /// use sluicegate_core::store::{QuotaStatus, judge};
    ///
    /// // The only unit is spent by a request that may be refused elsewhere; otherwise it is back in a minute.
    /// let status = QuotaStatus::at_rest((0, 0), 1).with_remaining(0).refused_for_us(60_000_000).provisional();
    /// let decision = judge(0, 0, [status]);
    /// assert_eq!(decision.retry_after().map(|wait| wait.as_secs()), Some(60));
    /// assert!(decision.deciding().is_provisional());
    /// ```
    fn provisional(it) { it.is_provisional = true }

    /// The decision has spent `cost` units from this quota.
    fn spending(it, cost: u64) {
        // Units above `u32::MAX` are spent, but are not given back.
        it.spent = u32::try_from(cost).unwrap_or(u32::MAX);
    }

    /// This status, with its policy at this index among the asks.
    fn of_ask(it, policy: u8) { it.policy = policy }
}

impl QuotaStatus {
    #[inline]
    fn answer(&mut self, outcome: Outcome, available_after_us: u64) {
        (self.outcome, self.available_after_us) = (outcome, available_after_us);
    }

    /// Units that the decision has spent from this quota and that took effect.
    pub fn spent(&self) -> u64 {
        self.spent.into()
    }

    /// All numbers of the quota.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// Units that pass at once from rest: the limit of a window, the burst of a bucket.
    pub fn capacity(&self) -> u64 {
        self.balance.capacity
    }

    /// Units that would pass now.
    pub fn remaining(&self) -> u64 {
        self.balance.remaining
    }

    /// The time until all of the [`capacity`](Self::capacity) is back.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.balance.reset_after_us)
    }

    /// The time until the same cost could pass, if this quota refused; otherwise the time until one unit more
    /// remains. Zero if nothing is missing, and if the cost can never pass.
    pub fn available_after(&self) -> Duration {
        Duration::from_micros(self.available_after_us)
    }

    /// The outcome by this quota alone.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether this quota had room for the cost.
    #[inline]
    pub fn passed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// Whether the cost is above the most that this quota ever passes at once.
    pub fn is_impossible(&self) -> bool {
        self.outcome == Outcome::Impossible
    }

    /// Whether the key is suspended under the policy of this quota.
    pub fn is_suspended(&self) -> bool {
        self.outcome == Outcome::Suspended
    }

    /// Whether the wait is an estimate: others hold units for a moment and may give them back, or could have spent units since a
    /// cache learned the wait. The refusal may then end sooner or later, and should not be cached.
    pub fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    /// The index of its policy among the asks.
    pub fn policy_index(&self) -> usize {
        usize::from(self.policy)
    }

    /// The index of the quota in its policy.
    pub fn quota_index(&self) -> usize {
        usize::from(self.quota)
    }
}

/// The outcome of a decision.
///
/// | | spent | worth a retry | over HTTP |
/// |---|---|---|---|
/// | [`Allowed`](Self::Allowed) | its cost | | the service's answer |
/// | [`Denied`](Self::Denied) | nothing | after [`retry_after`](super::Decision::retry_after) | 429 and `Retry-After` |
/// | [`Impossible`](Self::Impossible) | nothing | never with this cost | no `Retry-After` |
/// | [`Suspended`](Self::Suspended) | nothing | after [`retry_after`](super::Decision::retry_after) | `Retry-After` |
///
/// The order is that of strictness: of several quotas the greatest outcome counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The request may proceed after [`Decision::delay`](super::Decision::delay); its cost is spent.
    Allowed,
    /// The request exceeds a quota now, and could pass after [`Decision::retry_after`](super::Decision::retry_after); nothing is spent.
    Denied,
    /// The cost is above the most that a quota ever passes at once; no wait helps, and nothing is spent.
    Impossible,
    /// The key is suspended, because it continued after many refusals: every request is refused, whatever its cost, until
    /// [`Decision::retry_after`](super::Decision::retry_after) is over. Nothing is spent.
    Suspended,
}

listed!(Outcome, "All outcomes, in their order.", "The word for this outcome in metrics and logs.":
    Allowed => "allowed", Denied => "rejected", Impossible => "impossible", Suspended => "suspended");

/// The index of the tightest quota, which decides.
#[inline]
pub(super) fn deciding(outcome: Outcome, quotas: &[QuotaStatus]) -> u8 {
    let is_before = |one: &QuotaStatus, other: &QuotaStatus| match outcome {
        Outcome::Allowed => {
            let resets_us = |status: &QuotaStatus| status.balance.reset_after_us;
            (one.remaining(), resets_us(other)) < (other.remaining(), resets_us(one))
        }
        // The quota that refuses longest says when the request could pass, also for a suspended key.
        Outcome::Denied | Outcome::Suspended => {
            (one.passed(), other.available_after_us, one.remaining())
                < (other.passed(), one.available_after_us, other.remaining())
        }
        Outcome::Impossible => {
            (other.is_impossible(), one.capacity()) < (one.is_impossible(), other.capacity())
        }
    };
    let tightest = (0_u8..).zip(quotas).reduce(
        |tightest, next| {
            if is_before(next.1, tightest.1) { next } else { tightest }
        },
    );
    tightest.map_or(0, |(index, _)| index)
}
