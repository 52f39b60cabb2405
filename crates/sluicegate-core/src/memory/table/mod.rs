//! The table: fixed, set-associative, one cache line per look-up.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Count;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::account::Account;
use crate::algorithm::{Rule, State};
use crate::policy::OnFull;

/// A fixed table of 64-byte sets, for the keys of one quota. A key's hash says which set it lives in (low half) and how
/// it is told apart there (high half, the tag).
///
/// A slot whose state is back at rest is free by definition, so nothing ever has to be swept. When all slots of a
/// set are in use, the least indebted makes room: a flood of new keys drives out its own kind, never a heavy debtor. It is
/// forgotten, or leaves what it owes to its set: then keys that are new there start with the heaviest such debt.
pub(super) struct Table<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool> {
    sets: Box<[Set<SLOTS, WORDS>]>,
    /// What keys that made room have left to each set; empty if they are forgotten.
    left: Box<[[AtomicU64; WORDS]]>,
    evictions: Arc<Count>,
}

/// Five slots of one word, three of two, or two of three: at most 63 bytes, so that a set is one cache line.
///
/// The first word of a slot is its time with 12 bits below it, which are the `aux` of a state of one word. Then come the
/// `aux` of a state of two words, and the account where there are accounts.
#[repr(align(64))]
struct Set<const SLOTS: usize, const WORDS: usize> {
    states: [[AtomicU64; WORDS]; SLOTS],
    tags: [AtomicU32; SLOTS],
    /// How often a state of this set was forgotten before it was at rest. It may go round.
    forgotten: AtomicU16,
    locked: AtomicBool,
}

/// What a table keeps of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) state: State,
    /// Only in tables with accounts.
    pub(super) account: Account,
}

/// All that a set knows: a row for each slot, its tag and its words, and one for what was left to the set.
pub(super) type Copy = [[u64; 4]; 6];

const LOW_BITS: u32 = 12;
const LOW_MAX: u64 = (1 << LOW_BITS) - 1;
const TIME_MAX: u64 = u64::MAX >> LOW_BITS;

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool> Table<SLOTS, WORDS, ACCOUNTS> {
    /// A table of at least `slots` slots, that counts in `evictions` how often a key has to make room.
    pub(super) fn new(slots: usize, on_full: OnFull, evictions: &Arc<Count>) -> Self {
        let sets = slots.div_ceil(SLOTS).max(1);
        let inherited = if on_full == OnFull::Inherit { sets } else { 0 };
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            left: (0..inherited).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            evictions: Arc::clone(evictions),
        }
    }

    /// The set that a hash belongs to.
    #[inline]
    pub(super) fn set_of(&self, hash: u64) -> usize {
        (((hash & u64::from(u32::MAX)) * self.sets.len() as u64) >> 32) as usize
    }

    /// Locks a set until the guard is dropped. Whoever locks several locks them in the order of their indices.
    #[inline]
    pub(super) fn lock(&self, index: usize) -> Locked<'_, SLOTS, WORDS, ACCOUNTS> {
        let set = &self.sets[index];
        // Acquire: what the last holder wrote to the set is seen. All accesses in between may then be relaxed.
        while set.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            wait_for(&set.locked);
        }
        Locked { set, table: self, index }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.sets.len() * SLOTS
    }

    /// How many slots hold a state that is not at rest. Reads the whole table, without a lock.
    pub(super) fn in_use(&self, now_us: u64) -> usize {
        let states = self.sets.iter().flat_map(|set| &set.states);
        states.filter(|state| until_of(state) > now_us).count()
    }
}

impl<const SLOTS: usize, const WORDS: usize> Default for Set<SLOTS, WORDS> {
    fn default() -> Self {
        Self {
            states: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            tags: std::array::from_fn(|_| AtomicU32::new(0)),
            forgotten: AtomicU16::new(0),
            locked: AtomicBool::new(false),
        }
    }
}

/// A locked set.
pub(super) struct Locked<'a, const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool> {
    set: &'a Set<SLOTS, WORDS>,
    table: &'a Table<SLOTS, WORDS, ACCOUNTS>,
    index: usize,
}

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool> Locked<'_, SLOTS, WORDS, ACCOUNTS> {
    /// Where the state of a hash is, if it is here.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<usize> {
        let tag = tag_of(hash);
        self.set.tags.iter().position(|stored| stored.load(Ordering::Relaxed) == tag)
    }

    /// What is in a slot that `find` found; if it found none, that of a key at rest, or what such a key inherits.
    #[inline]
    pub(super) fn get(&self, slot: Option<usize>) -> Kept {
        let words = slot.map_or_else(|| self.left(), |slot| Some(&self.set.states[slot]));
        words.map_or_else(Kept::default, load::<WORDS, ACCOUNTS>)
    }

    /// What keys that made room have left to this set.
    #[inline]
    fn left(&self) -> Option<&[AtomicU64; WORDS]> {
        self.table.left.get(self.index)
    }

    /// Stores what is known of a hash in the slot that `find` found for it, or in the place of the least indebted.
    #[inline]
    pub(super) fn put(&mut self, slot: Option<usize>, hash: u64, kept: Kept, rule: &Rule, now_us: u64) {
        match slot {
            Some(slot) => store::<WORDS, ACCOUNTS>(&self.set.states[slot], kept),
            None => self.insert(hash, kept, rule, now_us),
        }
    }

    #[cold]
    fn insert(&mut self, hash: u64, kept: Kept, rule: &Rule, now_us: u64) {
        if kept.state.until_us <= now_us {
            return;
        }
        let debt_of = |slot: &usize| {
            let state = load::<WORDS, ACCOUNTS>(&self.set.states[*slot]).state;
            (state.until_us > now_us).then(|| rule.weight(state, now_us))
        };
        let victim = (0..SLOTS).min_by_key(debt_of).unwrap_or(0);
        if debt_of(&victim).is_some() {
            self.table.evictions.fetch_add(1, Ordering::Relaxed);
            self.forget_one();
            self.leave(&self.set.states[victim], rule, now_us);
        }
        self.set.tags[victim].store(tag_of(hash), Ordering::Relaxed);
        store::<WORDS, ACCOUNTS>(&self.set.states[victim], kept);
    }

    /// Leaves to the set what a key owes that has to make room.
    fn leave(&self, words: &[AtomicU64; WORDS], rule: &Rule, now_us: u64) {
        let Some(left) = self.left() else { return };
        let [before, state] = [left, words].map(|words| load::<WORDS, ACCOUNTS>(words).state);
        let state = if before.until_us > now_us { rule.heavier(before, state, now_us) } else { state };
        // Without an account: what one key has spent, another cannot give back.
        store::<WORDS, ACCOUNTS>(left, Kept { state, account: Account::default() });
    }

    /// Puts a key to rest, whatever it owes.
    pub(super) fn reset(&mut self, hash: u64) {
        if let Some(slot) = self.find(hash) {
            store::<WORDS, ACCOUNTS>(&self.set.states[slot], Kept::default());
        }
        self.forget_one();
    }

    fn forget_one(&self) {
        self.set.forgotten.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes when a key of this set was forgotten or reset.
    pub(super) fn forgotten(&self) -> u64 {
        self.set.forgotten.load(Ordering::Relaxed).into()
    }

    /// All that the set knows.
    pub(super) fn copy(&self) -> Copy {
        let mut copy = [[0; 4]; 6];
        for ((to, words), tag) in copy.iter_mut().zip(&self.set.states).zip(&self.set.tags) {
            to[0] = u64::from(tag.load(Ordering::Relaxed)) << 32;
            for (to, word) in to[1..].iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed);
            }
        }
        for (to, word) in copy[5].iter_mut().zip(self.left().into_iter().flatten()) {
            *to = word.load(Ordering::Relaxed);
        }
        copy
    }

    /// The set as it was when it was copied.
    pub(super) fn restore(&mut self, copy: &Copy) {
        for ((from, words), tag) in copy.iter().zip(&self.set.states).zip(&self.set.tags) {
            tag.store(tag_of(from[0]), Ordering::Relaxed);
            for (from, word) in from[1..].iter().zip(words) {
                word.store(*from, Ordering::Relaxed);
            }
        }
        for (from, word) in copy[5].iter().zip(self.left().into_iter().flatten()) {
            word.store(*from, Ordering::Relaxed);
        }
    }
}

impl<const SLOTS: usize, const WORDS: usize, const ACCOUNTS: bool> Drop
    for Locked<'_, SLOTS, WORDS, ACCOUNTS>
{
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire of whoever locks next.
        self.set.locked.store(false, Ordering::Release);
    }
}

/// Waits on a read, which leaves the line shared, and lets the holder run if it was preempted.
#[cfg(not(loom))]
fn wait_for(locked: &AtomicBool) {
    let mut spins = 0_u32;
    while locked.load(Ordering::Relaxed) {
        spins = spins.wrapping_add(1);
        if spins.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// A relaxed read may be stale for as long as the model likes.
#[cfg(loom)]
fn wait_for(_locked: &AtomicBool) {
    loom::thread::yield_now();
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[inline]
fn until_of<const WORDS: usize>(words: &[AtomicU64; WORDS]) -> u64 {
    words[0].load(Ordering::Relaxed) >> LOW_BITS
}

/// The words of a slot that are the state's, where the last one is its account.
pub(super) const fn state_words<const WORDS: usize, const ACCOUNTS: bool>() -> usize {
    if ACCOUNTS { WORDS - 1 } else { WORDS }
}

#[inline]
fn load<const WORDS: usize, const ACCOUNTS: bool>(words: &[AtomicU64; WORDS]) -> Kept {
    let first = words[0].load(Ordering::Relaxed);
    let aux = match state_words::<WORDS, ACCOUNTS>() {
        1 => first & LOW_MAX,
        _ => words[1].load(Ordering::Relaxed),
    };
    let account =
        if ACCOUNTS { Account::of(words[WORDS - 1].load(Ordering::Relaxed)) } else { Account::default() };
    Kept { state: State::new(first >> LOW_BITS, aux), account }
}

#[inline]
fn store<const WORDS: usize, const ACCOUNTS: bool>(words: &[AtomicU64; WORDS], kept: Kept) {
    let Kept { state, account } = kept;
    let low = match state_words::<WORDS, ACCOUNTS>() {
        1 => state.aux,
        _ => {
            words[1].store(state.aux, Ordering::Relaxed);
            0
        }
    };
    if ACCOUNTS {
        words[WORDS - 1].store(account.word(), Ordering::Relaxed);
    }
    words[0].store(state.until_us.min(TIME_MAX) << LOW_BITS | low, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests;

/// Every interleaving of two threads. Run with `RUSTFLAGS="--cfg loom"`.
#[cfg(all(test, loom))]
mod model;
