//! A batch of keys, each decided on its own: one look at the clock, and all lines of memory asked for before the first is
//! needed.
//!
//! Where a table does not fit the caches, a decision waits for memory most of its time, and the look at the clock keeps
//! the next one from beginning. Here the waits of a few decisions overlap.

use super::few::{BucketAsk, LevelTable, buckets, level};
use crate::memory::bucket::Bucket;
use crate::memory::store::PolicyBuckets;
use crate::store::{Ask, DecisionFuture};

/// The number of lines that are asked for at once: about as many as a core can wait for.
const AHEAD: usize = 16;

impl PolicyBuckets {
    /// Decides each ask on its own, in their order. States that are no levels need the moment under their lock, and are
    /// decided one after the other.
    pub(in crate::memory) fn decide_many(&self, asks: &[Ask<'_>], answer: &mut dyn FnMut(DecisionFuture)) {
        let now_us = self.context.clock.now_us();
        for asks in asks.chunks(AHEAD) {
            let mut found: [Option<(&Bucket, &LevelTable, u64)>; AHEAD] = [None; AHEAD];
            for (ask, found) in asks.iter().zip(&mut found) {
                *found = self.touch(ask);
            }
            for (ask, found) in asks.iter().zip(found) {
                let alone = std::slice::from_ref(ask);
                answer(match found {
                    Some((bucket, table, hash)) => {
                        let mut asked = BucketAsk::new((bucket, Some(table)), (ask, hash), (0, 0));
                        self.decide_few(alone, &mut [&mut asked], Some(now_us))
                    }
                    None => self.decide_now(alone),
                });
            }
        }
    }

    /// Asks for the line of a key that is counted by one level, and returns where it is.
    #[inline]
    fn touch<'a>(&self, ask: &Ask<'a>) -> Option<(&'a Bucket, &'a LevelTable, u64)> {
        let mut buckets = buckets(ask)?;
        let bucket = buckets.next().filter(|_| buckets.next().is_none())?;
        let (table, hash) = (level(bucket)?, self.context.hash(bucket.salt, ask.key()));
        table.touch(hash);
        Some((bucket, table, hash))
    }
}
