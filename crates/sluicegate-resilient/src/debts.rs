//! Units that the fallback admitted, to be charged when the store is back.
//!
//! Debts are sums per key and policy, not a list of requests: memory is bounded by keys, and one charge
//! settles any number of requests. Units given back meanwhile are deducted. Debts beyond the
//! bound on keys are forgotten, in favor of the client.
//!
//! When a policy is replaced, its debts move to the new one, including those that are being charged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_core::key::Key;
use sluicegate_core::store::{Inherit, PreparedPolicy};
use smallvec::SmallVec;

/// The most keys whose debts are remembered. Units that the fallback admits for further keys stay uncounted.
const MOST_KEYS: usize = 65_536;

/// The units that each key spent without the store's knowledge.
#[derive(Default)]
pub(super) struct Debts {
    ledger: Mutex<DebtLedger>,
    /// The number of keys, to see without the lock whether there are debts.
    count: AtomicUsize,
}

#[derive(Default)]
struct DebtLedger {
    keys: HashMap<Key, Owed>,
    /// The policies that were replaced since debts were taken out, if any are out.
    replaced: Option<Vec<(PreparedPolicy, PreparedPolicy, Inherit)>>,
}

/// The debts of one key, per policy; most have one.
type Owed = SmallVec<[Debt; 1]>;

/// Units that one key spent under one policy.
#[derive(Clone)]
pub(super) struct Debt {
    pub(super) policy: PreparedPolicy,
    pub(super) units: u64,
    /// The part of the units that counts suspensions already reported to the store.
    alone: u64,
    /// If this is the rest of a suspension, the policy that counts suspensions, and their number.
    pub(super) counted: Option<(PreparedPolicy, u64)>,
}

impl Debt {
    fn new(policy: PreparedPolicy, units: u64) -> Self {
        Self { policy, units, alone: 0, counted: None }
    }

    /// Whether this is the rest of a suspension, which is reported to the store in another way.
    pub(super) fn is_suspension(&self) -> bool {
        self.policy.policy().counts_suspensions_in().is_some()
    }
}

/// Pairs the rest of each suspension with the count of suspensions. Counts that are owed alone stay separate, because they apply
/// whatever the store says of the suspension.
fn paired(owed: Owed) -> Owed {
    let (mut rests, mut others): (Owed, Owed) = owed.into_iter().partition(Debt::is_suspension);
    for rest in &mut rests {
        let name = rest.policy.policy().counts_suspensions_in();
        let is_its = |debt: &Debt| name.as_deref() == Some(debt.policy.policy().name());
        if let Some(place) = others.iter().position(is_its) {
            let count = &mut others[place];
            let units = count.units.saturating_sub(count.alone);
            rest.counted = (units > 0).then(|| (count.policy.clone(), units));
            count.units -= units;
        }
    }
    others.extend(rests);
    others
}

impl DebtLedger {
    /// The debt under the policy in force; `None` if that policy has let all keys start afresh.
    fn in_force(&self, mut debt: Debt) -> Option<Debt> {
        for (old, new, how) in self.replaced.iter().flatten() {
            if debt.policy.is(old) {
                if *how == Inherit::Reset {
                    return None;
                }
                debt.policy = new.clone();
            }
            if let Some((suspensions, _)) = &mut debt.counted
                && suspensions.is(old)
            {
                *suspensions = new.clone();
            }
        }
        Some(debt)
    }

    fn add(&mut self, key: Key, debt: Debt) {
        if self.keys.len() >= MOST_KEYS && !self.keys.contains_key(&key) {
            return;
        }
        let owed = self.keys.entry(key).or_default();
        match owed.iter_mut().find(|other| other.policy.is(&debt.policy)) {
            Some(other) => {
                // The new policy has the latest quotas of the key.
                other.policy = debt.policy;
                other.units = other.units.saturating_add(debt.units);
                other.alone = other.alone.saturating_add(debt.alone);
            }
            None => owed.push(debt),
        }
    }
}

impl Debts {
    fn lock(&self) -> MutexGuard<'_, DebtLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of keys in debt.
    pub(super) fn count(&self) -> usize {
        // Relaxed: the count orders nothing else.
        self.count.load(Ordering::Relaxed)
    }

    /// The number of debts: a key has one for each policy.
    pub(super) fn owed(&self) -> usize {
        self.lock().keys.values().flatten().filter(|debt| debt.units > 0).count()
    }

    pub(super) fn add(&self, policy: &PreparedPolicy, key: Key, units: u64) {
        let mut ledger = self.lock();
        ledger.add(key, Debt::new(policy.clone(), units));
        self.count.store(ledger.keys.len(), Ordering::Relaxed);
    }

    /// Adds suspensions that were reported to the store but not counted there. Their policy may have been replaced meanwhile.
    pub(super) fn add_count(&self, suspensions: &PreparedPolicy, key: Key, times: u64) {
        let mut ledger = self.lock();
        let debt = Debt { alone: times, ..Debt::new(suspensions.clone(), times) };
        if let Some(debt) = ledger.in_force(debt) {
            ledger.add(key, debt);
            self.count.store(ledger.keys.len(), Ordering::Relaxed);
        }
    }

    /// Deducts up to `units` that were given back before they were charged.
    pub(super) fn strike(&self, policy: &PreparedPolicy, key: &Key, units: u64) {
        if self.count() == 0 {
            return;
        }
        let mut ledger = self.lock();
        let debt =
            ledger.keys.get_mut(key).and_then(|owed| owed.iter_mut().find(|debt| debt.policy.is(policy)));
        if let Some(debt) = debt {
            debt.units = debt.units.saturating_sub(units);
        }
    }

    /// Moves debts from a replaced policy to the new one; or forgets them, if the new one starts all keys afresh.
    pub(super) fn hand_over(&self, old: &PreparedPolicy, new: &PreparedPolicy, how: Inherit) {
        let mut ledger = self.lock();
        if let Some(replaced) = &mut ledger.replaced {
            replaced.push((old.clone(), new.clone(), how));
        }
        for owed in ledger.keys.values_mut() {
            for debt in owed.iter_mut().filter(|debt| debt.policy.is(old)) {
                debt.policy = new.clone();
            }
        }
        if how == Inherit::Reset {
            ledger.keys.retain(|_, owed| {
                owed.retain(|debt| !debt.policy.is(new));
                !owed.is_empty()
            });
            self.count.store(ledger.keys.len(), Ordering::Relaxed);
        }
    }

    /// Moves debts that are being charged to the policies in force, if more than `seen` policies were replaced.
    pub(super) fn follow(&self, out: &mut Vec<(u64, (Key, Debt))>, seen: &mut usize) {
        let ledger = self.lock();
        let replaced = ledger.replaced.as_ref().map_or(0, Vec::len);
        if replaced > *seen {
            *seen = replaced;
            let follows = |(parts, (key, debt))| Some((parts, (key, ledger.in_force(debt)?)));
            *out = std::mem::take(out).into_iter().filter_map(follows).collect();
        }
    }

    /// Puts back debts that were taken out and not charged, which ends the taking out. Returns their number.
    pub(super) fn put_back(&self, kept: impl IntoIterator<Item = (Key, Debt)>) -> usize {
        let (mut ledger, mut left) = (self.lock(), 0);
        for (key, debt) in kept {
            let Some(Debt { policy, units, alone, counted }) = ledger.in_force(debt) else { continue };
            if let Some((suspensions, times)) = counted {
                ledger.add(key.clone(), Debt::new(suspensions, times));
            }
            ledger.add(key, Debt { policy, units, alone, counted: None });
            left += 1;
        }
        ledger.replaced = None;
        self.count.store(ledger.keys.len(), Ordering::Relaxed);
        left
    }

    /// Takes all debts out, in the order of the keys, so that a run is repeatable. The rest has to be
    /// [put back](Self::put_back).
    pub(super) fn take(&self) -> Vec<(Key, Debt)> {
        let mut ledger = self.lock();
        ledger.replaced = Some(Vec::new());
        let mut keys: Vec<_> = std::mem::take(&mut ledger.keys).into_iter().collect();
        self.count.store(0, Ordering::Relaxed);
        drop(ledger);
        keys.sort_unstable_by(|(one, _), (other, _)| one.as_bytes().cmp(other.as_bytes()));
        let each = |(key, owed): (Key, Owed)| paired(owed).into_iter().map(move |debt| (key.clone(), debt));
        keys.into_iter().flat_map(each).filter(|(_, debt)| debt.units > 0).collect()
    }
}
