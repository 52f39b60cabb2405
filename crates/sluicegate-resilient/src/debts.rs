//! Units that the fallback admitted, to be charged when the store is back.
//!
//! Debts are sums per key and policy, not a list of requests: memory is bounded by keys, and one charge
//! settles any number of requests. Units given back meanwhile are deducted. Debts beyond the
//! bound on keys are forgotten, in favor of the client.
//!
//! Debts are kept by the part of the store that they are owed to: those of a part that is down are left where they are while
//! others are charged.
//!
//! When a policy is replaced, its debts move to the new one, and a key that is reset owes nothing, including debts that are being
//! charged.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::store::{Inherit, PreparedPolicy};
use sluicegate_core::support::lock;
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
    /// The debts to each part of the store, or to several parts together.
    parts: BTreeMap<u64, HashMap<Key, Owed>>,
    /// The number of keys in all parts.
    keys: usize,
    /// The changes of debts since some were taken out, if any are out.
    since: Option<Vec<DebtChange>>,
}

/// A change of debts that may be out.
enum DebtChange {
    /// A policy was replaced by another one.
    Replaced(PreparedPolicy, PreparedPolicy, Inherit),
    /// A key was reset under a policy.
    Reset(PreparedPolicy, Key),
}

/// The debts of one key, per policy; most have one.
type Owed = SmallVec<[Debt; 1]>;

/// A debt with its key and the parts of the store that it is owed to.
pub(super) type PartDebt = (u64, (Key, Debt));

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
    /// The debt of a key under the policy in force; `None` if the key was reset, or that policy has let all keys start afresh.
    fn in_force(&self, key: &Key, mut debt: Debt) -> Option<Debt> {
        for change in self.since.iter().flatten() {
            let (old, new, how) = match change {
                DebtChange::Replaced(old, new, how) => (old, new, how),
                DebtChange::Reset(policy, reset) if debt.policy.is(policy) && key == reset => return None,
                DebtChange::Reset(..) => continue,
            };
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

    fn add(&mut self, parts: u64, key: Key, debt: Debt) {
        let is_known = self.parts.get(&parts).is_some_and(|keys| keys.contains_key(&key));
        if !is_known && self.keys >= MOST_KEYS {
            return;
        }
        self.keys += usize::from(!is_known);
        let owed = self.parts.entry(parts).or_default().entry(key).or_default();
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

    fn recount(&mut self) {
        self.keys = self.parts.values().map(HashMap::len).sum();
    }
}

impl Debts {
    fn lock(&self) -> MutexGuard<'_, DebtLedger> {
        lock(&self.ledger)
    }

    /// The number of keys in debt.
    pub(super) fn count(&self) -> usize {
        // Relaxed: the count orders nothing else.
        self.count.load(Ordering::Relaxed)
    }

    /// The number of debts: a key has one for each policy.
    pub(super) fn owed(&self) -> usize {
        self.lock().parts.values().flat_map(HashMap::values).flatten().filter(|debt| debt.units > 0).count()
    }

    pub(super) fn add(&self, parts: u64, policy: &PreparedPolicy, key: Key, units: u64) {
        let mut ledger = self.lock();
        ledger.add(parts, key, Debt::new(policy.clone(), units));
        self.count.store(ledger.keys, Ordering::Relaxed);
    }

    /// Adds suspensions that were reported to the store but not counted there. Their policy may have been replaced meanwhile.
    pub(super) fn add_count(&self, parts: u64, suspensions: &PreparedPolicy, key: Key, times: u64) {
        let mut ledger = self.lock();
        let debt = Debt { alone: times, ..Debt::new(suspensions.clone(), times) };
        if let Some(debt) = ledger.in_force(&key, debt) {
            ledger.add(parts, key, debt);
            self.count.store(ledger.keys, Ordering::Relaxed);
        }
    }

    /// Deducts up to `units` that were given back before they were charged.
    pub(super) fn strike(&self, parts: u64, policy: &PreparedPolicy, key: &Key, units: u64) {
        let mut ledger = self.lock();
        let owed = ledger.parts.get_mut(&parts).and_then(|keys| keys.get_mut(key));
        if let Some(debt) = owed.and_then(|owed| owed.iter_mut().find(|debt| debt.policy.is(policy))) {
            debt.units = debt.units.saturating_sub(units);
        }
    }

    /// Forgets the debt of a key that was reset. A count of suspensions goes with the rest of its suspension.
    pub(super) fn forget(&self, policy: &PreparedPolicy, key: KeyRef<'_>) {
        let mut ledger = self.lock();
        if ledger.keys == 0 && ledger.since.is_none() {
            return;
        }
        let key = key.to_key();
        let owed = ledger.parts.values_mut().filter_map(|keys| keys.get_mut(&key)).flatten();
        owed.filter(|debt| debt.policy.is(policy)).for_each(|debt| debt.units = 0);
        if let Some(since) = &mut ledger.since {
            since.push(DebtChange::Reset(policy.clone(), key));
        }
    }

    /// Moves debts from a replaced policy to the new one; or forgets them, if the new one starts all keys afresh.
    pub(super) fn hand_over(&self, old: &PreparedPolicy, new: &PreparedPolicy, how: Inherit) {
        let mut ledger = self.lock();
        if let Some(since) = &mut ledger.since {
            since.push(DebtChange::Replaced(old.clone(), new.clone(), how));
        }
        for debt in ledger.parts.values_mut().flat_map(HashMap::values_mut).flatten() {
            if debt.policy.is(old) {
                debt.policy = new.clone();
            }
        }
        if how == Inherit::Reset {
            for keys in ledger.parts.values_mut() {
                keys.retain(|_, owed| {
                    owed.retain(|debt| !debt.policy.is(new));
                    !owed.is_empty()
                });
            }
            ledger.recount();
            self.count.store(ledger.keys, Ordering::Relaxed);
        }
    }

    /// Changes debts that are being charged as those in the ledger were, if there are more than `seen` changes.
    pub(super) fn follow(&self, out: &mut Vec<PartDebt>, seen: &mut usize) {
        let ledger = self.lock();
        let changes = ledger.since.as_ref().map_or(0, Vec::len);
        if changes > *seen {
            *seen = changes;
            let follows = |(parts, (key, debt)): PartDebt| {
                let debt = ledger.in_force(&key, debt)?;
                Some((parts, (key, debt)))
            };
            *out = std::mem::take(out).into_iter().filter_map(follows).collect();
        }
    }

    /// Puts back debts that were taken out and not charged, which ends the taking out.
    pub(super) fn put_back(&self, kept: impl IntoIterator<Item = PartDebt>) {
        let mut ledger = self.lock();
        for (parts, (key, debt)) in kept {
            let Some(Debt { policy, units, alone, counted }) = ledger.in_force(&key, debt) else { continue };
            if let Some((suspensions, times)) = counted {
                ledger.add(parts, key.clone(), Debt::new(suspensions, times));
            }
            ledger.add(parts, key, Debt { policy, units, alone, counted: None });
        }
        ledger.since = None;
        self.count.store(ledger.keys, Ordering::Relaxed);
    }

    /// Takes out all debts to parts that are asked, in the order of the parts and the keys, so that a run is repeatable. The rest has to be
    /// [put back](Self::put_back).
    pub(super) fn take(&self, is_asked: impl Fn(u64) -> bool) -> Vec<PartDebt> {
        let mut ledger = self.lock();
        ledger.since = Some(Vec::new());
        let all = std::mem::take(&mut ledger.parts).into_iter();
        let (taken, left): (BTreeMap<_, _>, _) = all.partition(|(parts, _)| is_asked(*parts));
        ledger.parts = left;
        ledger.recount();
        self.count.store(ledger.keys, Ordering::Relaxed);
        drop(ledger);
        let mut owed = Vec::new();
        for (parts, keys) in taken {
            let mut keys: Vec<_> = keys.into_iter().collect();
            keys.sort_unstable_by(|(one, _), (other, _)| one.as_bytes().cmp(other.as_bytes()));
            for (key, of_key) in keys {
                let debts = paired(of_key).into_iter().filter(|debt| debt.units > 0);
                owed.extend(debts.map(|debt| (parts, (key.clone(), debt))));
            }
        }
        owed
    }
}
