//! The table: fixed, set-associative, one cache line per look-up.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::algorithm::State;

/// A fixed table of 64-byte sets. A key's hash says which set it lives in (low half) and how it is told apart
/// there (high half, the tag).
///
/// A slot whose state is back at rest is free by definition, so nothing ever has to be swept. When all slots of a
/// set are in use, the least indebted makes room: a flood of new keys drives out its own kind, never a heavy debtor.
pub(super) struct Table<const SLOTS: usize, const WORDS: usize> {
    sets: Box<[Set<SLOTS, WORDS>]>,
    evictions: AtomicU64,
}

/// Five states of one word, or three of two: 61 bytes, so that a set is one cache line.
///
/// The first word of a state is its time with 12 bits below it: `aux` of a state of one word; of a state of two words,
/// whose `aux` is the second, how full the bucket is.
#[repr(align(64))]
struct Set<const SLOTS: usize, const WORDS: usize> {
    states: [[AtomicU64; WORDS]; SLOTS],
    tags: [AtomicU32; SLOTS],
    locked: AtomicBool,
}

const LOW_BITS: u32 = 12;
const LOW_MAX: u64 = (1 << LOW_BITS) - 1;
const TIME_MAX: u64 = u64::MAX >> LOW_BITS;

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
        while set.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            wait_for(&set.locked);
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
    /// Where the state of a hash is, if it is here.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<usize> {
        let tag = tag_of(hash);
        self.set.tags.iter().position(|stored| stored.load(Ordering::Relaxed) == tag)
    }

    /// The state in a slot that `find` found; [`State::REST`] if it found none.
    #[inline]
    pub(super) fn get(&self, slot: Option<usize>) -> State {
        slot.map_or(State::REST, |slot| load(&self.set.states[slot]))
    }

    /// Stores the state of a hash in the slot that `find` found for it, or in the place of the least indebted. Of a
    /// state of two words, `fullness` says how indebted it is; one of one word says so by its time.
    #[inline]
    pub(super) fn put(&mut self, slot: Option<usize>, hash: u64, state: State, fullness: u64, now_us: u64) {
        match slot {
            Some(slot) => store(&self.set.states[slot], state, fullness),
            None => self.insert(hash, state, fullness, now_us),
        }
    }

    #[cold]
    fn insert(&mut self, hash: u64, state: State, fullness: u64, now_us: u64) {
        if state.until_us <= now_us {
            return;
        }
        let (mut victim, mut least) = (0, u64::MAX);
        for (slot, words) in self.set.states.iter().enumerate() {
            let debt = if until_of(words) <= now_us { 0 } else { debt_of(words) };
            if debt < least {
                (victim, least) = (slot, debt);
            }
        }
        if least > 0 {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        self.set.tags[victim].store(tag_of(hash), Ordering::Relaxed);
        store(&self.set.states[victim], state, fullness);
    }
}

impl<const SLOTS: usize, const WORDS: usize> Drop for Locked<'_, SLOTS, WORDS> {
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

/// How much is lost when a state is forgotten, for comparison within a table: for states of one word, the time until
/// rest; for those of two, the part of the capacity that is used, and then that time.
fn debt_of<const WORDS: usize>(words: &[AtomicU64; WORDS]) -> u64 {
    let first = words[0].load(Ordering::Relaxed);
    if WORDS == 1 { first } else { first.rotate_right(LOW_BITS) }
}

#[inline]
fn load<const WORDS: usize>(words: &[AtomicU64; WORDS]) -> State {
    let first = words[0].load(Ordering::Relaxed);
    let aux = words.get(1).map_or(first & LOW_MAX, |second| second.load(Ordering::Relaxed));
    State::new(first >> LOW_BITS, aux)
}

#[inline]
fn store<const WORDS: usize>(words: &[AtomicU64; WORDS], state: State, fullness: u64) {
    let low = match words.get(1) {
        None => state.aux,
        Some(second) => {
            second.store(state.aux, Ordering::Relaxed);
            fullness.min(LOW_MAX)
        }
    };
    words[0].store(state.until_us.min(TIME_MAX) << LOW_BITS | low, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_one_cache_line() {
        assert_eq!((size_of::<Set<5, 1>>(), align_of::<Set<5, 1>>()), (64, 64));
        assert_eq!((size_of::<Set<3, 2>>(), align_of::<Set<3, 2>>()), (64, 64));
    }

    fn put<const S: usize, const W: usize>(
        table: &Table<S, W>,
        key: u64,
        until_us: u64,
        fullness: u64,
        now_us: u64,
    ) {
        let mut set = table.lock(0);
        let slot = set.find(key << 32);
        set.put(slot, key << 32, State::new(until_us, key), fullness, now_us);
    }

    fn get<const S: usize, const W: usize>(table: &Table<S, W>, key: u64) -> State {
        let set = table.lock(0);
        set.get(set.find(key << 32))
    }

    #[test]
    fn of_one_word_the_state_closest_to_rest_makes_room() {
        let table = Table::<5, 1>::new(5);
        for (key, until_us) in [(1, 500), (2, 900), (3, 300), (4, 700), (5, 800), (6, 600)] {
            put(&table, key, until_us, 0, 100);
        }
        assert_eq!((get(&table, 3), table.evictions()), (State::REST, 1));
        put(&table, 7, 2_000, 0, 550); // key 1 is at rest by now: nothing is lost
        assert_eq!(
            (get(&table, 2), get(&table, 7), table.evictions()),
            (State::new(900, 2), State::new(2_000, 7), 1)
        );
        assert_eq!(table.in_use(550), 5);
    }

    #[test]
    fn of_two_words_the_emptiest_makes_room_however_long_its_window() {
        let table = Table::<3, 2>::new(3);
        for (key, until_us, fullness) in
            [(1, 500, 1_024), (2, 900, 10), (3, 500, 9), (4, 500, 11), (5, 500, 10)]
        {
            put(&table, key, until_us, fullness, 100);
        }
        assert_eq!([1, 2, 3, 4, 5].map(|key| get(&table, key).until_us), [500, 0, 0, 500, 500]);
    }

    #[test]
    fn a_state_survives_the_way_through_the_table() {
        let (narrow, wide) = (Table::<5, 1>::new(5), Table::<3, 2>::new(3));
        put(&narrow, 4_095, (1 << 52) - 1, 0, 0);
        put(&wide, u64::from(u32::MAX), (1 << 52) - 1, u64::MAX, 0);
        assert_eq!(get(&narrow, 4_095), State::new((1 << 52) - 1, 4_095));
        assert_eq!(get(&wide, u64::from(u32::MAX)), State::new((1 << 52) - 1, u64::from(u32::MAX)));
    }

    #[test]
    fn hashes_spread_over_all_sets() {
        let table = Table::<5, 1>::new(5 * 7);
        let sets: std::collections::HashSet<_> =
            (0..=u32::MAX).step_by(1 << 24).map(|h| table.set_of(u64::from(h))).collect();
        assert_eq!(sets.len(), 7);
    }
}

/// Every interleaving of two threads. Run with `RUSTFLAGS="--cfg loom"`.
#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Adds one to what the table knows of a key, as a decision does.
    fn add_one(table: &Table<3, 2>, key: u64) {
        let mut set = table.lock(0);
        let slot = set.find(key << 32);
        let aux = set.get(slot).aux;
        set.put(slot, key << 32, State::new(10, aux + 1), 0, 0);
    }

    #[test]
    fn no_interleaving_loses_an_update() {
        loom::model(|| {
            let table = Arc::new(Table::<3, 2>::new(3));
            let other = Arc::clone(&table);
            let thread = thread::spawn(move || {
                add_one(&other, 1);
                add_one(&other, 2);
            });
            add_one(&table, 1);
            thread.join().unwrap();
            let set = table.lock(0);
            assert_eq!([1, 2].map(|key: u64| set.get(set.find(key << 32)).aux), [2, 1]);
        });
    }
}
