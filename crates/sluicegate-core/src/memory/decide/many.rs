//! A batch of keys, each decided on its own: one look at the clock, and all lines of memory requested before the first is
//! needed.
//!
//! If a table does not fit the caches, a decision waits for memory most of its time, and reading the clock keeps
//! the next decision from starting. Here the waits of a few decisions overlap.

use super::alone::spend_one;
use super::few::{LevelTable, buckets, level};
use super::{counts_rejected, status_after};
use crate::decision::Decision;
use crate::memory::bucket::Bucket;
use crate::memory::store::PolicyBuckets;
use crate::store::{Ask, DecisionFuture, Mode};

/// The number of lines requested at once: about as many as a core can wait for.
const AHEAD: usize = 16;

/// A level in a table, and the hash of its key.
type FoundLevel<'a> = (&'a Bucket, &'a LevelTable, u64);

impl PolicyBuckets {
    /// Decides each ask on its own, in order. States that are not levels need the moment under their lock, and are
    /// decided one after the other.
    pub(in crate::memory) fn decide_many(&self, asks: &[Ask<'_>], answer: &mut dyn FnMut(DecisionFuture)) {
        let now_us = self.context.clock.now_us();
        for asks in asks.chunks(AHEAD) {
            let mut found: [Option<FoundLevel<'_>>; AHEAD] = [None; AHEAD];
            for (ask, found) in asks.iter().zip(&mut found) {
                *found = self.touch(ask);
            }
            for (ask, found) in asks.iter().zip(found) {
                let decided = found.and_then(|found| spend_at(found, ask, now_us));
                answer(decided.unwrap_or_else(|| self.decide_now(std::slice::from_ref(ask))));
            }
        }
    }

    /// Requests the line of a key that is counted by one level, and returns its location.
    #[inline]
    fn touch<'a>(&self, ask: &Ask<'a>) -> Option<FoundLevel<'a>> {
        let mut buckets = buckets(ask).filter(|_| ask.mode() == Mode::Spend)?;
        let bucket = buckets.next().filter(|_| buckets.next().is_none())?;
        let (table, hash) = (level(bucket)?, self.context.hash(bucket.salt, self.context.hashed(ask.key())));
        table.touch(hash);
        Some((bucket, table, hash))
    }
}

/// Spends from one level; `None` if one look is not enough.
#[inline]
fn spend_at((bucket, table, hash): FoundLevel<'_>, ask: &Ask<'_>, now_us: u64) -> Option<DecisionFuture> {
    let cost = ask.cost();
    let (_, spent) = spend_one(table, (bucket, &bucket.rules.own, None), (hash, cost), || now_us)?;
    let status = status_after((0, 0), &spent, cost);
    let is_decided = spent.passed || !counts_rejected(ask);
    is_decided.then(|| DecisionFuture::ready(Ok(Decision::single(now_us, status))))
}
