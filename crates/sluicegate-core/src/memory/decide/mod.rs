//! One decision, by the shortest way that is right for it.
//!
//! | way | for | lists |
//! |---|---|---|
//! | `alone` | a key of one quota that a limiter is asked about: almost all decisions | none, and no ask |
//! | `few` | one to four quotas of different buckets that spend or look | arrays |
//! | `general` | everything else: turns, reports, leases, logs, quotas of keys, replaced policies, refusals that count | small vectors |
//!
//! `many` decides a batch of asks by the way of each. The short ways are the general one without its lists: they begin, notice what they cannot do,
//! and hand over before they have changed anything. A test drives the same random asks through both
//! and compares all numbers.

mod alone;
mod few;
mod general;
mod many;
#[cfg(test)]
mod tests;
mod waits;

use std::sync::Arc;

use self::alone::OnlyBucket;
use super::buckets::Buckets;
use super::store::PolicyBuckets;
use crate::algorithm::Looked;
use crate::decision::QuotaStatus;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Ask, PreparedPolicy, ShortWay};

impl PolicyBuckets {
    /// The short way of a policy, if it has one.
    pub(super) fn way_of(&self, policy: &PreparedPolicy) -> Option<Arc<dyn ShortWay>> {
        Some(Arc::new(OnlyBucket::new(&self.context, policy)?))
    }
}

/// Whether an ask spends although it is refused.
#[inline]
fn counts_rejected(ask: &Ask<'_>) -> bool {
    ask.mode().spends() && ask.policy().policy().counts_rejected()
}

fn buckets_of<'a>(ask: &Ask<'a>) -> Result<&'a Buckets, StoreError> {
    ask.policy().prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
}

/// The status of a bucket after a spend that one look has decided.
#[inline]
pub(super) fn status_after(place: (u8, u8), spent: &Looked, cost: u64) -> QuotaStatus {
    let status = QuotaStatus::of(place, spent.balance);
    if spent.passed {
        status.with_more_after_us(spent.available_after_us).spending(cost)
    } else {
        status.refused_for_us(spent.available_after_us)
    }
}
