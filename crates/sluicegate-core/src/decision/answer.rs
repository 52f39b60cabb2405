//! The answer for one request: [`Decision`].

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::outcome::{Outcome, deciding};
use super::status::QuotaStatus;
use crate::receipt::{DecidedBy, SpentPart, Trace};

/// The answer for one request: the outcome, and the current status of each quota.
///
/// The numbers on the decision itself come from the quota that decided: the one that refuses
/// longest, or, when all allow, the one with the fewest units left. Waits are rounded up, remaining
/// units are rounded down: a client that follows them never comes too early.
///
/// | | of an allowed request | of a refused one |
/// |---|---|---|
/// | [`remaining`](Self::remaining) | after its cost was spent | as if it had not arrived |
/// | [`delay`](Self::delay) | the time to hold it back; zero unless the policy waits | zero |
/// | [`retry_after`](Self::retry_after) | none | the shortest wait for the same cost |
/// | [`reset_after`](Self::reset_after) | until the whole capacity is back | the same |
///
/// A clone has the same numbers and no [receipt](Self::take_receipt): a cost is given back once.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::clock::ManualClock;
/// use sluicegate_core::{MemoryStore, Outcome, Policy};
///
/// let store = MemoryStore::builder().clock(ManualClock::new()).build()?;
/// let payment = Policy::gcra("payment", "100/min").and("2/10s").on(&store)?;
/// let check = |cost| payment.check("ada").cost(cost).now().expect("memory answers at once");
///
/// assert_eq!(check(2)?.remaining(), 0); // the tighter quota decides: 2 of 2 per 10 s
/// let denied = check(1)?;
/// assert_eq!((denied.outcome(), denied.capacity()), (Outcome::Denied, 2));
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(5)));
/// assert_eq!(denied.quotas()[0].remaining(), 98); // the refusal has spent nothing from the other quota
///
/// let never = check(3)?;
/// assert_eq!((never.outcome(), never.retry_after()), (Outcome::Impossible, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a decision says whether the request may go on, and what is left"]
#[derive(Debug)]
pub struct Decision {
    pub(super) outcome: Outcome,
    pub(super) deciding: u8,
    pub(super) by: DecidedBy,
    /// Whether the numbers describe the time after the delay.
    pub(super) has_come: bool,
    /// A bit per ask with a receipt that was not taken; none in a clone.
    pub(super) receipts: u16,
    /// In an `Arc` that is never shared: dropping `None` needs a comparison, and in a `Box` it would need a call.
    pub(super) details: Option<Arc<Details>>,
    pub(super) at_us: u64,
    pub(super) delay_us: u64,
    pub(super) quotas: QuotaStatuses,
}

/// Four quotas fit without an allocation; a request with more of them costs one.
type QuotaStatuses = SmallVec<[QuotaStatus; 4]>;

/// The data needed to give back a decision, apart from the numbers.
#[derive(Debug, Default)]
pub(super) struct Details {
    /// One trace per quota, or none.
    pub(super) traces: SmallVec<[Trace; 1]>,
    /// A bit for each ask without a trace, when other asks have one.
    pub(super) untraced: u16,
    /// The asks that another party has decided, or that count from another moment, than the decision says.
    pub(super) moments: SmallVec<[AskMoment; 1]>,
    /// The spends of the places that have decided asks about buckets in several places, each with the index of its ask.
    pub(super) parts: Vec<(u8, SpentPart)>,
}

/// The party that has decided an ask, when by that party's clock, and the time after which the cost of the ask counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AskMoment {
    pub(super) ask: u8,
    pub(super) by: DecidedBy,
    pub(super) at_us: u64,
    pub(super) delay_us: u64,
}

impl Clone for Decision {
    #[inline]
    fn clone(&self) -> Self {
        let mut clone = Self::empty(self.at_us, self.delay_us);
        clone.outcome = self.outcome;
        clone.deciding = self.deciding;
        clone.by = self.by;
        clone.has_come = self.has_come;
        clone.receipts = 0;
        // In a loop: there is almost always one status, and copying a slice takes longer.
        for status in &self.quotas {
            clone.quotas.push(*status);
        }
        clone
    }
}

impl Decision {
    /// The decision that follows from the statuses of these quotas.
    #[inline]
    pub(crate) fn of(at_us: u64, delay_us: u64, quotas: impl IntoIterator<Item = QuotaStatus>) -> Self {
        let mut decision = Self::empty(at_us, delay_us);
        for status in quotas {
            decision.outcome = decision.outcome.max(status.outcome());
            decision.quotas.push(status);
        }
        assert!(!decision.quotas.is_empty(), "a decision is about at least one quota");
        if decision.quotas.len() > 1 {
            decision.deciding = deciding(decision.outcome, &decision.quotas);
        }
        decision
    }

    /// A decision over a single quota, without a loop.
    #[inline]
    pub(crate) fn single(at_us: u64, status: QuotaStatus) -> Self {
        let mut decision = Self::empty(at_us, 0);
        decision.outcome = status.outcome();
        decision.quotas.push(status);
        decision
    }

    /// A decision to be filled in place: it is large, and copying takes a noticeable part of the time of a decision.
    #[inline]
    fn empty(at_us: u64, delay_us: u64) -> Self {
        Self {
            outcome: Outcome::Allowed,
            deciding: 0,
            by: DecidedBy::Store,
            has_come: false,
            receipts: u16::MAX,
            details: None,
            at_us,
            delay_us,
            quotas: SmallVec::new(),
        }
    }

    /// Moves the details out of the decision.
    pub(super) fn take_details(&mut self) -> Details {
        self.details.take().and_then(Arc::into_inner).unwrap_or_default()
    }

    /// This decision after its [delay](Self::delay), if nothing else was decided: all waits are shorter.
    pub fn after_delay(mut self) -> Self {
        let by = if self.is_allowed() && !self.has_come { self.delay_us } else { 0 };
        for status in &mut self.quotas {
            let resets_us = &mut status.balance.reset_after_us;
            *resets_us = resets_us.saturating_sub(by);
            status.available_after_us = status.available_after_us.saturating_sub(by);
        }
        self.has_come = true;
        self
    }

    /// This decision, but decided by another party than the store. For authors of stores.
    pub fn by(mut self, by: DecidedBy) -> Self {
        self.by = by;
        self
    }

    /// The party that made the decision: store, lease, cache or fallback, or none of them.
    pub fn decided_by(&self) -> DecidedBy {
        self.by
    }

    /// Whether the request was counted. Otherwise nothing was spent, and the numbers are those of a key at rest.
    pub fn is_counted(&self) -> bool {
        !matches!(self.by, DecidedBy::Outage | DecidedBy::Off)
    }

    /// The units that were spent: the whole cost, or the available units for a check [`up_to`](crate::limiter::Check::up_to) a number;
    /// 0 for a refused request. `None` if the request was not counted, and all of the cost may be used.
    ///
    /// With several quotas and policies, the fewest units that any of them has spent.
    pub fn granted(&self) -> Option<u64> {
        if !self.is_allowed() {
            return Some(0);
        }
        self.is_counted().then(|| self.quotas.iter().map(QuotaStatus::spent).min().unwrap_or(0))
    }

    /// The outcome.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the request may proceed.
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.outcome == Outcome::Allowed
    }

    /// The time that an allowed request has to wait before it proceeds; zero unless its policy waits or shapes.
    ///
    /// The cost counts from the end of the delay. [`Turn`](crate::limiter::Turn) and the layers wait that
    /// long; code that calls [`check`](crate::RateLimiter::check) has to sleep itself.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(if self.is_allowed() { self.delay_us } else { 0 })
    }

    /// The time of the decision, in microseconds of the store's clock.
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The time from which the cost of an allowed request counts, in microseconds of the store's clock.
    pub fn spent_us(&self) -> u64 {
        self.at_us.saturating_add(self.delay_us)
    }

    /// The moment from which the waits count, since the epoch of the store's clock: the time of the decision, or the end of its
    /// [delay](Self::after_delay). To show a moment, such as a reset, add its wait. A store counts from the Unix epoch
    /// unless it was given another clock.
    pub fn stands_at(&self) -> Duration {
        let passed_us = if self.has_come && self.is_allowed() { self.delay_us } else { 0 };
        Duration::from_micros(self.at_us.saturating_add(passed_us))
    }

    /// Units that pass at once from rest: the limit of a window, the burst of a bucket.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.deciding().capacity()
    }

    /// Units that would pass now.
    ///
    /// Rounded down: 2.9 units are 2. A refused request has spent nothing, so there may be units
    /// left, but too few for it.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.deciding().remaining()
    }

    /// The time until the whole [`capacity`](Self::capacity) is back.
    ///
    /// Rounded up. Under buckets some units are back much earlier; the wait for a particular cost
    /// is [`retry_after`](Self::retry_after) of a refusal.
    #[inline]
    pub fn reset_after(&self) -> Duration {
        self.deciding().reset_after()
    }

    /// For a denied request: the shortest wait after which the same cost would pass if nothing else arrived.
    ///
    /// Exact: a request that comes after this wait, with no other before it, passes, and one that comes a
    /// microsecond earlier does not. A suspended key waits at least until its suspension is over. `None` for an
    /// allowed request, and for a cost that can never pass.
    pub fn retry_after(&self) -> Option<Duration> {
        let waits = matches!(self.outcome, Outcome::Denied | Outcome::Suspended);
        waits.then(|| self.deciding().available_after())
    }

    /// The status of the quota that decided; the decision shows its numbers.
    #[inline]
    pub fn deciding(&self) -> &QuotaStatus {
        &self.quotas[usize::from(self.deciding)]
    }

    /// The status of every quota, in the order of the asks and of the quotas in their policies.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let payment = Policy::gcra("payment", "100/h").and("5/min").on(&MemoryStore::new())?;
    /// let decision = payment.check("ada").now().expect("memory answers at once")?;
    /// let policy = payment.policy();
    /// let left: Vec<_> = decision
    ///     .quotas()
    ///     .iter()
    ///     .map(|status| format!("{}: {}", policy.quotas()[status.quota_index()].label(), status.remaining()))
    ///     .collect();
    /// assert_eq!(left, ["payment.1h: 99", "payment.1min: 4"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quotas(&self) -> &[QuotaStatus] {
        &self.quotas
    }
}
