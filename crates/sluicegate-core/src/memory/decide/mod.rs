//! One decision, by the shortest way that is right for it.
//!
//! | way | for | lists |
//! |---|---|---|
//! | `single` | one ask of one quota in one table: almost all decisions | none |
//! | `few` | up to four quotas of different buckets that spend or look | arrays |
//! | `general` | everything else: logs, turns, reports, accounts of several, replaced policies | small vectors |
//!
//! The short ways are the general one without its lists: they begin, notice what they cannot do,
//! and hand over before they have changed anything. A test drives the same random asks through both
//! and compares all numbers.

mod few;
mod general;
mod single;
#[cfg(test)]
mod tests;
mod waits;

use super::bucket::Buckets;
use super::home::Home;
use super::store::Inner;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Ask, DecisionFuture, Mode};

impl Inner {
    #[inline]
    pub(super) fn decide_now(&self, asks: &[Ask<'_>]) -> DecisionFuture {
        // Almost every decision is one key in one bucket in one table; it needs no lists.
        if let [ask] = asks {
            let buckets = match buckets_of(ask) {
                Ok(buckets) => buckets,
                Err(error) => return DecisionFuture::ready(Err(error)),
            };
            if let [bucket] = &*buckets.each
                && !buckets.has_older()
                && ask.mode().asks()
                && ask.mode() != Mode::Take
            {
                match &bucket.home {
                    Home::Narrow(table) => return self.decide_single(table, bucket, ask),
                    Home::Wide(table) => return self.decide_single(table, bucket, ask),
                    Home::NarrowKept(table) => return self.decide_single(table, bucket, ask),
                    Home::WideKept(table) => return self.decide_single(table, bucket, ask),
                    Home::Logs(_) => {}
                }
            }
        }
        self.decide_few(asks)
    }
}

fn buckets_of<'a>(ask: &Ask<'a>) -> Result<&'a Buckets, StoreError> {
    ask.policy().prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
}
