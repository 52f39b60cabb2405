//! The table: fixed, set-associative, one cache line per look-up.
//!
//! # Design
//! A map of keys has to grow and to be swept, both under a lock. Here memory is allocated
//! once; a set is 64 bytes and aligned, so that a look-up touches one cache line, and has its own
//! lock of one byte, so that only requests of the same set contend. A tag of 32 bits stands for the
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
mod words;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Count;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use self::locked::SetOfTable;
pub(super) use self::locked::{Copy, Locked};
use self::words::until_of;
pub(super) use self::words::{SlotWords, state_words};
use crate::policy::OnFull;

/// An array of one value. `array::from_fn` compiles to a hundred lines for each length.
#[cfg(not(loom))]
macro_rules! filled {
    ($value:expr) => {
        [const { $value }; _]
    };
}

/// The atomics of loom are no constants.
#[cfg(loom)]
macro_rules! filled {
    ($value:expr) => {
        std::array::from_fn(|_| $value)
    };
}

/// A fixed table of 64-byte sets that holds the keys of one quota. A key's hash selects its set (low half) and
/// identifies it there (high half, the tag).
///
/// A slot with a state back at rest is free by definition, so no sweep is needed. When all slots of a
/// set are in use, the least indebted key makes room: a flood of new keys evicts lightly used keys, never keys in deep debt. The evicted
/// key is forgotten, or leaves its debt to its set: then new keys there start with the heaviest such debt.
///
/// If keys bring quotas of their own, each slot names in `OWN` places (all slots, or none) the quota that its state is counted by.
pub(super) struct Table<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize = 0> {
    sets: Box<[Set<SLOTS, WORDS, OWN>]>,
    /// The debt that keys that made room have left to each set; empty if they are forgotten.
    left: Box<[[AtomicU64; WORDS]]>,
    evictions: Arc<Count>,
}

/// Five slots of one word, three of two, or two of three: at most 63 bytes, so that a set is one cache line. With plans of keys
/// there are four slots of one word in a line, or five of two or four of three in two lines.
///
/// The first word of a slot is its time with 12 bits below it, which are the `aux` of a state of one word. Then come the
/// `aux` of a state of two words, and the account if there are accounts.
#[repr(align(64))]
struct Set<const SLOTS: usize, const WORDS: usize, const OWN: usize> {
    states: [[AtomicU64; WORDS]; SLOTS],
    tags: [AtomicU32; SLOTS],
    /// The numbers of the plans by which the states are counted.
    plans: [AtomicU16; OWN],
    /// The eight bits of `aux` above the 12 beside the time of a state of one word.
    high: [AtomicU8; OWN],
    /// The number of states of this set that were forgotten before they were at rest. It may wrap around.
    forgotten: AtomicU16,
    locked: AtomicBool,
}

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize>
    Table<SLOTS, WORDS, ACCOUNTS, OWN>
{
    /// A table of at least `slots` slots, which counts in `evictions` the keys that make room.
    pub(super) fn new(slots: usize, on_full: OnFull, evictions: &Arc<Count>) -> Self {
        let sets = slots.div_ceil(SLOTS).max(1);
        let inherited = if on_full == OnFull::Inherit { sets } else { 0 };
        let (mut made, mut left) = (Vec::new(), Vec::new());
        made.resize_with(sets, Set::default);
        left.resize_with(inherited, || filled!(AtomicU64::new(0)));
        Self { sets: made.into(), left: left.into(), evictions: Arc::clone(evictions) }
    }

    /// The set that a hash belongs to.
    #[inline]
    pub(super) fn set_of(&self, hash: u64) -> usize {
        (((hash & u64::from(u32::MAX)) * self.sets.len() as u64) >> 32) as usize
    }

    /// Starts to load the line of a hash from memory, without waiting for it.
    #[inline]
    pub(super) fn touch(&self, hash: u64) {
        // A read that must not be optimised away.
        _ = std::hint::black_box(self.sets[self.set_of(hash)].locked.load(Ordering::Relaxed));
    }

    /// Whether no slot belongs to this hash and sets inherit no debts. Without a lock.
    #[inline]
    pub(super) fn is_unknown(&self, hash: u64) -> bool {
        let (tag, set) = (tag_of(hash), &self.sets[self.set_of(hash)]);
        // Relaxed: a thread that has an answer about a state stored under the lock sees its tag.
        self.left.is_empty() && set.tags.iter().all(|stored| stored.load(Ordering::Relaxed) != tag)
    }

    /// Locks a set until the guard is dropped. Several are locked in the order of their indices.
    #[inline]
    pub(super) fn lock(&self, index: usize) -> Locked<'_, SLOTS, WORDS, ACCOUNTS, OWN> {
        let set = &self.sets[index];
        if !set.try_lock() {
            set.wait_for_lock();
        }
        Locked(SetOfTable { set, table: self, index })
    }

    /// The number of slots that hold a state that is not at rest. It reads the whole table without a lock.
    pub(super) fn in_use(&self, now_us: u64) -> usize {
        let mut in_use = 0;
        for set in &self.sets {
            for state in &set.states {
                in_use += usize::from(until_of(state) > now_us);
            }
        }
        in_use
    }
}

impl<const SLOTS: usize, const WORDS: usize, const OWN: usize> Set<SLOTS, WORDS, OWN> {
    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: the writes of the last holder are visible. All accesses in between may then be relaxed.
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits longer each time, because a read takes the cache line from the holder, which needs it to proceed. Then yields, in case the
    /// holder was preempted.
    #[cold]
    fn wait_for_lock(&self) {
        let mut turn = 0_u32;
        loop {
            wait_a_turn(turn);
            if !self.locked.load(Ordering::Relaxed) && self.try_lock() {
                return;
            }
            turn = turn.saturating_add(1);
        }
    }
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(not(loom))]
fn wait_a_turn(turn: u32) {
    if turn < 32 {
        (0..1 << turn.min(3)).for_each(|_| std::hint::spin_loop());
    } else {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
fn wait_a_turn(_turn: u32) {
    loom::thread::yield_now();
}

impl<const SLOTS: usize, const WORDS: usize, const OWN: usize> Default for Set<SLOTS, WORDS, OWN> {
    fn default() -> Self {
        Self {
            states: filled!(filled!(AtomicU64::new(0))),
            tags: filled!(AtomicU32::new(0)),
            plans: filled!(AtomicU16::new(0)),
            high: filled!(AtomicU8::new(0)),
            forgotten: AtomicU16::new(0),
            locked: AtomicBool::new(false),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

/// Every interleaving of two threads. Run with `RUSTFLAGS="--cfg loom"`.
#[cfg(all(test, loom))]
mod model;
