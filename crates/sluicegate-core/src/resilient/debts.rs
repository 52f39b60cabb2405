//! Units that the fallback admitted, to be debited when the store is back.
//!
//! Sums per key and policy, not a list of requests: memory is bounded by keys, and one charge
//! settles any number of requests. What was given back meanwhile is struck off. Debts beyond the
//! bound on keys are forgotten, in favour of the client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::key::Key;
use crate::store::{Inherit, PreparedPolicy};

/// Keys whose debts are remembered. Of those beyond, what the fallback admitted stays uncounted.
const MOST_KEYS: usize = 65_536;

/// The spends of each key that the store does not know of.
#[derive(Default)]
pub(super) struct Debts {
    keys: Mutex<HashMap<Key, Owed>>,
    /// How many keys there are, for those who only want to know whether there are any.
    count: AtomicUsize,
}

/// The debts of one key, per policy; most have one.
type Owed = SmallVec<[Debt; 1]>;

/// Units that one key spent under one policy.
#[derive(Clone)]
pub(super) struct Debt {
    pub(super) policy: PreparedPolicy,
    pub(super) units: u64,
    /// Where the store counts suspensions, and how many there were, if this is the rest of one.
    pub(super) counted: Option<(PreparedPolicy, u64)>,
}

impl Debt {
    fn new(policy: PreparedPolicy, units: u64) -> Self {
        Self { policy, units, counted: None }
    }

    /// Whether it is the rest of a suspension, which is told to the store in another way.
    pub(super) fn is_suspension(&self) -> bool {
        self.policy.policy().counts_suspensions_in().is_some()
    }
}

/// The debts of one key, of which the rest of a suspension has with it how often the key was suspended.
fn paired(owed: Owed) -> Owed {
    let (mut rests, mut others): (Owed, Owed) = owed.into_iter().partition(Debt::is_suspension);
    for rest in &mut rests {
        let name = rest.policy.policy().counts_suspensions_in();
        let is_its = |debt: &Debt| name.as_deref() == Some(debt.policy.policy().name());
        if let Some(place) = others.iter().position(is_its) {
            let Debt { policy, units, .. } = others.remove(place);
            rest.counted = Some((policy, units));
        }
    }
    others.extend(rests);
    others
}

impl Debts {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Owed>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many keys are in debt.
    pub(super) fn count(&self) -> usize {
        // Relaxed: a number to look at.
        self.count.load(Ordering::Relaxed)
    }

    /// How many debts there are: a key has one for each policy.
    pub(super) fn owed(&self) -> usize {
        self.lock().values().flatten().filter(|debt| debt.units > 0).count()
    }

    pub(super) fn add(&self, policy: &PreparedPolicy, key: Key, units: u64) {
        let mut keys = self.lock();
        if keys.len() >= MOST_KEYS && !keys.contains_key(&key) {
            return;
        }
        let owed = keys.entry(key).or_default();
        match owed.iter_mut().find(|debt| debt.policy.is(policy)) {
            Some(debt) => debt.units = debt.units.saturating_add(units),
            None => owed.push(Debt::new(policy.clone(), units)),
        }
        self.count.store(keys.len(), Ordering::Relaxed);
    }

    /// Strikes off up to `units`: what was given back before it was debited.
    pub(super) fn strike(&self, policy: &PreparedPolicy, key: &Key, units: u64) {
        if self.count() == 0 {
            return;
        }
        let mut keys = self.lock();
        let debt = keys.get_mut(key).and_then(|owed| owed.iter_mut().find(|debt| debt.policy.is(policy)));
        if let Some(debt) = debt {
            debt.units = debt.units.saturating_sub(units);
        }
    }

    /// Under another policy from now on, the one that replaces theirs; or forgotten, if that one starts everybody afresh.
    pub(super) fn hand_over(&self, old: &PreparedPolicy, new: &PreparedPolicy, how: Inherit) {
        if self.count() == 0 {
            return;
        }
        let mut keys = self.lock();
        for owed in keys.values_mut() {
            for debt in owed.iter_mut().filter(|debt| debt.policy.is(old)) {
                debt.policy = new.clone();
            }
        }
        if how == Inherit::Reset {
            keys.retain(|_, owed| {
                owed.retain(|debt| !debt.policy.is(new));
                !owed.is_empty()
            });
            self.count.store(keys.len(), Ordering::Relaxed);
        }
    }

    /// Puts back what was taken out.
    pub(super) fn put_back(&self, key: Key, Debt { policy, units, counted }: Debt) {
        if let Some((suspensions, times)) = counted {
            self.add(&suspensions, key.clone(), times);
        }
        self.add(&policy, key, units);
    }

    /// Takes everything out, in the order of the keys, so that a run can be repeated.
    pub(super) fn take(&self) -> Vec<(Key, Debt)> {
        let mut keys: Vec<_> = std::mem::take(&mut *self.lock()).into_iter().collect();
        keys.sort_unstable_by(|(one, _), (other, _)| one.as_bytes().cmp(other.as_bytes()));
        self.count.store(0, Ordering::Relaxed);
        let each = |(key, owed): (Key, Owed)| paired(owed).into_iter().map(move |debt| (key.clone(), debt));
        keys.into_iter().flat_map(each).filter(|(_, debt)| debt.units > 0).collect()
    }
}
