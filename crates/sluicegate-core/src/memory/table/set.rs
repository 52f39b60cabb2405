//! A set: the layout of its words, and its lock.
//!
//! ```text
//! states     one to three words for each slot
//! tags       32 bits for each slot
//! plans      16 bits for each slot, in tables with plans
//! high       8 bits for each slot, in tables with plans
//! forgotten  16 bits, at byte 4 of the last word
//! lock       a bit in the last byte of the last word
//! ```
//!
//! All of it is in words, because a list of words can be allocated as pages that are zero already and stay untouched. A type that is
//! aligned to 64 bytes could not: std writes its zeros, and then all of the table is resident.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of a cache line.
pub(super) const LINE: usize = 8;

/// The bit of the last word that is set while a set is locked. Not the sign bit, of which compilers make a loop instead of a single `bts`.
const LOCKED: u64 = 1 << 56;

/// Five slots of one word, three of two, or two of three: at most 63 bytes, so that a set is one cache line. With plans of keys
/// there are four slots of one word in a line, or five of two or four of three in two lines. `SIZE` words are one line or two.
///
/// The first word of a slot is its time with 12 bits below it, which are the `aux` of a state of one word. Then come the
/// `aux` of a state of two words, and the account if there are accounts.
#[derive(Clone, Copy)]
pub(super) struct Set<'a, const SLOTS: usize, const WORDS: usize, const OWN: usize, const SIZE: usize>(
    &'a [AtomicU64; SIZE],
);

impl<'a, const SLOTS: usize, const WORDS: usize, const OWN: usize, const SIZE: usize>
    Set<'a, SLOTS, WORDS, OWN, SIZE>
{
    // The first bytes of the fields, and of the room behind them.
    const TAGS: usize = 8 * WORDS * SLOTS;
    const PLANS: usize = Self::TAGS + 4 * SLOTS;
    const HIGH: usize = Self::PLANS + 2 * OWN;
    const END: usize = Self::HIGH + OWN;
    const FORGOTTEN: usize = 8 * SIZE - 4;

    /// The set of these words.
    #[inline]
    pub(super) fn of(words: &'a [AtomicU64; SIZE]) -> Self {
        const { assert!(Self::END <= Self::FORGOTTEN, "the slots need more words") };
        Self(words)
    }

    #[inline]
    pub(super) fn state(self, slot: usize) -> &'a [AtomicU64; WORDS] {
        &self.0.as_chunks().0[slot]
    }

    #[inline]
    pub(super) fn tag(self, slot: usize) -> u32 {
        (self.field(Self::TAGS + 4 * slot) & 0xffff_ffff) as u32
    }

    /// The slot with this tag.
    #[inline]
    pub(super) fn find(self, tag: u32) -> Option<usize> {
        (0..SLOTS).position(|slot| self.tag(slot) == tag)
    }

    #[inline]
    pub(super) fn set_tag(self, slot: usize, tag: u32) {
        self.set_field(Self::TAGS + 4 * slot, 0xffff_ffff, tag.into());
    }

    /// The number of the plan by which a state is counted, in a table with plans.
    #[inline]
    pub(super) fn plan(self, slot: usize) -> u16 {
        (self.field(Self::PLANS + 2 * slot) & 0xffff) as u16
    }

    #[inline]
    pub(super) fn set_plan(self, slot: usize, plan: u16) {
        self.set_field(Self::PLANS + 2 * slot, 0xffff, plan.into());
    }

    /// The eight bits of `aux` above the 12 beside the time of a state of one word, in a table with plans.
    #[inline]
    pub(super) fn high(self, slot: usize) -> u8 {
        (self.field(Self::HIGH + slot) & 0xff) as u8
    }

    #[inline]
    pub(super) fn set_high(self, slot: usize, high: u8) {
        self.set_field(Self::HIGH + slot, 0xff, high.into());
    }

    /// The number of states of this set that were forgotten before they were at rest. It may wrap around.
    #[inline]
    pub(super) fn forgotten(self) -> u16 {
        (self.field(Self::FORGOTTEN) & 0xffff) as u16
    }

    pub(super) fn forget_one(self) {
        let more = self.forgotten().wrapping_add(1);
        self.set_field(Self::FORGOTTEN, 0xffff, more.into());
    }

    /// The bits of a word from this byte on.
    #[inline]
    fn field(self, byte: usize) -> u64 {
        self.0[byte / 8].load(Ordering::Relaxed) >> (byte % 8 * 8)
    }

    /// Writes the bits of `mask` at this byte. Meanwhile other threads may set the lock bit alone, which is set already.
    #[inline]
    fn set_field(self, byte: usize, mask: u64, value: u64) {
        let (word, shift) = (&self.0[byte / 8], byte % 8 * 8);
        let others = word.load(Ordering::Relaxed) & !(mask << shift);
        word.store(others | value << shift, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn lock(self) {
        if !self.try_lock() {
            self.wait_for_lock();
        }
    }

    #[cfg(not(loom))]
    #[inline]
    fn try_lock(self) -> bool {
        // Acquire: the writes of the last holder are visible. All accesses in between may then be relaxed.
        self.last().fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0
    }

    /// A try that fails writes nothing here: loom would let the thread read what it wrote then, and never that the lock is free.
    #[cfg(loom)]
    fn try_lock(self) -> bool {
        let free = self.last().load(Ordering::Relaxed) & !LOCKED;
        self.last().compare_exchange(free, free | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits longer each time, because a read takes the cache line from the holder, which needs it to proceed. Then yields, in case the
    /// holder was preempted.
    #[cold]
    fn wait_for_lock(self) {
        let mut turn = 0_u32;
        loop {
            wait_a_turn(turn);
            if self.last().load(Ordering::Relaxed) & LOCKED == 0 && self.try_lock() {
                return;
            }
            turn = turn.saturating_add(1);
        }
    }

    #[inline]
    pub(super) fn unlock(self) {
        let word = self.last().load(Ordering::Relaxed) & !LOCKED;
        // Release: pairs with the acquire of the next lock.
        self.last().store(word, Ordering::Release);
    }

    #[inline]
    fn last(self) -> &'a AtomicU64 {
        &self.0[SIZE - 1]
    }
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
