//! Bounded storage of sliding logs.
//!
//! A log is a chain of entries, and all logs of a quota take their entries from shards of fixed
//! size. One lock guards a shard with its logs, its entries and its free list; a decision holds it
//! while it walks one chain. An entry that is over is freed by the next request of its key, and two
//! other logs are tidied at each spend, so that keys that never return free their room as well.
//!
//! A single log may fill a sixteenth of the entries, the size of its shard. So one key cannot push
//! out more than its own shard, and floods are treated as in tables: of 16 logs drawn at
//! random, the least indebted makes room.

mod change;
mod room;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) use self::shard::{EntryRef, LogCopy, Shard};
use crate::algorithm::SlidingLog;
use crate::policy::OnFull;
use crate::support::lock;

/// The sliding logs of a quota's keys, in shards with a fixed number of keys and of entries each.
///
/// Keys with only expired entries are removed a few at a time as others spend. When a shard is full, the
/// least indebted among a few makes room; they are drawn at random, so that the order of arrival does not select them.
pub(super) struct Logs {
    shards: Box<[Mutex<Shard>]>,
}

const SHARDS: usize = 16;

impl Logs {
    /// Room for this many keys and entries. `seed` selects at random the candidates for eviction.
    pub(super) fn new(
        rule: SlidingLog,
        (keys, entries): (usize, usize),
        (on_full, takes_quotas): (OnFull, bool),
        seed: u64,
        evictions: &Arc<AtomicU64>,
    ) -> Self {
        let room = (keys.div_ceil(SHARDS), entries.div_ceil(SHARDS));
        let shard = |number: u64| {
            Mutex::new(Shard::new(
                rule,
                room,
                (on_full, takes_quotas),
                seed.wrapping_add(number),
                Arc::clone(evictions),
            ))
        };
        Self { shards: (0..SHARDS as u64).map(shard).collect() }
    }

    /// The longest log that a store of `entries` entries can hold.
    pub(super) fn longest(entries: usize) -> usize {
        entries.div_ceil(SHARDS)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder by 16")]
    pub(super) fn shard_of(hash: u64) -> usize {
        (hash % SHARDS as u64) as usize
    }

    pub(super) fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // The code of a shard does not panic; after a panic, its numbers would still be usable.
        lock(&self.shards[shard])
    }

    pub(super) fn in_use(&self, now_us: u64) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).in_use(now_us)).sum()
    }
}
