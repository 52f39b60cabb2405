//! Units that are held for requests that wait for another limit.
//!
//! A request that waits for limit A must be sure of limit B when its turn comes, and must not have
//! spent B before: until then the units count in full and do not drain. They live beside the table,
//! in a map that is empty unless requests with several limits wait; an atomic count spares everyone
//! else the lock.
//!
//! The map's mutex is taken while the key's set is locked, and never the other way round.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

/// Units that one waiting request holds: they count in full until it departs, and are a spend of that moment then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// Different for every hold of a store.
    pub(super) id: u64,
    pub(super) units: u64,
    /// When the request departs.
    pub(super) until_us: u64,
}

/// What is held of one key, in the order of departure.
pub(super) type Held = SmallVec<[Hold; 2]>;

/// What is held of the keys of one bucket, beside its table. The set or shard of a key is locked by who asks about it here.
pub(super) struct Holds {
    /// Keys that hold something. A decision looks no further while there is none.
    keys: AtomicUsize,
    most: usize,
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    of: HashMap<u64, Held, BuildHasherDefault<Identity>>,
    /// At this number of keys, those that no longer matter are thrown out.
    sweep_at: usize,
}

/// The fewest keys that are worth a sweep.
const SWEPT: usize = 64;

impl Holds {
    /// Holds of at most `most` keys.
    pub(super) fn new(most: usize) -> Self {
        Self { keys: AtomicUsize::new(0), most, all: Mutex::default() }
    }

    /// Whether any key may hold something. To be asked under the lock of the key's set.
    #[inline]
    pub(super) fn any(&self) -> bool {
        // Relaxed: what was held of the same key before was written under the lock of the key's set.
        self.keys.load(Ordering::Relaxed) > 0
    }

    pub(super) fn of(&self, key: u64) -> Held {
        if self.any() { self.lock().of.get(&key).cloned().unwrap_or_default() } else { Held::new() }
    }

    /// Units that are held of the key.
    pub(super) fn units(&self, key: u64) -> u64 {
        units(&self.of(key))
    }

    /// Whether a key that holds nothing yet could.
    pub(super) fn has_room(&self) -> bool {
        self.keys.load(Ordering::Relaxed) < self.most
    }

    /// Holds units of a key. Of other keys, throws out what ended so long ago that it would have drained by now.
    pub(super) fn add(&self, key: u64, hold: Hold, is_over: impl Fn(&Hold) -> bool) {
        let mut all = self.lock();
        if all.of.len() >= all.sweep_at.max(SWEPT) {
            all.of.retain(|_, held| !held.iter().all(&is_over));
            all.sweep_at = 2 * all.of.len();
        }
        let held = all.of.entry(key).or_default();
        let place = held.partition_point(|other| other.until_us <= hold.until_us);
        held.insert(place, hold);
        self.count(&all);
    }

    /// Changes what is held of a key.
    pub(super) fn change<T>(&self, key: u64, change: impl FnOnce(&mut Held) -> T) -> T {
        if !self.any() {
            return change(&mut Held::new());
        }
        let mut all = self.lock();
        let held = all.of.entry(key).or_default();
        let result = change(held);
        if held.is_empty() {
            all.of.remove(&key);
        }
        self.count(&all);
        result
    }

    /// Puts a key's holds back as they were.
    pub(super) fn restore(&self, key: u64, held: Held) {
        let mut all = self.lock();
        if held.is_empty() {
            all.of.remove(&key);
        } else {
            all.of.insert(key, held);
        }
        self.count(&all);
    }

    /// Takes up to `units` out of a hold; says how many there were, `None` if it has ended.
    pub(super) fn take(&self, key: u64, id: u64, units: u64) -> Option<u64> {
        self.change(key, |held| {
            let place = held.iter().position(|hold| hold.id == id)?;
            let taken = held[place].units.min(units);
            held[place].units -= taken;
            if held[place].units == 0 {
                held.remove(place);
            }
            Some(taken)
        })
    }

    /// Takes out all holds of a key that have ended.
    pub(super) fn ended(&self, key: u64, now_us: u64) -> Held {
        self.change(key, |held| {
            let count = held.partition_point(|hold| hold.until_us <= now_us);
            held.drain(..count).collect()
        })
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, all: &All) {
        self.keys.store(all.of.len(), Ordering::Relaxed);
    }
}

pub(super) fn units(held: &[Hold]) -> u64 {
    held.iter().fold(0, |sum, hold| sum.saturating_add(hold.units))
}

/// The keys of a map that are hashes already.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only hashes are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
