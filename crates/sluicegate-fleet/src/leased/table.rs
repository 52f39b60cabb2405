//! The accounts of all keys: [`Table`], in sets of eight with a lock each.
//!
//! # Memory
//! There are as many accounts as were configured, rounded up to whole sets. An account with units or with a refill under way never makes
//! room, because its units would be lost; a key that finds its set full of such accounts is decided by the store, and leases nothing.
//!
//! # Locking
//! A request with one ask locks one set, for a few dozen instructions and never across a call. A request with several asks locks all its
//! sets in ascending order. No other lock of this crate is taken inside.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;
use sluicegate_core::Key;
use sluicegate_core::key::KeyRef;
use smallvec::SmallVec;

use super::account::Account;
use super::plan::Plan;

/// The number of keys of one set: a key that finds it full of leases is not leased.
const WAYS: usize = 8;

/// A bounded table. A key lives in the set that its hash names, and makes room for another one when it holds no units.
pub(super) struct Table {
    sets: Box<[Mutex<Set>]>,
    hasher: RandomState,
}

/// The accounts of a few keys, and counts about keys of this set.
#[derive(Default)]
pub(super) struct Set {
    entries: Vec<Entry>,
    pub(super) counts: Counts,
}

/// Counters, kept beside the accounts so that no request writes to a cache line that all others write to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Requests that were decided here.
    pub(super) local: u64,
    /// Units that were leased.
    pub(super) granted: u64,
    /// Units that ended before they were spent, or were dropped.
    pub(super) lost: u64,
    /// Units that were given back.
    pub(super) returned: u64,
}

struct Entry {
    hash: u64,
    plan: Arc<Plan>,
    key: Key,
    account: Account,
}

/// A key under a policy, to be found again when an answer comes.
#[derive(Clone)]
pub(super) struct Spot {
    pub(super) hash: u64,
    pub(super) plan: Arc<Plan>,
    pub(super) key: Key,
}

impl Table {
    pub(super) fn new(keys: usize) -> Self {
        let sets = keys.div_ceil(WAYS).max(1);
        Self { sets: (0..sets).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }

    /// The hash of a key under a plan; keyed at random, so that no client chooses its set.
    #[inline]
    pub(super) fn hash(&self, plan: &Arc<Plan>, key: KeyRef<'_>) -> u64 {
        self.hasher.hash_one((Arc::as_ptr(plan).addr(), key))
    }

    /// The place of the set of a hash.
    #[inline]
    pub(super) fn place(&self, hash: u64) -> usize {
        (((hash & u64::from(u32::MAX)) * self.sets.len() as u64) >> 32) as usize
    }

    /// The set at this place.
    #[inline]
    pub(super) fn set(&self, place: usize) -> MutexGuard<'_, Set> {
        self.sets[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set of a hash.
    #[inline]
    pub(super) fn set_of(&self, hash: u64) -> MutexGuard<'_, Set> {
        self.set(self.place(hash))
    }

    /// All sets, one after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Set>> {
        (0..self.sets.len()).map(|place| self.set(place))
    }
}

impl Set {
    /// The account of a key, if it has one, and the counts of its set.
    #[inline]
    pub(super) fn find(
        &mut self,
        hash: u64,
        plan: &Arc<Plan>,
        key: KeyRef<'_>,
    ) -> Option<(&mut Account, &mut Counts)> {
        let is_it = |entry: &&mut Entry| {
            entry.hash == hash && Arc::ptr_eq(&entry.plan, plan) && entry.key.as_ref() == key
        };
        let entry = self.entries.iter_mut().find(is_it)?;
        Some((&mut entry.account, &mut self.counts))
    }

    /// The account at a spot.
    pub(super) fn at(&mut self, spot: &Spot) -> Option<(&mut Account, &mut Counts)> {
        self.find(spot.hash, &spot.plan, spot.key.as_ref())
    }

    /// Makes room for a key that is not here, and an account for it; `None` if all others hold units.
    ///
    /// Units that have ended are forgotten first, so a key that no longer comes gives up its place after its last lease. Among keys without
    /// units, the one whose pace began anew the longest ago makes room.
    pub(super) fn make(
        &mut self,
        hash: u64,
        plan: &Arc<Plan>,
        key: KeyRef<'_>,
        now_us: u64,
    ) -> Option<&mut Account> {
        for Entry { plan, account, .. } in &mut self.entries {
            if let Some(measures) = plan.measures().filter(|_| !account.units.is_empty()) {
                self.counts.lost += account.units.expire(measures, now_us);
            }
        }
        let entry = Entry { hash, plan: Arc::clone(plan), key: key.to_key(), account: Account::new(now_us) };
        if self.entries.len() < WAYS {
            self.entries.push(entry);
            return self.entries.last_mut().map(|entry| &mut entry.account);
        }
        let idle = self.entries.iter_mut().filter_map(|entry| Some((entry.account.idle_since()?, entry)));
        let (_, oldest) = idle.min_by_key(|(since_us, _)| *since_us)?;
        *oldest = entry;
        Some(&mut oldest.account)
    }

    /// Drops all keys of a policy.
    pub(super) fn drop_plan(&mut self, plan: &Arc<Plan>) {
        let counts = &mut self.counts;
        self.entries.retain_mut(|entry| {
            let stays = !Arc::ptr_eq(&entry.plan, plan);
            if !stays {
                counts.lost += entry.account.forget();
            }
            stays
        });
    }

    /// Calls `each` with every account.
    pub(super) fn walk(&mut self, mut each: impl FnMut(&Plan, &Key, &mut Account, &mut Counts)) {
        for Entry { plan, key, account, .. } in &mut self.entries {
            each(plan, key, account, &mut self.counts);
        }
    }
}

/// The sets at these places, each once, locked in ascending order so that two requests cannot wait for each other.
pub(super) fn locked<'a>(
    table: &'a Table,
    places: impl Iterator<Item = usize>,
) -> SmallVec<[(usize, MutexGuard<'a, Set>); 4]> {
    let mut places: SmallVec<[usize; 4]> = places.collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|place| (place, table.set(place))).collect()
}
