//! The facts of a bucket that are kept apart from its table, because few keys have them at a time.
//!
//! - A [`BucketAccount`] tells the buckets of a key apart, and counts the units given back. A refund identifies its units by the bucket's birth
//!   and level. Without the birth, a receipt of yesterday could refill the bucket of today; without the sum of the units given back since, two
//!   refunds could give back the same drained unit.
//! - [`Ahead`] keeps reserved turns: units that were spent before a turn do not come back until it has come. It is kept for all keys of a
//!   bucket together, in three words. That is coarse: a request that waits for another limit, or in a queue, stops the refunds of other keys
//!   for as long as it waits. It errs on the safe side, and costs nothing if no policy waits.
//! - [`Debtors`] are the keys that may owe more than a burst.
//! - [`Floors`] are the lowest levels of buckets while leases of them are in use: a map that is empty most of the time. An atomic count of its
//!   keys spares all others the lock. Its mutex is taken while the key's set is locked, and never before it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::algorithm::{Rule, State};
use crate::support::lock;

/// A hasher for keys that are already hashes.
#[derive(Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

/// The account of a bucket, in one word, for policies with refunds: its birth in the high 20 bits, and in the others the
/// amount given back to it since, in the measure of its rule's level.
///
/// A bucket is born when it leaves rest. If the sum would no longer fit, the bucket counts as born again: a receipt
/// of the bucket before gives nothing back, rather than too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketAccount(u64);

const GIVEN_BITS: u32 = 44;
const GIVEN_MAX: u64 = (1 << GIVEN_BITS) - 1;
const BIRTHS: u64 = u64::MAX >> GIVEN_BITS;

impl BucketAccount {
    /// The account of the `count`th bucket born in its table. Nothing was given back to it yet.
    pub(super) fn born(count: u64) -> Self {
        // 0 is the account of a key at rest.
        Self((count % BIRTHS + 1) << GIVEN_BITS)
    }

    pub(super) fn of(word: u64) -> Self {
        Self(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn birth(self) -> u64 {
        self.0 >> GIVEN_BITS
    }

    pub(super) fn given(self) -> u64 {
        self.0 & GIVEN_MAX
    }

    /// The account after `given` more units came back; `None` if it does not fit.
    pub(super) fn plus(self, given: u64) -> Option<Self> {
        let sum = self.given().checked_add(given).filter(|sum| *sum <= GIVEN_MAX)?;
        Some(Self(self.0 - self.given() + sum))
    }
}

/// The latest turns that were reserved for any key of a bucket.
///
/// A level drains only to zero, and a window knows nothing of the window before. Units that a request gives back leave a gap
/// before the turns that were reserved after it; a new request that got the gap would proceed at the time of the last of these
/// turns.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The latest turn that waits for this bucket: until then, the bucket is more than full.
    own_us: AtomicU64,
    /// The latest turn that waits for another bucket, or in a queue: until then, this bucket may be at any level.
    other_us: AtomicU64,
}

impl Ahead {
    /// Notes a turn of a key in this state.
    pub(super) fn add(&self, rule: &Rule, state: State, now_us: u64, at_us: u64, cost: u64) {
        let is_own = !rule.is_queue() && rule.slot(state, now_us, cost).departs_us >= at_us;
        let turns = if is_own { &self.own_us } else { &self.other_us };
        // Relaxed, as below: a thread that has seen the state of the key has held the lock of its set.
        turns.fetch_max(at_us, Ordering::Relaxed);
    }

    /// The latest turn of any key.
    pub(super) fn latest_us(&self) -> u64 {
        self.own_us.load(Ordering::Relaxed).max(self.other_us.load(Ordering::Relaxed))
    }

    /// Notes the turns of a bucket whose keys this one inherits.
    pub(super) fn inherit(&self, from: &Self) {
        self.other_us.fetch_max(from.latest_us(), Ordering::Relaxed);
    }

    /// Whether a reserved turn of a key in this state may depend on the units to be given back.
    pub(super) fn may_depend(&self, rule: &Rule, state: State, now_us: u64) -> bool {
        let waits_here = || rule.outstanding(state, now_us) > rule.capacity();
        self.other_us.load(Ordering::Relaxed) > now_us
            || self.own_us.load(Ordering::Relaxed) > now_us && waits_here()
    }
}

/// The words of the filter: 512 bytes, which stay in the cache of a processor while they are asked.
const WORDS: usize = 64;

/// A Bloom filter of one hash: a key that ever owed more than a burst is always found, and a few others are found by mistake, one in a hundred
/// after 40 such keys. It takes no memory before the first of them, and forgets none.
#[derive(Default)]
pub(super) struct Debtors(OnceLock<Box<[AtomicU64; WORDS]>>);

impl Debtors {
    /// Adds the key with this hash.
    pub(super) fn add(&self, hash: u64) {
        let words = self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS]));
        let (word, bit) = spot(hash);
        // Relaxed, here and below: a thread that has an answer about the debt of a key sees its bit.
        if words[word].load(Ordering::Relaxed) & bit == 0 {
            words[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether the key with this hash may be one of them.
    #[inline]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = spot(hash);
        self.0.get().is_some_and(|words| words[word].load(Ordering::Relaxed) & bit != 0)
    }
}

/// The word of a hash, and its bit there.
#[inline]
fn spot(hash: u64) -> (usize, u64) {
    let word = usize::try_from(hash / 64 % WORDS as u64).unwrap_or(0);
    (word, 1 << (hash % 64))
}

/// The floors of the keys of one bucket: for each key, the latest end of a lease. Callers hold the lock of the key's set.
pub(super) struct Floors {
    /// The number of keys that have a floor. While it is 0, decisions skip the map.
    keys: AtomicUsize,
    most: usize,
    all: Mutex<FloorsOfKeys>,
}

#[derive(Default)]
struct FloorsOfKeys {
    of: HashMap<u64, State, BuildHasherDefault<IdentityHasher>>,
    /// At this number of keys, floors that have ended are removed.
    sweep_at: usize,
    /// When the map was last found full and swept.
    full_us: u64,
}

/// The smallest number of keys worth a sweep.
const SWEPT: usize = 64;

/// The time after which a full map is searched again for floors that have ended.
const FULL_FOR_US: u64 = 1_000_000;

impl Floors {
    /// Floors of at most `most` keys.
    pub(super) fn new(most: usize) -> Self {
        Self { keys: AtomicUsize::new(0), most, all: Mutex::default() }
    }

    /// The floor of a key; at rest if the key has no floor or its floor has ended.
    pub(super) fn of(&self, key: u64, now_us: u64) -> State {
        // Relaxed, here and below: earlier floors of the same key were written under the lock of the key's set.
        if self.keys.load(Ordering::Relaxed) == 0 {
            return State::REST;
        }
        let floor = lock(&self.all).of.get(&key).copied();
        floor.filter(|floor| floor.until_us > now_us).unwrap_or(State::REST)
    }

    /// Gives a key this floor, unless its own is higher.
    pub(super) fn raise(&self, rule: &Rule, key: u64, floor: State, now_us: u64) {
        let own = self.of(key, now_us);
        if rule.weight(own, now_us) < rule.weight(floor, now_us) {
            self.set(key, floor, now_us);
        }
    }

    /// Whether there is room for a floor of this key.
    pub(super) fn has_room(&self, key: u64, now_us: u64) -> bool {
        if self.keys.load(Ordering::Relaxed) < self.most {
            return true;
        }
        let mut all = lock(&self.all);
        if all.full_us.abs_diff(now_us) >= FULL_FOR_US {
            all.full_us = now_us;
            all.of.retain(|_, floor| floor.until_us > now_us);
            self.count(&all);
        }
        all.of.len() < self.most || all.of.get(&key).is_some_and(|floor| floor.until_us > now_us)
    }

    /// Gives a key this floor, and none if it has ended. Occasionally removes floors of other keys that have ended.
    pub(super) fn set(&self, key: u64, floor: State, now_us: u64) {
        let has_ended = floor.until_us <= now_us;
        if has_ended && self.keys.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut all = lock(&self.all);
        if has_ended {
            all.of.remove(&key);
        } else {
            if all.of.len() >= all.sweep_at.max(SWEPT) {
                all.of.retain(|_, other| other.until_us > now_us);
                all.sweep_at = 2 * all.of.len();
            }
            all.of.insert(key, floor);
        }
        self.count(&all);
    }

    fn count(&self, all: &FloorsOfKeys) {
        self.keys.store(all.of.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_were_added_are_found_and_few_others() {
        let debtors = Debtors::default();
        // As hashes are: all bits differ.
        let hash = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        assert!((0..1_000).all(|index| !debtors.may_have(hash(index))));
        (0..40).for_each(|index| debtors.add(hash(index)));
        assert!((0..40).all(|index| debtors.may_have(hash(index))));
        let others = (40..10_040).filter(|index| debtors.may_have(hash(*index))).count();
        assert!(others < 200, "{others} of 10,000");
    }

    #[test]
    fn an_account_that_is_full_is_never_taken_for_an_emptier_one() {
        let account = BucketAccount::born(7);
        assert_eq!((account.birth(), account.given()), (8, 0));
        let full = account.plus(GIVEN_MAX).unwrap();
        assert_eq!((full.birth(), full.given()), (8, GIVEN_MAX));
        assert_eq!(full.plus(1), None);
        assert_eq!(account.plus(u64::MAX), None);
        assert_ne!(BucketAccount::born(BIRTHS - 1).birth(), 0);
    }
}
