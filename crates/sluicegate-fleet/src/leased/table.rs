//! The accounts of all keys: [`AccountTable`], in sets of eight with a lock each.
//!
//! # Memory
//! There are as many accounts as configured, rounded up to whole sets. An account with units or with a refill under way never makes
//! room, because its units would be lost; a key that finds its set full of such accounts is decided by the store, and leases nothing.
//!
//! # Locking
//! A request with one ask locks one set, for a few dozen instructions and never across a call. A request with several asks locks all its
//! sets in ascending order. No other lock of this crate is taken inside.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::quality::RandomState;
use sluicegate_core::Key;
use sluicegate_core::key::KeyRef;
use sluicegate_core::store::LeaseStatus;
use sluicegate_core::support::lock;
use smallvec::SmallVec;

use super::account::KeyAccount;
use super::policy::LeasedPolicy;

/// The number of keys of one set: a key that finds it full of leases is not leased.
const WAYS: usize = 8;

/// A bounded table. A key lives in the set of its hash, and makes room for another key when it holds no units.
pub(super) struct AccountTable {
    sets: Box<[Mutex<AccountSet>]>,
    hasher: RandomState,
}

/// The accounts of a few keys, and counts about keys of this set.
#[derive(Default)]
pub(super) struct AccountSet {
    entries: Vec<AccountEntry>,
    /// Beside the accounts, so that no request writes to a cache line that all others write to.
    pub(super) counts: LeaseStatus,
}

struct AccountEntry {
    hash: u64,
    policy: Arc<LeasedPolicy>,
    key: Key,
    account: KeyAccount,
}

/// A key under a policy, to be found again when an answer comes.
#[derive(Clone)]
pub(super) struct AccountId {
    pub(super) hash: u64,
    pub(super) policy: Arc<LeasedPolicy>,
    pub(super) key: Key,
}

impl AccountTable {
    pub(super) fn new(keys: usize) -> Self {
        let sets = keys.div_ceil(WAYS).max(1);
        Self { sets: (0..sets).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }

    /// The hash of a key under a policy; keyed at random, so that no client chooses its set.
    #[inline]
    pub(super) fn hash(&self, policy: &Arc<LeasedPolicy>, key: KeyRef<'_>) -> u64 {
        self.hasher.hash_one((Arc::as_ptr(policy).addr(), key))
    }

    /// The index of the set of a hash.
    #[inline]
    pub(super) fn place(&self, hash: u64) -> usize {
        (((hash & u64::from(u32::MAX)) * self.sets.len() as u64) >> 32) as usize
    }

    /// The set at this index.
    #[inline]
    pub(super) fn set(&self, place: usize) -> MutexGuard<'_, AccountSet> {
        lock(&self.sets[place])
    }

    /// The set of a hash.
    #[inline]
    pub(super) fn set_of(&self, hash: u64) -> MutexGuard<'_, AccountSet> {
        self.set(self.place(hash))
    }

    /// All sets, one after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, AccountSet>> {
        (0..self.sets.len()).map(|place| self.set(place))
    }
}

impl AccountSet {
    /// The account of a key, if it has one, and the counts of its set.
    #[inline]
    pub(super) fn find(
        &mut self,
        hash: u64,
        policy: &Arc<LeasedPolicy>,
        key: KeyRef<'_>,
    ) -> Option<(&mut KeyAccount, &mut LeaseStatus)> {
        let is_it = |entry: &&mut AccountEntry| {
            entry.hash == hash && Arc::ptr_eq(&entry.policy, policy) && entry.key.as_ref() == key
        };
        let entry = self.entries.iter_mut().find(is_it)?;
        Some((&mut entry.account, &mut self.counts))
    }

    /// The account with an id.
    pub(super) fn at(&mut self, id: &AccountId) -> Option<(&mut KeyAccount, &mut LeaseStatus)> {
        self.find(id.hash, &id.policy, id.key.as_ref())
    }

    /// Makes room for an absent key and an account for it; `None` if all others hold units.
    ///
    /// Units that have ended are forgotten first, so an unused key gives up its place after its last lease. Among keys without
    /// units, the one with the oldest start of its rate makes room.
    pub(super) fn make(
        &mut self,
        hash: u64,
        policy: &Arc<LeasedPolicy>,
        key: KeyRef<'_>,
        now_us: u64,
    ) -> Option<&mut KeyAccount> {
        for AccountEntry { policy, account, .. } in &mut self.entries {
            if let Some(measures) = policy.measures().filter(|_| !account.units.is_empty()) {
                self.counts.lost += account.units.expire(measures, now_us);
            }
        }
        let entry = AccountEntry {
            hash,
            policy: Arc::clone(policy),
            key: key.to_key(),
            account: KeyAccount::new(now_us),
        };
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
    pub(super) fn drop_policy(&mut self, policy: &Arc<LeasedPolicy>) {
        let counts = &mut self.counts;
        self.entries.retain_mut(|entry| {
            let stays = !Arc::ptr_eq(&entry.policy, policy);
            if !stays {
                counts.lost += entry.account.forget();
            }
            stays
        });
    }

    /// Calls `each` with every account.
    pub(super) fn walk(
        &mut self,
        mut each: impl FnMut(&LeasedPolicy, &Key, &mut KeyAccount, &mut LeaseStatus),
    ) {
        for AccountEntry { policy, key, account, .. } in &mut self.entries {
            each(policy, key, account, &mut self.counts);
        }
    }
}

/// The sets at these indices, each once, locked in ascending order so that two requests cannot wait for each other.
pub(super) fn locked<'a>(
    table: &'a AccountTable,
    places: impl Iterator<Item = usize>,
) -> SmallVec<[(usize, MutexGuard<'a, AccountSet>); 4]> {
    let mut places: SmallVec<[usize; 4]> = places.collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|place| (place, table.set(place))).collect()
}
