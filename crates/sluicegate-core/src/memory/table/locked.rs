//! A locked set of the table: its keys and their changes.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

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
>(pub(super) SetOfTable<'a, SLOTS, WORDS, ACCOUNTS, OWN>);

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
> {
    pub(super) set: &'a Set<SLOTS, WORDS, OWN>,
    pub(super) table: &'a Table<SLOTS, WORDS, ACCOUNTS, OWN>,
    pub(super) index: usize,
}

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize>
    Locked<'_, SLOTS, WORDS, ACCOUNTS, OWN>
{
    /// The slot of a hash, if it is in this set.
    #[inline]
    pub(in crate::memory) fn find(&self, hash: u64) -> Option<usize> {
        let tag = tag_of(hash);
        self.0.set.tags.iter().position(|stored| stored.load(Ordering::Relaxed) == tag)
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
        self.0.forget_one();
    }

    /// A number that changes when a key of this set is forgotten or reset.
    pub(in crate::memory) fn forgotten(&self) -> u64 {
        self.0.set.forgotten.load(Ordering::Relaxed).into()
    }

    /// The contents of the set.
    pub(in crate::memory) fn copy(&self) -> Copy {
        let mut copy = [[0; 4]; 6];
        for ((to, words), tag) in copy.iter_mut().zip(&self.0.set.states).zip(&self.0.set.tags) {
            to[0] = u64::from(tag.load(Ordering::Relaxed)) << 32;
            for (to, word) in to[1..].iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed);
            }
        }
        for ((to, plan), high) in copy.iter_mut().zip(&self.0.set.plans).zip(&self.0.set.high) {
            to[0] |= u64::from(high.load(Ordering::Relaxed)) << 16 | u64::from(plan.load(Ordering::Relaxed));
        }
        for (to, word) in copy[5].iter_mut().zip(self.0.left().into_iter().flatten()) {
            *to = word.load(Ordering::Relaxed);
        }
        copy
    }

    /// Restores the set from a copy.
    pub(in crate::memory) fn restore(&mut self, copy: &Copy) {
        for ((from, words), tag) in copy.iter().zip(&self.0.set.states).zip(&self.0.set.tags) {
            tag.store(tag_of(from[0]), Ordering::Relaxed);
            for (from, word) in from[1..].iter().zip(words) {
                word.store(*from, Ordering::Relaxed);
            }
        }
        for ((from, plan), high) in copy.iter().zip(&self.0.set.plans).zip(&self.0.set.high) {
            plan.store((from[0] & 0xffff) as u16, Ordering::Relaxed);
            high.store((from[0] >> 16 & 0xff) as u8, Ordering::Relaxed);
        }
        for (from, word) in copy[5].iter().zip(self.0.left().into_iter().flatten()) {
            word.store(*from, Ordering::Relaxed);
        }
    }
}

impl<'a, const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize>
    SetOfTable<'a, SLOTS, WORDS, ACCOUNTS, OWN>
{
    /// The debt that keys that made room have left to this set.
    #[inline]
    fn left(self) -> Option<&'a [AtomicU64; WORDS]> {
        self.table.left.get(self.index)
    }

    /// The entry in a slot.
    #[inline]
    fn load(self, slot: usize) -> SlotWords {
        let mut kept = load::<WORDS, ACCOUNTS>(&self.set.states[slot]);
        if let (Some(plan), Some(high)) = (self.set.plans.get(slot), self.set.high.get(slot)) {
            kept.plan = plan.load(Ordering::Relaxed);
            if const { state_words::<WORDS, ACCOUNTS>() == 1 } {
                kept.state.aux |= u64::from(high.load(Ordering::Relaxed)) << AUX_BITS;
            }
        }
        kept
    }

    /// Stores an entry in the place of another one of the same key. If it is counted by another plan, it is a new bucket from now on.
    #[inline]
    fn replace(self, slot: usize, kept: SlotWords) {
        if self.set.plans.get(slot).is_some_and(|plan| plan.load(Ordering::Relaxed) != kept.plan) {
            self.forget_one();
        }
        self.store(slot, kept);
    }

    #[inline]
    fn store(self, slot: usize, kept: SlotWords) {
        store::<WORDS, ACCOUNTS>(&self.set.states[slot], kept);
        if let (Some(plan), Some(high)) = (self.set.plans.get(slot), self.set.high.get(slot)) {
            plan.store(kept.plan, Ordering::Relaxed);
            if const { state_words::<WORDS, ACCOUNTS>() == 1 } {
                high.store((kept.state.aux >> AUX_BITS & 0xff) as u8, Ordering::Relaxed);
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
            self.forget_one();
            self.leave(self.load(victim), rules, now_us);
        }
        self.set.tags[victim].store(tag_of(hash), Ordering::Relaxed);
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

    fn forget_one(self) {
        self.set.forgotten.fetch_add(1, Ordering::Relaxed);
    }
}

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool, const OWN: usize> Drop
    for Locked<'_, SLOTS, WORDS, ACCOUNTS, OWN>
{
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire of the next lock.
        self.0.set.locked.store(false, Ordering::Release);
    }
}
