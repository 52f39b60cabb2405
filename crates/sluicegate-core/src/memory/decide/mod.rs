//! One decision, by the shortest way that is right for it.
//!
//! | way | for | lists |
//! |---|---|---|
//! | `alone` | a key of one quota that a limiter is asked about: almost all decisions | none, and no ask |
//! | `single` | one ask of one quota in one table; without copies of its own where there are accounts, or quotas of keys | none |
//! | `log` | one ask of one quota in one log | none |
//! | `few` | two to four quotas of different buckets that spend or look | arrays |
//! | `general` | everything else: turns, reports, leases, several with logs or accounts, replaced policies, refusals that count | small vectors |
//!
//! `many` decides a batch of asks by the way of each. The short ways are the general one without its lists: they begin, notice what they cannot do,
//! and hand over before they have changed anything. A test drives the same random asks through both
//! and compares all numbers.

mod alone;
mod few;
mod general;
mod log;
mod many;
mod single;
#[cfg(test)]
mod tests;
mod waits;

use std::sync::Arc;

use self::alone::OnlyBucket;
use super::bucket::{Bucket, Buckets};
use super::home::Home;
use super::store::PolicyBuckets;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Ask, DecisionFuture, Mode, PreparedPolicy, ShortWay};

impl PolicyBuckets {
    /// The short way of a policy, if it has one.
    pub(super) fn way_of(&self, policy: &PreparedPolicy) -> Option<Arc<dyn ShortWay>> {
        Some(Arc::new(OnlyBucket::new(&self.context, policy)?))
    }

    // Never inline: it has a copy of the shortest way for each kind of table.
    #[inline(never)]
    pub(super) fn decide_now(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        // Almost every decision is one key in one bucket in one table; it needs no lists.
        if let [ask] = asks
            && let Some(bucket) = alone(ask)
        {
            return match bucket.home() {
                Home::Narrow(table) => self.decide_single(table, bucket, ask),
                Home::Wide(table) => self.decide_single(table, bucket, ask),
                Home::NarrowKept(table) => self.decide_at_length(table, bucket, ask),
                Home::NarrowOwn(table) => self.decide_at_length(table, bucket, ask),
                Home::WideOwn(table) => self.decide_at_length(table, bucket, ask),
                Home::KeptOwn(table) => self.decide_at_length(table, bucket, ask),
                Home::Logs(logs) => self.decide_log(logs, bucket, ask),
            };
        }
        self.decide_few(asks)
    }
}

/// The bucket of an ask that is a question about one bucket and no other, and counts as its policy says.
#[inline]
fn alone<'a>(ask: &Ask<'a>) -> Option<&'a Bucket> {
    let buckets = buckets_of(ask).ok()?;
    let [bucket] = &*buckets.each else { return None };
    let mode = ask.mode();
    // Almost all asks spend, and need no other comparison.
    let is_question = mode == Mode::Spend || mode.asks() && !matches!(mode, Mode::Take | Mode::Lease);
    (is_question && !buckets.has_older() && ask.own().is_none()).then_some(bucket)
}

/// Whether an ask spends although it is refused.
#[inline]
fn counts_rejected(ask: &Ask<'_>) -> bool {
    ask.mode().spends() && ask.policy().policy().counts_rejected()
}

fn buckets_of<'a>(ask: &Ask<'a>) -> Result<&'a Buckets, StoreError> {
    ask.policy().prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
}
