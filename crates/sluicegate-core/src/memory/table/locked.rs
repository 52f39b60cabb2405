//! A locked set of the table: its keys and their changes.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use super::set::LINE;
use super::words::{AUX_BITS, SlotWords, load, state_words, store};
use super::{Set, Table, tag_of};
use crate::memory::plans::QuotaRules;

/// The contents of a set: a row for each slot with its tag and words, and a row for the debt left to the set.
pub(in crate::memory) type Copy = [[u64; 4]; 6];

/// A locked set.
pub(in crate::memory) struct Locked<
    'a,
    const SLOTS: usize,
    const WORDS: usize,
    const ACCOUNTS: bool,
    const OWN: usize = 0,
    const SIZE: usize = LINE,
>(pub(super) SetOfTable<'a, SLOTS, WORDS, ACCOUNTS, OWN, SIZE>);

/// A set of a table.
///
/// Rare paths take a copy: passing the guard by reference would make every decision write it to memory.
#[derive(Clone, Copy)]
pub(super) struct SetOfTable<
    'a,
    const SLOTS: usize,
    const WORDS: usize,
    const ACCOUNTS: bool,
    const OWN: usize,
    const SIZE: usize,
> {
    pub(super) set: Set<'a, SLOTS, WORDS, OWN, SIZE>,
    pub(super) table: &'a Table<SLOTS, WORDS, ACCOUNTS, OWN, SIZE>,
    pub(super) index: usize,
}

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize, const SIZE: usize>
    Locked<'_, SLOTS, WORDS, ACCOUNTS, OWN, SIZE>
{
    /// The slot of a hash, if it is in this set.
    #[inline]
    pub(in crate::memory) fn find(&self, hash: u64) -> Option<usize> {
        self.0.set.find(tag_of(hash))
    }

    /// The slot of a hash, and its entry.
    #[inline]
    pub(in crate::memory) fn look(&self, hash: u64) -> (Option<usize>, SlotWords) {
        let slot = self.find(hash);
        (slot, self.get(slot))
    }

    /// The entry in a slot that `find` found; if it found none, the entry of a key at rest, with any debt that the key inherits.
    #[inline]
    pub(in crate::memory) fn get(&self, slot: Option<usize>) -> SlotWords {
        match slot {
            Some(slot) => self.0.load(slot),
            None => self.0.left().map_or_else(SlotWords::default, load::<WORDS, ACCOUNTS>),
        }
    }

    /// Stores the entry of a hash in the slot that `find` found, or in the place of the least indebted key.
    #[inline]
    pub(in crate::memory) fn put(
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
    pub(in crate::memory) fn reset(&mut self, hash: u64) {
        if let Some(slot) = self.find(hash) {
            self.0.store(slot, SlotWords::default());
        }
        self.0.set.forget_one();
    }

    /// A number that changes when a key of this set is forgotten or reset.
    pub(in crate::memory) fn forgotten(&self) -> u64 {
        self.0.set.forgotten().into()
    }

    /// The contents of the set.
    pub(in crate::memory) fn copy(&self) -> Copy {
        let mut copy = [[0; 4]; 6];
        let set = self.0.set;
        for (slot, to) in copy.iter_mut().enumerate().take(SLOTS) {
            to[0] = u64::from(set.tag(slot)) << 32;
            if OWN > 0 {
                to[0] |= u64::from(set.high(slot)) << 16 | u64::from(set.plan(slot));
            }
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
    pub(in crate::memory) fn restore(&mut self, copy: &Copy) {
        let set = self.0.set;
        for (slot, from) in copy.iter().enumerate().take(SLOTS) {
            set.set_tag(slot, tag_of(from[0]));
            if OWN > 0 {
                set.set_high(slot, (from[0] >> 16 & 0xff) as u8);
                set.set_plan(slot, (from[0] & 0xffff) as u16);
            }
            for (from, word) in from[1..].iter().zip(set.state(slot)) {
                word.store(*from, Ordering::Relaxed);
            }
        }
        for (from, word) in copy[5].iter().zip(self.0.left().into_iter().flatten()) {
            word.store(*from, Ordering::Relaxed);
        }
    }
}

impl<'a, const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize, const SIZE: usize>
    SetOfTable<'a, SLOTS, WORDS, ACCOUNTS, OWN, SIZE>
{
    /// The debt that keys that made room have left to this set.
    #[inline]
    fn left(self) -> Option<&'a [AtomicU64; WORDS]> {
        self.table.left.get(self.index * WORDS..)?.first_chunk()
    }

    /// The entry in a slot.
    #[inline]
    fn load(self, slot: usize) -> SlotWords {
        let mut kept = load::<WORDS, ACCOUNTS>(self.set.state(slot));
        if OWN > 0 {
            kept.plan = self.set.plan(slot);
            if const { state_words::<WORDS, ACCOUNTS>() == 1 } {
                kept.state.aux |= u64::from(self.set.high(slot)) << AUX_BITS;
            }
        }
        kept
    }

    /// Stores an entry in the place of another one of the same key. If it is counted by another plan, it is a new bucket from now on.
    #[inline]
    fn replace(self, slot: usize, kept: SlotWords) {
        if OWN > 0 && self.set.plan(slot) != kept.plan {
            self.set.forget_one();
        }
        self.store(slot, kept);
    }

    #[inline]
    fn store(self, slot: usize, kept: SlotWords) {
        store::<WORDS, ACCOUNTS>(self.set.state(slot), kept);
        if OWN > 0 {
            self.set.set_plan(slot, kept.plan);
            if const { state_words::<WORDS, ACCOUNTS>() == 1 } {
                self.set.set_high(slot, (kept.state.aux >> AUX_BITS & 0xff) as u8);
            }
        }
    }

    #[cold]
    fn insert(self, hash: u64, kept: SlotWords, rules: &QuotaRules, now_us: u64) {
        // Evict the key that is longest at rest first (if the clock is set back a little, the others are found again), then the least debt.
        let debt_of = |slot: &usize| {
            let kept = self.load(*slot);
            let is_debt = kept.state.until_us > now_us;
            if is_debt { Err(rules.weight(&kept, OWN > 0, now_us)) } else { Ok(kept.state.until_us) }
        };
        let victim = (0..SLOTS).min_by_key(debt_of).unwrap_or(0);
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
        let (rule, before) = (&rules.own, load::<WORDS, ACCOUNTS>(left).state);
        // Counted by the policy's own quota, because any key may inherit it.
        let state = rules.counted(kept, (rule, 0), now_us).state;
        let state = if before.until_us > now_us { rule.heavier(before, state, now_us) } else { state };
        // Without an account: one key cannot give back the units of another.
        store::<WORDS, ACCOUNTS>(left, SlotWords { state, ..SlotWords::default() });
    }
}

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize, const SIZE: usize> Drop
    for Locked<'_, SLOTS, WORDS, ACCOUNTS, OWN, SIZE>
{
    #[inline]
    fn drop(&mut self) {
        self.0.set.unlock();
    }
}
