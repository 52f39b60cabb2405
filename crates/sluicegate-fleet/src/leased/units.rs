//! The units of one lease, and of all leases of a key: [`Grant`], [`LeasedUnits`].

use sluicegate_core::limiter::Receipt;
use sluicegate_core::store::QuotaStatus;
use smallvec::SmallVec;

use super::measure::{Measure, at_most};

/// The most leases of one key. They are spent one after the other, and a key with this many requests no further one.
const MOST_GRANTS: usize = 4;

/// A number for each quota of a policy.
pub(super) type PerQuota<T> = SmallVec<[T; 2]>;

/// The units that a store has granted to this instance in one call.
#[derive(Debug)]
pub(super) struct Grant {
    /// The moment before the call was sent, by the local clock.
    sent_us: u64,
    holds: PerQuota<HeldPart>,
    /// The drain of the bucket that has granted it, if the policy is divided among several buckets.
    own: Option<Box<PerQuota<Measure>>>,
    /// The receipt that gives them back.
    receipt: Box<Receipt>,
}

/// The remaining part of a lease under one quota. It is always the last part, because units are spent, and end, from the front.
#[derive(Clone, Copy, Debug)]
struct HeldPart {
    left: u64,
    /// The time for which the last unit may be spent since the call was sent, by the store's clock.
    span_us: u64,
}

impl Grant {
    /// The lease of this receipt, requested at `sent_us`; `None` if the receipt has no duration.
    pub(super) fn new(measures: &[Measure], receipt: Receipt, sent_us: u64) -> Option<Self> {
        let (holds, own) = match receipt.part() {
            None => (holds(measures, &receipt)?, None),
            Some(part) => {
                let own = part.policy.quotas().iter().map(Measure::new);
                let own = own.collect::<Result<PerQuota<Measure>, _>>().ok()?;
                (holds(&own, &part.receipt)?, Some(Box::new(own)))
            }
        };
        Some(Self { sent_us, holds, own, receipt: Box::new(receipt) })
    }

    /// The remaining number of units: the fewest over its quotas, including units that have ended.
    pub(super) fn units(&self) -> u64 {
        self.holds.iter().map(|hold| hold.left).min().unwrap_or(0)
    }

    /// Forgets the units that may no longer be spent. Returns the number of whole units that were forgotten.
    fn expire(&mut self, measures: &[Measure], now_us: u64) -> u64 {
        let (before, age_us) = (self.units(), at_most(now_us.saturating_sub(self.sent_us)));
        let measures = self.own.as_deref().map_or(measures, |own| own);
        for (hold, measure) in self.holds.iter_mut().zip(measures) {
            hold.left = measure.alive(hold.left, hold.span_us, age_us);
        }
        before.saturating_sub(self.units())
    }

    /// The moment when its last unit ends, by the local clock.
    fn end_us(&self, quota: usize) -> u64 {
        self.holds.get(quota).map_or(0, |hold| self.sent_us.saturating_add(hold.span_us))
    }

    /// The rest of the lease, to be given back: its receipt, and its units under each quota.
    pub(super) fn into_rest(self) -> (Box<Receipt>, PerQuota<u64>) {
        let left = self.holds.iter().map(|hold| hold.left).collect();
        (self.receipt, left)
    }
}

/// The numbers of a receipt for each quota.
fn holds(measures: &[Measure], receipt: &Receipt) -> Option<PerQuota<HeldPart>> {
    let hold = |(quota, measure): (u8, &Measure)| {
        Some(HeldPart { left: receipt.cost_of(quota), span_us: measure.span_us(receipt, quota)? })
    };
    (0..).zip(measures).map(hold).collect()
}

/// All units that this instance holds of one key, the oldest first.
#[derive(Debug, Default)]
pub(super) struct LeasedUnits(SmallVec<[Grant; 1]>);

impl LeasedUnits {
    /// Forgets the units that may no longer be spent. Returns their number.
    #[inline]
    pub(super) fn expire(&mut self, measures: &[Measure], now_us: u64) -> u64 {
        let mut lost = 0;
        for grant in &mut self.0 {
            lost += grant.expire(measures, now_us);
        }
        if self.0.iter().any(|grant| grant.units() == 0) {
            self.0.retain(|grant| grant.units() > 0);
        }
        lost
    }

    /// The held units of a quota. Units must have been [expired](Self::expire) at this moment.
    #[inline]
    pub(super) fn of(&self, quota: usize) -> u64 {
        self.0.iter().filter_map(|grant| grant.holds.get(quota)).map(|hold| hold.left).sum()
    }

    /// The held units of all quotas. A request of one unit spends one of each, so this many requests can still be decided here.
    pub(super) fn whole(&self, quotas: usize) -> u64 {
        (0..quotas).map(|quota| self.of(quota)).min().unwrap_or(0)
    }

    /// Whether there is room for another lease.
    pub(super) fn has_room(&self) -> bool {
        self.0.len() < MOST_GRANTS
    }

    /// Spends from the front. Enough units must be held.
    #[inline]
    pub(super) fn spend(&mut self, quota: usize, mut cost: u64) {
        for hold in self.0.iter_mut().filter_map(|grant| grant.holds.get_mut(quota)) {
            let from_here = hold.left.min(cost);
            hold.left -= from_here;
            cost -= from_here;
        }
    }

    /// The time until the bucket of a quota is at rest, as far as this instance knows.
    #[inline]
    pub(super) fn reset_us(&self, quota: usize, now_us: u64) -> u64 {
        self.0.last().map_or(0, |grant| grant.end_us(quota)).saturating_sub(now_us)
    }

    /// Adds a lease after its answer. If the store shows that a bucket no longer counts the held units, the key
    /// was reset or the store has forgotten it: the held units are dropped. Returns the number of dropped units.
    pub(super) fn add(
        &mut self,
        grant: Grant,
        measures: &[Measure],
        statuses: &[QuotaStatus],
        now_us: u64,
    ) -> u64 {
        let ended = self.expire(measures, now_us);
        let is_forgotten = (0..measures.len()).zip(statuses).any(|(quota, status)| {
            let used = status.capacity().saturating_sub(status.remaining());
            // The decision was made at some moment since the call was sent. Its latest possible end is the end by the slowest
            // allowed local clock.
            let last = self.0.last().filter(|last| last.own.is_none() && grant.own.is_none());
            let is_earlier = last.zip(grant.holds.get(quota)).is_some_and(|(last, hold)| {
                let since_us = at_most(now_us.saturating_sub(last.sent_us));
                let latest_us = last.sent_us.saturating_add(since_us).saturating_add(hold.span_us);
                latest_us < last.end_us(quota)
            });
            used < self.of(quota).saturating_add(status.spent()) || is_earlier
        });
        let forgotten = if is_forgotten { self.clear() } else { 0 };
        self.0.push(grant);
        ended.saturating_add(forgotten)
    }

    /// Drops all units. Returns the number of dropped units.
    pub(super) fn clear(&mut self) -> u64 {
        self.take().iter().map(Grant::units).sum()
    }

    /// Takes all units out.
    pub(super) fn take(&mut self) -> SmallVec<[Grant; 1]> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
