//! Facts about a few keys of a bucket at a time, kept apart from its table: [`Beside`].
//!
//! A map that is empty most of the time. An atomic count of its keys spares all others the lock.
//! Its mutex is taken while the key's set is locked, and never before it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::support::lock;

/// A value for each of a few keys of one bucket. Callers hold the lock of the key's set or shard.
pub(super) struct Beside<T> {
    /// The number of keys that have a value. While it is 0, decisions skip the map.
    keys: AtomicUsize,
    most: usize,
    all: Mutex<All<T>>,
}

struct All<T> {
    of: HashMap<u64, T, BuildHasherDefault<IdentityHasher>>,
    /// At this number of keys, values that no longer matter are removed.
    sweep_at: usize,
    /// When the map was last found full and swept.
    full_us: u64,
}

/// The smallest number of keys worth a sweep.
const SWEPT: usize = 64;

/// The time after which a full map is searched again for values that are over.
const FULL_FOR_US: u64 = 1_000_000;

impl<T: Clone + Default> Beside<T> {
    /// A map for at most `most` keys.
    pub(super) fn new(most: usize) -> Self {
        Self {
            keys: AtomicUsize::new(0),
            most,
            all: Mutex::new(All { of: HashMap::default(), sweep_at: 0, full_us: 0 }),
        }
    }

    /// Whether any key may have a value. Call it under the lock of the key's set.
    #[inline]
    pub(super) fn any(&self) -> bool {
        // Relaxed: earlier values of the same key were written under the lock of the key's set.
        self.keys.load(Ordering::Relaxed) > 0
    }

    /// Whether there is room for a key that has no value yet.
    pub(super) fn has_room(&self, now_us: u64, is_over: impl Fn(&T) -> bool) -> bool {
        if self.keys.load(Ordering::Relaxed) < self.most {
            return true;
        }
        let mut all = self.lock();
        if all.full_us.abs_diff(now_us) >= FULL_FOR_US {
            all.full_us = now_us;
            all.of.retain(|_, own| !is_over(own));
            self.count(&all);
        }
        all.of.len() < self.most
    }

    /// The entry of the key; the default if there is none.
    pub(super) fn of(&self, key: u64) -> T {
        self.look(key, T::clone)
    }

    /// Looks at the entry of the key; at the default if there is none.
    pub(super) fn look<R>(&self, key: u64, look: impl FnOnce(&T) -> R) -> R {
        if self.any()
            && let Some(own) = self.lock().of.get(&key)
        {
            return look(own);
        }
        look(&T::default())
    }

    /// Changes a key's value, the default if it has none. Occasionally removes values of other keys that are over.
    pub(super) fn add(&self, key: u64, add: impl FnOnce(&mut T), is_over: impl Fn(&T) -> bool) {
        let mut all = self.lock();
        if all.of.len() >= all.sweep_at.max(SWEPT) {
            all.of.retain(|_, other| !is_over(other));
            all.sweep_at = 2 * all.of.len();
        }
        add(all.of.entry(key).or_default());
        self.count(&all);
    }

    /// Changes a key's value, if it has one, and removes it if it is then over.
    pub(super) fn change<R>(
        &self,
        key: u64,
        change: impl FnOnce(&mut T) -> R,
        is_over: impl Fn(&T) -> bool,
    ) -> R {
        if !self.any() {
            return change(&mut T::default());
        }
        let mut all = self.lock();
        let own = all.of.entry(key).or_default();
        let result = change(own);
        if is_over(own) {
            all.of.remove(&key);
        }
        self.count(&all);
        result
    }

    fn lock(&self) -> MutexGuard<'_, All<T>> {
        lock(&self.all)
    }

    fn count(&self, all: &All<T>) {
        self.keys.store(all.of.len(), Ordering::Relaxed);
    }
}

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
