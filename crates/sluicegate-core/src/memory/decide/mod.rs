//! One decision, by the fastest correct way.
//!
//! | way | for | lists |
//! |---|---|---|
//! | `alone` | one key under a policy of one quota: almost all decisions | none, and no ask |
//! | `few` | one to four quotas of different buckets that spend or peek | arrays |
//! | `general` | everything else: turns, reports, leases, logs, quotas of keys, replaced policies, refusals that count | small vectors |
//!
//! The fast ways are the general one without its lists: they start, detect cases that
//! they cannot decide, and hand over before they have changed any state. A test drives the same random asks through both
//! and compares all numbers.

mod alone;
mod few;
mod general;
#[cfg(test)]
mod tests;

pub(super) use self::alone::OnlyBucket;
use super::buckets::Buckets;
use crate::algorithm::Looked;
use crate::decision::QuotaStatus;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Ask;

/// Whether an ask spends although it is refused.
#[inline]
fn counts_rejected(ask: &Ask<'_>) -> bool {
    ask.mode().spends() && ask.policy().policy().counts_rejected()
}

fn buckets_of<'a>(ask: &Ask<'a>) -> Result<&'a Buckets, StoreError> {
    ask.policy().prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
}

/// The status of a bucket after a spend decided by one look.
#[inline]
pub(super) fn status_after(place: (u8, u8), spent: &Looked, cost: u64) -> QuotaStatus {
    let status = QuotaStatus::of(place, spent.balance);
    if spent.passed {
        status.with_more_after_us(spent.available_after_us).spending(cost)
    } else {
        status.refused_for_us(spent.available_after_us)
    }
}
