//! The table: fixed, set-associative, one cache line per look-up.
//!
//! # Design
//! A map of keys has to grow and to be swept, both under a lock. Here memory is allocated
//! once, and a page of it is resident from its first key on; a set is 64 bytes and aligned, so that a look-up touches one cache line, and
//! has its own lock of one bit, so that only requests of the same set contend. A tag of 32 bits stands for the
//! key: in a set of five, an absent key is mistaken for another one once in a billion
//! look-ups.
//!
//! # Invariants
//! - All of a set is read and written under its lock. The words are atomics for `unsafe`-free
//!   sharing, not for their ordering: the lock's acquire and release order them, and all accesses
//!   are relaxed.
//! - A tag stays when its state comes to rest, so that it is found again if the clock is set back a little.
//! - The lock is held for a few dozen instructions and never across a call that may block. Waiting
//!   spins, and yields after 32 turns.
//! - Several sets, also of several tables, are locked in ascending order.
//!
//! The models at the end of the file run every interleaving of two threads through a set.

mod locked;
mod set;
mod words;

#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Count;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;

use self::locked::SetOfTable;
pub(super) use self::locked::{Copy, Locked};
use self::set::{LINE, Set};
use self::words::until_of;
pub(super) use self::words::{SlotWords, state_words};
use crate::policy::OnFull;

/// A fixed table of 64-byte sets that holds the keys of one quota. A key's hash selects its set (low half) and
/// identifies it there (high half, the tag).
///
/// A slot with a state back at rest is free by definition, so no sweep is needed. When all slots of a
/// set are in use, the least indebted key makes room: a flood of new keys evicts lightly used keys, never keys in deep debt. The evicted
/// key is forgotten, or leaves its debt to its set: then new keys there start with the heaviest such debt.
///
/// If keys bring quotas of their own, each slot names in `OWN` places (all slots, or none) the quota that its state is counted by.
pub(super) struct Table<
    const SLOTS: usize,
    const WORDS: usize,
    const ACCOUNTS: bool,
    const OWN: usize = 0,
    const SIZE: usize = LINE,
> {
    /// The sets, each at the beginning of a cache line.
    words: Box<[AtomicU64]>,
    /// The number of words in front of the first set.
    skipped: usize,
    sets: usize,
    /// The debt that keys that made room have left to each set, `WORDS` words; empty if they are forgotten.
    left: Box<[AtomicU64]>,
    /// Whether no debtor makes room.
    keeps: bool,
    evictions: Arc<Count>,
}

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize, const SIZE: usize>
    Table<SLOTS, WORDS, ACCOUNTS, OWN, SIZE>
{
    /// A table of at least `slots` slots, which counts in `evictions` the keys that make room.
    pub(super) fn new(slots: usize, on_full: OnFull, evictions: &Arc<Count>) -> Self {
        let mut sets = slots.div_ceil(SLOTS).max(1);
        // There was room when the policy was opened. If it is gone, a smaller table forgets sooner, and a panic would refuse all requests.
        let words = loop {
            match zeros(sets.saturating_mul(SIZE).saturating_add(LINE - 1)) {
                Some(words) => break words,
                None => sets = (sets / 2).max(1),
            }
        };
        let skipped = words.as_ptr().align_offset(64).min(LINE - 1);
        let left = zeros(if on_full == OnFull::Inherit { sets * WORDS } else { 0 }).unwrap_or_default();
        Self { words, skipped, sets, left, keeps: on_full == OnFull::Keep, evictions: Arc::clone(evictions) }
    }

    /// The set that a hash belongs to.
    #[inline]
    pub(super) fn set_of(&self, hash: u64) -> usize {
        (((hash & u64::from(u32::MAX)) * self.sets as u64) >> 32) as usize
    }

    /// Whether no slot belongs to this hash and sets inherit no debts. Without a lock.
    #[inline]
    pub(super) fn is_unknown(&self, hash: u64) -> bool {
        // Relaxed: a thread that has an answer about a state stored under the lock sees its tag.
        self.left.is_empty() && self.set(self.set_of(hash)).find(tag_of(hash)).is_none()
    }

    /// Locks a set until the guard is dropped. Several are locked in the order of their indices.
    #[inline]
    pub(super) fn lock(&self, index: usize) -> Locked<'_, SLOTS, WORDS, ACCOUNTS, OWN, SIZE> {
        let set = self.set(index);
        set.lock();
        Locked(SetOfTable { set, table: self, index })
    }

    /// The number of slots that hold a state that is not at rest. It reads the whole table without a lock.
    pub(super) fn in_use(&self, now_us: u64) -> usize {
        self.states_in_use(now_us).count()
    }

    fn states_in_use(&self, now_us: u64) -> impl Iterator<Item = &[AtomicU64; WORDS]> {
        let slots =
            (0..self.sets).flat_map(move |index| (0..SLOTS).map(move |slot| self.set(index).state(slot)));
        slots.filter(move |state| until_of(state) > now_us)
    }

    #[inline]
    fn set(&self, index: usize) -> Set<'_, SLOTS, WORDS, OWN, SIZE> {
        let words = &self.words[self.skipped + index * SIZE..];
        Set::of(words.first_chunk().expect("a set has all its words"))
    }
}

/// Zeros, if there is memory for them. Their pages are not resident until they are written.
#[cfg(not(loom))]
fn zeros(words: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::try_zeroed_slice_box(words).ok()
}

#[cfg(loom)]
fn zeros(words: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..words).map(|_| AtomicU64::new(0)).collect())
}

/// The words that are allocated without a trial: 64 MiB. An allocator may keep a smaller piece that is given back, and clear it for the
/// table, whose pages would all be resident then.
const UNTRIED: usize = 1 << 23;

/// Whether there is memory for this many words.
pub(super) fn fits(words: usize) -> bool {
    words <= UNTRIED || zeros(words).is_some()
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests;

/// Every interleaving of two threads. Run with `RUSTFLAGS="--cfg loom"`.
#[cfg(all(test, loom))]
mod model;
