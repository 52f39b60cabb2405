//! Units that are held for requests that wait for another limit.
//!
//! A request that waits for limit A must be sure of limit B when its turn comes, and must not have
//! spent B before: until then the units count in full and do not drain. They are kept [beside](Beside)
//! the table, and only while requests with several limits wait.

use smallvec::SmallVec;

use super::beside::Beside;

/// Units that one waiting request holds: they count in full until it departs, and then become a spend at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// Different for every hold of a store.
    pub(super) id: u64,
    pub(super) units: u64,
    /// When the request departs.
    pub(super) until_us: u64,
}

/// The holds of one key, in the order of departure.
pub(super) type KeyHolds = SmallVec<[Hold; 2]>;

/// The holds of the keys of one bucket, beside its table. Callers hold the lock of the key's set or shard.
pub(super) struct BucketHolds(Beside<KeyHolds>);

impl BucketHolds {
    /// Holds of at most `most` keys.
    pub(super) fn new(most: usize) -> Self {
        Self(Beside::new(most))
    }

    /// Whether any key may hold units. Call it under the lock of the key's set.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.any()
    }

    pub(super) fn of(&self, key: u64) -> KeyHolds {
        self.0.of(key)
    }

    /// Units that are held for the key.
    pub(super) fn units(&self, key: u64) -> u64 {
        units(&self.of(key))
    }

    /// Whether there is room for a key that holds no units yet.
    pub(super) fn has_room(&self, now_us: u64, is_over: impl Fn(&Hold) -> bool) -> bool {
        self.0.has_room(now_us, |held| held.iter().all(&is_over))
    }

    /// Holds units for a key. Removes holds of other keys that ended long enough ago to have drained.
    pub(super) fn add(&self, key: u64, hold: Hold, is_over: impl Fn(&Hold) -> bool) {
        let add = |held: &mut KeyHolds| {
            let place = held.partition_point(|other| other.until_us <= hold.until_us);
            held.insert(place, hold);
        };
        self.0.add(key, add, |held| held.iter().all(&is_over));
    }

    /// Changes the holds of a key.
    pub(super) fn change<T>(&self, key: u64, change: impl FnOnce(&mut KeyHolds) -> T) -> T {
        self.0.change(key, change, |held| held.is_empty())
    }

    /// Restores a key's holds.
    pub(super) fn restore(&self, key: u64, held: KeyHolds) {
        self.0.restore(key, Some(held).filter(|held| !held.is_empty()));
    }

    /// Takes up to `units` out of a hold; returns the number taken, or `None` if the hold has ended.
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
    pub(super) fn ended(&self, key: u64, now_us: u64) -> KeyHolds {
        self.change(key, |held| {
            let count = held.partition_point(|hold| hold.until_us <= now_us);
            held.drain(..count).collect()
        })
    }
}

pub(super) fn units(held: &[Hold]) -> u64 {
    held.iter().fold(0, |sum, hold| sum.saturating_add(hold.units))
}
