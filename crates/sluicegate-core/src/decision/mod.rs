//! The answer of a store: [`Decision`].

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::policy::{Policy, PolicyQuota};
use crate::receipt::{Receipt, Trace};

/// What a limiter decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It may go on, after [`Decision::delay`]; it has spent its cost.
    Allowed,
    /// It exceeds a quota now, and could pass after [`Decision::retry_after`]; it has spent nothing.
    Denied,
    /// Its cost is above what a quota ever lets pass at once; no wait helps, and it has spent nothing.
    Impossible,
}

/// Who made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The store that keeps the state.
    Store,
    /// This process alone, with its share of the quotas, for the store could not be reached.
    Fallback,
    /// Nobody: the store could not be reached, and the policy says what happens then. The numbers are those of rest.
    Outage,
}

/// The answer for one request: the outcome, and where each quota stands now.
///
/// The numbers on the decision itself are those of the quota that decided: the one that refuses longest, or, when
/// all allow, the one with the fewest units left. Waits are rounded up, what remains is rounded down.
///
/// A clone says the same, and has no [receipt](Self::take_receipt): what was spent is given back once.
#[derive(Debug)]
pub struct Decision {
    outcome: Outcome,
    deciding: u8,
    basis: DecidedBy,
    /// A bit per ask whose receipt was not taken; none in a clone.
    receipts: u16,
    /// One per standing, or none.
    traces: Option<Box<SmallVec<[Trace; 1]>>>,
    at_us: u64,
    delay_us: u64,
    standings: Statuses,
    policies: Option<Arc<[Arc<Policy>]>>,
}

impl Clone for Decision {
    fn clone(&self) -> Self {
        Self {
            receipts: 0,
            traces: None,
            standings: self.standings.clone(),
            policies: self.policies.clone(),
            ..*self
        }
    }
}

/// Four quotas fit without an allocation; a request with more of them costs one.
type Statuses = SmallVec<[QuotaStatus; 4]>;

/// Where one quota stands after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    limit: u64,
    remaining: u64,
    reset_after_us: u64,
    available_after_us: u64,
    spent: u32,
    policy: u8,
    quota: u8,
    passed: bool,
}

impl QuotaStatus {
    /// Where a quota stands: `policy` and `quota` are its place among the asks and in its policy, `passed` whether
    /// it had room, `available_after_us` as [`available_after`](Self::available_after). For authors of stores.
    #[inline]
    pub fn new(
        (policy, quota): (u8, u8),
        passed: bool,
        limit: u64,
        remaining: u64,
        reset_after_us: u64,
        available_after_us: u64,
    ) -> Self {
        Self { limit, remaining, reset_after_us, available_after_us, spent: 0, policy, quota, passed }
    }

    /// The same, of a quota of which `cost` units were spent. For authors of stores.
    #[inline]
    #[must_use]
    pub fn spending(mut self, cost: u64) -> Self {
        // What is above that is spent, and is not given back.
        self.spent = u32::try_from(cost).unwrap_or(u32::MAX);
        self
    }

    /// Units that the decision has spent of it, as far as they took effect.
    pub fn spent(&self) -> u64 {
        self.spent.into()
    }

    /// Units that pass at once from rest: the limit of a window, the burst of a bucket.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Units that would pass now.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long until all of [`limit`](Self::limit) is back.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after_us)
    }

    /// If this quota refused, how long until the same cost could pass; otherwise how long until one unit more
    /// remains. Zero if nothing is missing, and if the cost can never pass.
    pub fn available_after(&self) -> Duration {
        Duration::from_micros(self.available_after_us)
    }

    /// Whether this quota had room for the cost.
    pub fn passed(&self) -> bool {
        self.passed
    }

    /// The place of its policy among those that were asked.
    pub fn policy_index(&self) -> usize {
        usize::from(self.policy)
    }

    /// The place of the quota in its policy.
    pub fn quota_index(&self) -> usize {
        usize::from(self.quota)
    }
}

impl Decision {
    /// A decision over these quotas, of which there must be at least one, made at `at_us` of the store's clock. For
    /// authors of stores.
    ///
    /// `delay_us` counts for an allowed decision only.
    #[inline]
    pub fn new(
        outcome: Outcome,
        at_us: u64,
        delay_us: u64,
        standings: impl IntoIterator<Item = QuotaStatus>,
    ) -> Self {
        Self::of(outcome, at_us, delay_us, standings.into_iter().collect())
    }

    /// A decision over a single quota, without a loop.
    #[inline]
    pub(crate) fn single(outcome: Outcome, at_us: u64, delay_us: u64, standing: QuotaStatus) -> Self {
        let mut standings = SmallVec::new();
        standings.push(standing);
        let (basis, receipts) = (DecidedBy::Store, u16::MAX);
        Self {
            outcome,
            deciding: 0,
            basis,
            receipts,
            traces: None,
            at_us,
            delay_us,
            standings,
            policies: None,
        }
    }

    fn of(outcome: Outcome, at_us: u64, delay_us: u64, standings: Statuses) -> Self {
        let deciding = deciding(outcome, &standings);
        let (basis, receipts) = (DecidedBy::Store, u16::MAX);
        Self { outcome, deciding, basis, receipts, traces: None, at_us, delay_us, standings, policies: None }
    }

    /// The same, with what each quota's bucket was like before: one trace per standing. For authors of stores.
    #[must_use]
    pub fn with_traces(mut self, traces: impl IntoIterator<Item = Trace>) -> Self {
        self.traces = Some(Box::new(traces.into_iter().collect()));
        self
    }

    /// What the ask at this place has spent, to give it back; once. `None` if it has spent nothing, if the receipt was
    /// taken, and from a clone.
    pub fn take_receipt(&mut self, ask: usize) -> Option<Receipt> {
        let receipt = self.receipt(ask)?;
        self.receipts &= !receipt_bit(ask);
        Some(receipt)
    }

    /// The receipt that can be taken. Only one of the two may be used to give anything back.
    pub(crate) fn receipt(&self, ask: usize) -> Option<Receipt> {
        if !self.is_allowed() || self.receipts & receipt_bit(ask) == 0 {
            return None;
        }
        let own = || self.standings.iter().enumerate().filter(|(_, standing)| standing.policy_index() == ask);
        if own().all(|(_, standing)| standing.spent == 0) {
            return None;
        }
        let traces = self.traces.as_deref().map_or(&[][..], |traces| traces);
        Some(Receipt::new(
            self.basis,
            self.spent_us(),
            own().map(|(_, standing)| standing.spent()),
            own().filter_map(|(index, _)| traces.get(index).copied()),
        ))
    }

    /// This decision as it stands `by` later, if nothing else was decided: all waits are shorter.
    #[must_use]
    pub fn later(mut self, by: Duration) -> Self {
        let by = crate::clock::micros(by);
        for standing in &mut self.standings {
            standing.reset_after_us = standing.reset_after_us.saturating_sub(by);
            standing.available_after_us = standing.available_after_us.saturating_sub(by);
        }
        self
    }

    /// This decision, made by another than the store. For authors of stores.
    #[must_use]
    pub fn by(mut self, basis: DecidedBy) -> Self {
        self.basis = basis;
        self
    }

    /// Who made it.
    pub fn decided_by(&self) -> DecidedBy {
        self.basis
    }

    /// This decision, if its asks had stood at these places among others.
    #[cfg(feature = "resilient")]
    pub(crate) fn of_asks(mut self, places: &[u8]) -> Self {
        // A decision of one ask may be shown as one of many.
        self.receipts = u16::MAX;
        for standing in &mut self.standings {
            standing.policy = places.get(standing.policy_index()).copied().unwrap_or(standing.policy);
        }
        self
    }

    /// This decision, of its first `count` asks, of which there is at least one: where the others were about the same
    /// buckets.
    #[must_use]
    pub fn of_first(mut self, count: usize) -> Self {
        if self.standings.iter().all(|standing| standing.policy_index() < count) {
            return self;
        }
        // Traces are in the same order: those of the others come last, and nothing names them any more.
        self.standings.retain(|standing| standing.policy_index() < count);
        self.deciding = deciding(self.outcome, &self.standings);
        self
    }

    /// Sets the policies that its standings refer to, one per ask.
    pub fn set_policies(&mut self, policies: Arc<[Arc<Policy>]>) {
        self.policies = Some(policies);
    }

    /// This decision and that of another limiter on the same request, as one: allowed if both allow, with the quotas
    /// of both, and the tightest of them deciding.
    #[must_use]
    pub fn merge(&self, inner: &Self) -> Self {
        let outcome = match (self.outcome, inner.outcome) {
            (Outcome::Impossible, _) | (_, Outcome::Impossible) => Outcome::Impossible,
            (Outcome::Denied, _) | (_, Outcome::Denied) => Outcome::Denied,
            (Outcome::Allowed, Outcome::Allowed) => Outcome::Allowed,
        };
        let own = self.policies.as_deref().unwrap_or_default();
        let offset = own.len().max(self.standings.iter().map(|s| s.policy_index() + 1).max().unwrap_or(0));
        let shifted = inner.standings.iter().map(|standing| QuotaStatus {
            policy: u8::try_from(standing.policy_index() + offset).unwrap_or(u8::MAX),
            ..*standing
        });
        let mut merged = Self::of(
            outcome,
            self.at_us,
            self.delay_us.saturating_add(inner.delay_us),
            self.standings.iter().copied().chain(shifted).collect(),
        );
        merged.receipts = 0;
        merged.basis = if self.basis == DecidedBy::Store { inner.basis } else { self.basis };
        if let (Some(outer), Some(inner)) = (&self.policies, &inner.policies) {
            merged.set_policies(outer.iter().chain(inner.iter()).cloned().collect());
        }
        merged
    }

    /// What was decided.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may go on.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// How long an allowed request has to wait before it goes on; zero unless its policy waits or shapes.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(if self.is_allowed() { self.delay_us } else { 0 })
    }

    /// When what an allowed request spent began to count, in microseconds of the store's clock.
    pub fn spent_us(&self) -> u64 {
        self.at_us.saturating_add(self.delay_us)
    }

    /// Units that pass at once from rest: the limit of a window, the burst of a bucket.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.deciding().limit
    }

    /// Units that would pass now.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.deciding().remaining
    }

    /// How long until the whole [`limit`](Self::limit) is back.
    #[inline]
    pub fn reset_after(&self) -> Duration {
        self.deciding().reset_after()
    }

    /// For a denied request, the shortest wait after which the same cost would pass if nothing else arrived.
    pub fn retry_after(&self) -> Option<Duration> {
        (self.outcome == Outcome::Denied).then(|| self.deciding().available_after())
    }

    /// The standing of the quota that decided, whose numbers the decision shows.
    #[inline]
    pub fn deciding(&self) -> &QuotaStatus {
        &self.standings[usize::from(self.deciding)]
    }

    /// Where every quota stands, in the order of the asks and of the quotas in their policies.
    pub fn quotas(&self) -> &[QuotaStatus] {
        &self.standings
    }

    /// The policies that the standings refer to, one per ask, where middleware made the decision.
    pub fn policies(&self) -> Option<&Arc<[Arc<Policy>]>> {
        self.policies.as_ref()
    }

    /// The policy that decided. Known where middleware made the decision; [`RateLimiter::check`] leaves it out, for
    /// there it is the limiter's own.
    ///
    /// [`RateLimiter::check`]: crate::RateLimiter::check
    pub fn policy(&self) -> Option<&Policy> {
        self.policy_of(self.deciding())
    }

    /// The policy that a standing belongs to, where middleware made the decision.
    pub fn policy_of(&self, standing: &QuotaStatus) -> Option<&Policy> {
        self.policies.as_deref()?.get(standing.policy_index()).map(Arc::as_ref)
    }

    /// The quota that a standing belongs to, where middleware made the decision.
    pub fn quota_of(&self, standing: &QuotaStatus) -> Option<&PolicyQuota> {
        self.policy_of(standing)?.quotas().get(standing.quota_index())
    }
}

/// The place of the tightest quota, which speaks for a decision.
fn deciding(outcome: Outcome, standings: &[QuotaStatus]) -> u8 {
    assert!(!standings.is_empty(), "a decision is about at least one quota");
    let strictness = |standing: &QuotaStatus| match outcome {
        Outcome::Allowed => (true, standing.remaining, u64::MAX - standing.reset_after_us),
        Outcome::Denied => (standing.passed, u64::MAX - standing.available_after_us, standing.remaining),
        Outcome::Impossible => (standing.passed || standing.available_after_us > 0, standing.limit, 0),
    };
    let deciding = (0_u8..).zip(standings).min_by_key(|(_, standing)| strictness(standing));
    deciding.map_or(0, |(index, _)| index)
}

fn receipt_bit(ask: usize) -> u16 {
    u32::try_from(ask).ok().and_then(|ask| 1_u16.checked_shl(ask)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
