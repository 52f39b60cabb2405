//! A batch of keys, each decided on its own: one look at the clock, and all lines of memory asked for before the first is
//! needed.
//!
//! Where a table does not fit the caches, a decision waits for memory most of its time, and the look at the clock keeps
//! the next one from beginning. Here the waits of a few decisions overlap.

use super::alone;
use crate::memory::bucket::Bucket;
use crate::memory::home::Home;
use crate::memory::store::PolicyBuckets;
use crate::memory::table::Table;
use crate::store::{Ask, DecisionFuture};

/// The number of lines that are asked for at once: about as many as a core can wait for.
const AHEAD: usize = 16;

/// A level in a table, and the hash of its key.
type TableLevel<'a> = (&'a Bucket, &'a Table<5, 1, false>, u64);

impl PolicyBuckets {
    /// Decides each ask on its own, in their order. States that are no levels need the moment under their lock, and are
    /// decided one after the other.
    pub(in crate::memory) fn decide_many(&self, asks: &[Ask<'_>], answer: &mut dyn FnMut(DecisionFuture)) {
        let now_us = self.context.clock.now_us();
        for asks in asks.chunks(AHEAD) {
            let mut levels: [Option<TableLevel<'_>>; AHEAD] = [None; AHEAD];
            for (ask, level) in asks.iter().zip(&mut levels) {
                *level = self.level(ask);
                if let Some((_, table, hash)) = level {
                    table.touch(*hash);
                }
            }
            for (ask, level) in asks.iter().zip(levels) {
                answer(match level {
                    Some((bucket, table, hash)) => {
                        self.decide_found(table, bucket, (ask, hash), Some(now_us))
                    }
                    None => self.decide_now(std::slice::from_ref(ask)),
                });
            }
        }
    }

    #[inline]
    fn level<'a>(&self, ask: &Ask<'a>) -> Option<TableLevel<'a>> {
        let bucket = alone(ask)?;
        match bucket.home() {
            Home::Narrow(table) => Some((bucket, table, self.context.hash(bucket.salt, ask.key()))),
            _ => None,
        }
    }
}
