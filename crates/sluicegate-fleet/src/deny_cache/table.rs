//! Keeps refusals: bounded, and ordered by their end.
//!
//! # Late refusals
//! A refund, a reset or a charge outdates earlier refusals, including answers that have not arrived yet. So each
//! [report](Table::forget) has a number, the latest number of each key is remembered, and an answer is kept only if it was [asked
//! for](Table::mark) after that report. A shard remembers the reports of a few keys; then it forgets them all, and keeps no answer to an
//! earlier question: this costs only a call.
//!
//! # Locking
//! There is one mutex per shard, held for a lookup or a change, never across a call or an await, and never two at once.
//!
//! # Memory
//! There are at most as many refusals as configured, whatever keys arrive, divided over shards: a full shard gives up the refusal that
//! ends first, because it saves the fewest calls. Only a hash of a key is kept. Two keys with the same 128 bits would share a refusal; the
//! hash is keyed at random, so no client can search for such a pair.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::quality::RandomState;
use sluicegate_core::key::KeyRef;
use sluicegate_core::support::lock;

use super::refusal::{CachedRefusal, Id, Mark, Question};
use crate::latch::Latch;

/// The cache's knowledge about a question.
#[derive(Debug)]
pub(super) enum RefusalLookup<R> {
    /// Nothing is known: the store has to be asked.
    Nothing,
    /// The question is refused.
    Refused(R),
    /// Its refusal is over: the next request becomes the probe.
    Due,
    /// Another request is the probe, until this latch opens.
    Probed(Latch),
}

/// The refusals of all policies.
pub(super) struct RefusalTable {
    shards: Box<[Mutex<RefusalShard>]>,
    /// The room of each shard: all shards together have the configured room, rounded up to whole shards.
    most_per_shard: usize,
    /// The time for which a refusal is remembered after its end.
    linger_us: u64,
    /// One seed for each half of an [`Id`].
    seeds: [RandomState; 2],
    /// The number of reports.
    reports: AtomicU64,
    /// The number of times that all keys were forgotten.
    clears: AtomicU64,
    /// The number of refusals, so that a cache without any is passed without a lock.
    keys: AtomicUsize,
    evictions: AtomicU64,
}

#[derive(Default)]
struct RefusalShard {
    refusals: HashMap<Id, CachedRefusal, BuildHasherDefault<Hashed>>,
    /// The refusals by their end, the earliest one first.
    by_end: BTreeSet<(u64, Id)>,
    /// Keys with a probe under way.
    probes: HashMap<Id, Latch, BuildHasherDefault<Hashed>>,
    /// The number of the latest report about each key.
    reports: HashMap<Id, u64, BuildHasherDefault<Hashed>>,
    /// The latest report that is no longer in `reports`.
    forgotten: u64,
}

/// The number of keys of a shard whose reports are remembered: as many as fit a small table of 2 KB.
const REPORTED: usize = 56;

impl RefusalTable {
    pub(super) fn new(keys: usize, linger_us: u64) -> Self {
        let shards = (keys / 64).clamp(1, 64).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            most_per_shard: keys.div_ceil(shards),
            linger_us,
            seeds: [RandomState::default(), RandomState::default()],
            reports: AtomicU64::new(0),
            clears: AtomicU64::new(0),
            keys: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The key under the policy of this number.
    pub(super) fn id(&self, version: u64, key: KeyRef<'_>) -> Id {
        let key = (version, key);
        let [high, low] = [0, 1].map(|half: usize| u128::from(self.seeds[half].hash_one(key)));
        Id(high << 64 | low)
    }

    /// The number of a policy; equal policies have the same number.
    pub(super) fn version(&self, policy: &sluicegate_core::Policy) -> u64 {
        self.seeds[0].hash_one(policy)
    }

    /// The current mark, to be taken before a question is asked.
    pub(super) fn mark(&self) -> Mark {
        // Acquire pairs with the release of each count: a question that sees a count is asked after that report was made. The rest is
        // ordered by the shard's lock.
        Mark { clears: self.clears.load(Ordering::Acquire), reports: self.reports.load(Ordering::Acquire) }
    }

    /// Whether no data is kept about a key.
    #[inline]
    pub(super) fn is_unknown(&self, id: impl FnOnce() -> Id) -> bool {
        self.keys() == 0 || {
            let id = id();
            !self.shard(id).refusals.contains_key(&id)
        }
    }

    /// The knowledge about a question; `refused` converts a refusal.
    #[inline]
    pub(super) fn look<R>(
        &self,
        question: &Question,
        now_us: u64,
        refused: impl FnOnce(&CachedRefusal) -> R,
    ) -> RefusalLookup<R> {
        if self.keys() == 0 {
            return RefusalLookup::Nothing;
        }
        let id = question.id;
        let mut shard = self.shard(id);
        let Some(refusal) = shard.refusals.get(&id) else { return RefusalLookup::Nothing };
        if refusal.refuses(question, now_us) {
            return RefusalLookup::Refused(refused(refusal));
        }
        if now_us < refusal.ends_us {
            // Nothing is known about a lower cost, or about a longer wait.
            return RefusalLookup::Nothing;
        }
        match shard.probes.get(&id) {
            Some(probe) => RefusalLookup::Probed(probe.clone()),
            None if now_us >= refusal.ends_us.saturating_add(self.linger_us) => {
                self.remove(&mut shard, id);
                RefusalLookup::Nothing
            }
            None => RefusalLookup::Due,
        }
    }

    /// Starts a probe for a key whose refusal is over, which lasts until it is dropped. `None` if there is one already.
    pub(super) fn probe(self: &Arc<Self>, id: Id) -> Option<KeyProbe> {
        let mut shard = self.shard(id);
        if shard.probes.contains_key(&id) {
            return None;
        }
        let latch = Latch::closed();
        shard.probes.insert(id, latch.clone());
        Some(KeyProbe { table: Arc::clone(self), id, latch })
    }

    /// Keeps the answer about a key: a refusal, or that there is no longer one.
    pub(super) fn keep(&self, id: Id, mark: Mark, refusal: Option<CachedRefusal>) {
        if refusal.is_none() && self.keys() == 0 {
            return;
        }
        let mut shard = self.shard(id);
        let reported = shard.reports.get(&id).copied().unwrap_or(shard.forgotten);
        if self.clears.load(Ordering::Acquire) != mark.clears || reported > mark.reports {
            return;
        }
        self.remove(&mut shard, id);
        let Some(refusal) = refusal else { return };
        if shard.refusals.len() >= self.most_per_shard {
            // The refusal that ends first has the least to refuse.
            let Some((soonest_us, soonest)) = shard.by_end.first().copied() else { return };
            self.evictions.fetch_add(1, Ordering::Relaxed);
            if soonest_us > refusal.ends_us {
                return;
            }
            self.remove(&mut shard, soonest);
        }
        shard.by_end.insert((refusal.ends_us, id));
        shard.refusals.insert(id, refusal);
        // Relaxed, here and below: this count is beside the shards, which are read under their locks.
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets a key after a report about it.
    pub(super) fn forget(&self, id: Id) {
        let mut shard = self.shard(id);
        // Release: pairs with the acquire in `mark`.
        let number = self.reports.fetch_add(1, Ordering::Release) + 1;
        if shard.reports.len() >= REPORTED && !shard.reports.contains_key(&id) {
            shard.reports.clear();
            shard.forgotten = number - 1;
        }
        shard.reports.insert(id, number);
        self.remove(&mut shard, id);
    }

    /// Forgets all keys.
    pub(super) fn clear(&self) {
        self.clears.fetch_add(1, Ordering::Release);
        for shard in &self.shards {
            let mut shard = lock(shard);
            self.keys.fetch_sub(shard.refusals.len(), Ordering::Relaxed);
            shard.refusals.clear();
            shard.by_end.clear();
        }
    }

    /// The number of keys, and of keys that had to make room.
    pub(super) fn counts(&self) -> (usize, u64) {
        (self.keys(), self.evictions.load(Ordering::Relaxed))
    }

    fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    fn remove(&self, shard: &mut RefusalShard, id: Id) {
        if let Some(refusal) = shard.refusals.remove(&id) {
            shard.by_end.remove(&(refusal.ends_us, id));
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn shard(&self, id: Id) -> MutexGuard<'_, RefusalShard> {
        // A power of two, so the lowest bits choose one.
        let shard = usize::try_from(id.0 & (self.shards.len() as u128 - 1)).unwrap_or(0);
        lock(&self.shards[shard])
    }
}

/// Tests a key with one call; other requests for the key wait until the probe is dropped.
///
/// It is dropped with its call, answered or not: after an error the next request becomes the probe.
pub(super) struct KeyProbe {
    table: Arc<RefusalTable>,
    id: Id,
    latch: Latch,
}

impl Drop for KeyProbe {
    fn drop(&mut self) {
        self.table.shard(self.id).probes.remove(&self.id);
        self.latch.open();
    }
}

/// A hasher for values that are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |all, byte| all.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = u64::try_from(hash >> 64).unwrap_or(0);
    }
}
