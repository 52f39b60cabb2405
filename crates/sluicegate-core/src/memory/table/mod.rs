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
//!
//! # Layout of a set
//! ```text
//! states     one to three words for each slot
//! tags       32 bits for each slot
//! plans      16 bits for each slot, in tables of three words
//! forgotten  16 bits, at byte 4 of the last word
//! lock       a bit in the last byte of the last word
//! ```

use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Count;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

use super::slot::{QuotaRules, SlotWords, load, store, until_of};
use crate::policy::OnFull;

/// A fixed table of 64-byte sets that holds the keys of one quota. A key's hash selects its set (low half) and
/// identifies it there (high half, the tag).
///
/// A slot with a state back at rest is free by definition, so no sweep is needed. When all slots of a
/// set are in use, the least indebted key makes room: a flood of new keys evicts lightly used keys, never keys in deep debt. The evicted
/// key is forgotten, or leaves its debt to its set: then new keys there start with the heaviest such debt.
///
/// A slot of three words has an account, and names the quota that its state is counted by. `SIZE` words are a set.
pub(super) struct Table<const WORDS: usize, const SIZE: usize> {
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

/// The tables of one, two and three words for each slot.
pub(super) type NarrowTable = Table<1, LINE>;
pub(super) type WideTable = Table<2, LINE>;
pub(super) type FullTable = Table<3, { 2 * LINE }>;

/// The slots of a set.
pub(super) const fn slots_of_a_set(words: usize) -> usize {
    [5, 3, 4][words - 1]
}

impl<const WORDS: usize, const SIZE: usize> Table<WORDS, SIZE> {
    const SLOTS: usize = slots_of_a_set(WORDS);

    /// A table of at least `slots` slots, which counts in `evictions` the keys that make room.
    pub(super) fn new(slots: usize, on_full: OnFull, evictions: &Arc<Count>) -> Self {
        let mut sets = slots.div_ceil(Self::SLOTS).max(1);
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
    pub(super) fn lock(&self, index: usize) -> Locked<'_, WORDS, SIZE> {
        let set = self.set(index);
        set.lock();
        Locked(SetOfTable { set, table: self, index })
    }

    /// The number of slots that hold a state that is not at rest. It reads the whole table without a lock.
    pub(super) fn in_use(&self, now_us: u64) -> usize {
        self.states_in_use(now_us).count()
    }

    fn states_in_use(&self, now_us: u64) -> impl Iterator<Item = &[AtomicU64; WORDS]> {
        let slots = (0..self.sets)
            .flat_map(move |index| (0..Self::SLOTS).map(move |slot| self.set(index).state(slot)));
        slots.filter(move |state| until_of(state) > now_us)
    }

    #[inline]
    fn set(&self, index: usize) -> Set<'_, WORDS, SIZE> {
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

/// The contents of a set: a row for each slot with its tag and words, and a row for the debt left to the set.
pub(super) type Copy = [[u64; 4]; 6];

/// A locked set.
pub(super) struct Locked<'a, const WORDS: usize, const SIZE: usize>(SetOfTable<'a, WORDS, SIZE>);

/// A set of a table.
///
/// Rare paths take a copy: passing the guard by reference would make every decision write it to memory.
#[derive(Clone, Copy)]
struct SetOfTable<'a, const WORDS: usize, const SIZE: usize> {
    set: Set<'a, WORDS, SIZE>,
    table: &'a Table<WORDS, SIZE>,
    index: usize,
}

impl<const WORDS: usize, const SIZE: usize> Locked<'_, WORDS, SIZE> {
    /// The slot of a hash, if it is in this set.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<usize> {
        self.0.set.find(tag_of(hash))
    }

    /// The slot of a hash, and its entry.
    #[inline]
    pub(super) fn look(&self, hash: u64) -> (Option<usize>, SlotWords) {
        let slot = self.find(hash);
        (slot, self.get(slot))
    }

    /// The entry in a slot that `find` found; if it found none, the entry of a key at rest, with any debt that the key inherits.
    #[inline]
    pub(super) fn get(&self, slot: Option<usize>) -> SlotWords {
        match slot {
            Some(slot) => self.0.load(slot),
            None => self.0.left().map_or_else(SlotWords::default, load),
        }
    }

    /// Stores the entry of a hash in the slot that `find` found, or in the place of the least indebted key.
    // Always: a call would take a quarter of the time that the table takes.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        slot: Option<usize>,
        hash: u64,
        kept: SlotWords,
        rules: &QuotaRules,
        now_us: u64,
    ) {
        match slot {
            Some(slot) => self.0.replace(slot, kept),
            None => self.0.insert(hash, kept, rules, now_us),
        }
    }

    /// Sets a key to rest, whatever its debt.
    pub(super) fn reset(&mut self, hash: u64) {
        if let Some(slot) = self.find(hash) {
            self.0.store(slot, SlotWords::default());
        }
        self.0.set.forget_one();
    }

    /// A number that changes when a key of this set is forgotten or reset.
    pub(super) fn forgotten(&self) -> u64 {
        self.0.set.forgotten().into()
    }

    /// The contents of the set.
    pub(super) fn copy(&self) -> Copy {
        let mut copy = [[0; 4]; 6];
        let set = self.0.set;
        for (slot, to) in copy.iter_mut().enumerate().take(slots_of_a_set(WORDS)) {
            to[0] = u64::from(set.tag(slot)) << 32 | u64::from(set.plan(slot));
            for (to, word) in to[1..].iter_mut().zip(set.state(slot)) {
                *to = word.load(Ordering::Relaxed);
            }
        }
        for (to, word) in copy[5].iter_mut().zip(self.0.left().into_iter().flatten()) {
            *to = word.load(Ordering::Relaxed);
        }
        copy
    }

    /// Restores the set from a copy.
    pub(super) fn restore(&mut self, copy: &Copy) {
        let set = self.0.set;
        for (slot, from) in copy.iter().enumerate().take(slots_of_a_set(WORDS)) {
            set.set_tag(slot, tag_of(from[0]));
            set.set_plan(slot, (from[0] & 0xffff) as u16);
            for (from, word) in from[1..].iter().zip(set.state(slot)) {
                word.store(*from, Ordering::Relaxed);
            }
        }
        for (from, word) in copy[5].iter().zip(self.0.left().into_iter().flatten()) {
            word.store(*from, Ordering::Relaxed);
        }
    }
}

impl<'a, const WORDS: usize, const SIZE: usize> SetOfTable<'a, WORDS, SIZE> {
    /// The debt that keys that made room have left to this set.
    #[inline]
    fn left(self) -> Option<&'a [AtomicU64; WORDS]> {
        self.table.left.get(self.index * WORDS..)?.first_chunk()
    }

    /// The entry in a slot.
    #[inline]
    fn load(self, slot: usize) -> SlotWords {
        SlotWords { plan: self.set.plan(slot), ..load(self.set.state(slot)) }
    }

    /// Stores an entry in the place of another one of the same key. If it is counted by another plan, it is a new bucket from now on.
    #[inline]
    fn replace(self, slot: usize, kept: SlotWords) {
        if self.set.plan(slot) != kept.plan {
            self.set.forget_one();
        }
        self.store(slot, kept);
    }

    #[inline]
    fn store(self, slot: usize, kept: SlotWords) {
        store(self.set.state(slot), kept);
        self.set.set_plan(slot, kept.plan);
    }

    #[cold]
    fn insert(self, hash: u64, kept: SlotWords, rules: &QuotaRules, now_us: u64) {
        // Evict the key that is longest at rest first (if the clock is set back a little, the others are found again), then the least debt.
        let debt_of = |slot: &usize| {
            let kept = self.load(*slot);
            let is_debt = kept.state.until_us > now_us;
            if is_debt { Err(rules.weight(&kept, WORDS == 3, now_us)) } else { Ok(kept.state.until_us) }
        };
        let victim = (0..slots_of_a_set(WORDS)).min_by_key(debt_of).unwrap_or(0);
        if kept.state.until_us <= now_us && debt_of(&victim) >= Ok(kept.state.until_us) {
            return;
        }
        if debt_of(&victim).is_err() {
            self.table.evictions.fetch_add(1, Ordering::Relaxed);
            if self.table.keeps {
                return;
            }
            self.set.forget_one();
            self.leave(self.load(victim), rules, now_us);
        }
        self.set.set_tag(victim, tag_of(hash));
        self.store(victim, kept);
    }

    /// Leaves the debt of a key that makes room to its set.
    ///
    /// The heavier of two debts stays. A newcomer never makes it lighter, and it drains like any
    /// state.
    fn leave(self, kept: SlotWords, rules: &QuotaRules, now_us: u64) {
        let Some(left) = self.left() else { return };
        let (rule, before) = (&rules.own, load(left).state);
        // Counted by the policy's own quota, because any key may inherit it.
        let state = rules.counted(kept, (rule, 0), now_us).state;
        let state = if before.until_us > now_us { rule.heavier(before, state, now_us) } else { state };
        // Without an account: one key cannot give back the units of another.
        store(left, SlotWords { state, ..SlotWords::default() });
    }
}

impl<const WORDS: usize, const SIZE: usize> Drop for Locked<'_, WORDS, SIZE> {
    #[inline]
    fn drop(&mut self) {
        self.0.set.unlock();
    }
}

/// The words of a cache line.
const LINE: usize = 8;

/// The bit of the last word that is set while a set is locked. Not the sign bit, of which compilers make a loop instead of a single `bts`.
const LOCKED: u64 = 1 << 56;

/// Five slots of one word or three of two in a cache line, or four of three in two lines.
///
/// The first word of a slot is its time with 12 bits below it, which are the `aux` of a state of one word. Then come the
/// `aux` of a state of two words, and the account.
#[derive(Clone, Copy)]
struct Set<'a, const WORDS: usize, const SIZE: usize>(&'a [AtomicU64; SIZE]);

impl<'a, const WORDS: usize, const SIZE: usize> Set<'a, WORDS, SIZE> {
    const SLOTS: usize = slots_of_a_set(WORDS);
    // The first bytes of the fields, and of the room behind them.
    const TAGS: usize = 8 * WORDS * Self::SLOTS;
    const PLANS: usize = Self::TAGS + 4 * Self::SLOTS;
    const END: usize = Self::PLANS + if WORDS == 3 { 2 * Self::SLOTS } else { 0 };
    const FORGOTTEN: usize = 8 * SIZE - 4;

    /// The set of these words.
    #[inline]
    fn of(words: &'a [AtomicU64; SIZE]) -> Self {
        const { assert!(Self::END <= Self::FORGOTTEN, "the slots need more words") };
        Self(words)
    }

    #[inline]
    fn state(self, slot: usize) -> &'a [AtomicU64; WORDS] {
        &self.0.as_chunks().0[slot]
    }

    #[inline]
    fn tag(self, slot: usize) -> u32 {
        (self.field(Self::TAGS + 4 * slot) & 0xffff_ffff) as u32
    }

    /// The slot with this tag.
    #[inline]
    fn find(self, tag: u32) -> Option<usize> {
        (0..Self::SLOTS).position(|slot| self.tag(slot) == tag)
    }

    #[inline]
    fn set_tag(self, slot: usize, tag: u32) {
        self.set_field(Self::TAGS + 4 * slot, 0xffff_ffff, tag.into());
    }

    /// The number of the plan by which a state is counted; 0 in tables without plans.
    #[inline]
    fn plan(self, slot: usize) -> u16 {
        if WORDS < 3 { 0 } else { (self.field(Self::PLANS + 2 * slot) & 0xffff) as u16 }
    }

    #[inline]
    fn set_plan(self, slot: usize, plan: u16) {
        if WORDS == 3 {
            self.set_field(Self::PLANS + 2 * slot, 0xffff, plan.into());
        }
    }

    /// The number of states of this set that were forgotten before they were at rest. It may wrap around.
    #[inline]
    fn forgotten(self) -> u16 {
        (self.field(Self::FORGOTTEN) & 0xffff) as u16
    }

    fn forget_one(self) {
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
    fn lock(self) {
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
    fn unlock(self) {
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

/// Every interleaving of two threads. Run with `RUSTFLAGS="--cfg loom"`.
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
