//! The table: fixed, set-associative, one cache line per look-up.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use crate::algorithm::State;

/// A fixed table of 64-byte sets. A key's hash says which set it lives in (low half) and how it is told apart
/// there (high half, the tag).
///
/// A slot whose state is back at rest is free by definition, so nothing ever has to be swept. When all slots of a
/// set are in use, the state closest to rest makes room: the least debt is forgotten, never a heavy debtor's.
pub(super) struct Table<const SLOTS: usize, const WORDS: usize> {
    sets: Box<[Set<SLOTS, WORDS>]>,
    evictions: AtomicU64,
}

/// Five states of one word, or three of two: 61 bytes, so that a set is one cache line.
#[repr(align(64))]
struct Set<const SLOTS: usize, const WORDS: usize> {
    states: [[AtomicU64; WORDS]; SLOTS],
    tags: [AtomicU32; SLOTS],
    locked: AtomicBool,
}

/// In a one-word state, the low bits hold `aux` and the others the time.
const AUX_BITS: u32 = 12;
const TIME_MAX: u64 = u64::MAX >> AUX_BITS;

impl<const SLOTS: usize, const WORDS: usize> Table<SLOTS, WORDS> {
    /// A table of at least `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        let sets = (0..slots.div_ceil(SLOTS).max(1)).map(|_| Set::default()).collect();
        Self { sets, evictions: AtomicU64::new(0) }
    }

    /// The set that a hash belongs to.
    #[inline]
    pub(super) fn set_of(&self, hash: u64) -> usize {
        (((hash & u64::from(u32::MAX)) * self.sets.len() as u64) >> 32) as usize
    }

    /// Locks a set until the guard is dropped. Whoever locks several locks them in the order of their indices.
    #[inline]
    pub(super) fn lock(&self, set: usize) -> Locked<'_, SLOTS, WORDS> {
        let set = &self.sets[set];
        // Acquire: what the last holder wrote to the set is seen. All accesses in between may then be relaxed.
        let mut spins = 0_u32;
        while set.locked.swap(true, Ordering::Acquire) {
            // Wait on a read, which leaves the line shared, and let the holder run if it was preempted.
            while set.locked.load(Ordering::Relaxed) {
                spins += 1;
                if spins.is_multiple_of(64) { thread::yield_now() } else { hint::spin_loop() }
            }
        }
        Locked { set, evictions: &self.evictions }
    }

    /// States that were forgotten before they were at rest, because their set was full.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
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
            locked: AtomicBool::new(false),
        }
    }
}

/// A locked set.
pub(super) struct Locked<'a, const SLOTS: usize, const WORDS: usize> {
    set: &'a Set<SLOTS, WORDS>,
    evictions: &'a AtomicU64,
}

impl<const SLOTS: usize, const WORDS: usize> Locked<'_, SLOTS, WORDS> {
    /// The state of a hash; [`State::REST`] if it is not here.
    #[inline]
    pub(super) fn get(&self, hash: u64) -> State {
        self.find(hash).map_or(State::REST, |slot| load(&self.set.states[slot]))
    }

    /// Stores the state of a hash, in the place of what is closest to rest if no slot is free.
    #[inline]
    pub(super) fn put(&mut self, hash: u64, state: State, now_us: u64) {
        match self.find(hash) {
            Some(slot) => store(&self.set.states[slot], state),
            None => self.insert(hash, state, now_us),
        }
    }

    fn insert(&mut self, hash: u64, state: State, now_us: u64) {
        if state.until_us <= now_us {
            return;
        }
        let (mut victim, mut soonest) = (0, u64::MAX);
        for (slot, state) in self.set.states.iter().enumerate() {
            let until_us = until_of(state);
            if until_us < soonest {
                (victim, soonest) = (slot, until_us);
            }
        }
        if soonest > now_us {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        self.set.tags[victim].store(tag_of(hash), Ordering::Relaxed);
        store(&self.set.states[victim], state);
    }

    #[inline]
    fn find(&self, hash: u64) -> Option<usize> {
        let tag = tag_of(hash);
        self.set.tags.iter().position(|stored| stored.load(Ordering::Relaxed) == tag)
    }
}

impl<const SLOTS: usize, const WORDS: usize> Drop for Locked<'_, SLOTS, WORDS> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire of whoever locks next.
        self.set.locked.store(false, Ordering::Release);
    }
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[inline]
fn until_of<const WORDS: usize>(words: &[AtomicU64; WORDS]) -> u64 {
    let first = words[0].load(Ordering::Relaxed);
    if WORDS == 1 { first >> AUX_BITS } else { first }
}

#[inline]
fn load<const WORDS: usize>(words: &[AtomicU64; WORDS]) -> State {
    let first = words[0].load(Ordering::Relaxed);
    match words.get(1) {
        None => State::new(first >> AUX_BITS, first & ((1 << AUX_BITS) - 1)),
        Some(second) => State::new(first, second.load(Ordering::Relaxed)),
    }
}

#[inline]
fn store<const WORDS: usize>(words: &[AtomicU64; WORDS], state: State) {
    match words.get(1) {
        None => words[0].store(state.until_us.min(TIME_MAX) << AUX_BITS | state.aux, Ordering::Relaxed),
        Some(second) => {
            words[0].store(state.until_us, Ordering::Relaxed);
            second.store(state.aux, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_one_cache_line() {
        assert_eq!((size_of::<Set<5, 1>>(), align_of::<Set<5, 1>>()), (64, 64));
        assert_eq!((size_of::<Set<3, 2>>(), align_of::<Set<3, 2>>()), (64, 64));
    }

    #[test]
    fn the_state_closest_to_rest_makes_room() {
        let table = Table::<3, 2>::new(3);
        let mut set = table.lock(0);
        for (key, until_us) in [(1_u64, 500), (2, 900), (3, 300), (4, 700)] {
            set.put(key << 32, State::new(until_us, key), 100);
        }
        assert_eq!(set.get(3 << 32), State::REST, "300 was closest to rest");
        for (key, until_us) in [(1, 500), (2, 900), (4, 700)] {
            assert_eq!(set.get(key << 32), State::new(until_us, key));
        }
        assert_eq!(table.evictions(), 1);
        set.put(5 << 32, State::new(2_000, 5), 600); // key 1 is at rest by now: nothing is lost
        assert_eq!((table.evictions(), set.get(2 << 32)), (1, State::new(900, 2)));
        drop(set);
        assert_eq!(table.in_use(600), 3);
    }

    #[test]
    fn a_state_survives_the_way_through_one_word() {
        let table = Table::<5, 1>::new(5);
        let state = State::new((1 << 52) - 1, 4_095);
        table.lock(0).put(7 << 32, state, 0);
        assert_eq!(table.lock(0).get(7 << 32), state);
    }

    #[test]
    fn hashes_spread_over_all_sets() {
        let table = Table::<5, 1>::new(5 * 7);
        let sets: std::collections::HashSet<_> =
            (0..=u32::MAX).step_by(1 << 24).map(|h| table.set_of(u64::from(h))).collect();
        assert_eq!(sets.len(), 7);
    }
}
