//! Units that the fallback admitted, to be charged when the store is back.
//!
//! Debts are sums per key and policy, not a list of requests: memory is bounded by keys, and one charge
//! settles any number of requests. Units given back meanwhile are deducted. Debts beyond the
//! bound on keys are forgotten, in favor of the client.
//!
//! Debts are kept by the part of the store that they are owed to: those of a part that is down are left where they are while
//! others are charged.
//!
//! When a policy is replaced, its debts move to the new one, and a key that is reset owes nothing. Debts are taken out for one call at a
//! time; the ledger remembers them until the next call, so that both find them, and what could not be charged is put back.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::policy::MAX_QUOTAS;
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
    /// The debts of the last call. A debt that was reset meanwhile has no units.
    out: Vec<(Key, Debt)>,
}

/// The debts of one key, per policy; most have one.
type Owed = SmallVec<[Debt; 1]>;

/// The debts of one call, which are owed to the same parts of the store.
pub(super) struct DebtBatch {
    pub(super) parts: u64,
    pub(super) debts: Vec<(Key, Debt)>,
}

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

/// Takes out a debt, the rest of a suspension first, together with the count of its suspensions. Counts that are owed alone stay
/// separate, because they apply whatever the store says of the suspension.
fn take_next(owed: &mut Owed, place: usize) -> Debt {
    let mut debt = owed.remove(place);
    let name = debt.policy.policy().counts_suspensions_in();
    let is_count = |other: &&mut Debt| name.as_deref() == Some(other.policy.policy().name());
    if let Some(count) = owed.iter_mut().find(is_count) {
        let units = count.units.saturating_sub(count.alone);
        debt.counted = (units > 0).then(|| (count.policy.clone(), units));
        count.units -= units;
    }
    debt
}

impl DebtLedger {
    /// The debts of a key to these parts, and the place of the next one to charge: the rest of a suspension, if there is one.
    fn next_of(&mut self, parts: u64, key: &Key) -> Option<(&mut Owed, usize)> {
        let keys = self.parts.get_mut(&parts)?;
        let owed = keys.get_mut(key)?;
        owed.retain(|debt| debt.units > 0);
        if owed.is_empty() {
            keys.remove(key);
            self.keys -= 1;
            return None;
        }
        let owed = keys.get_mut(key)?;
        let place = owed.iter().position(Debt::is_suspension).unwrap_or(0);
        Some((owed, place))
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

    pub(super) fn add(&self, parts: u64, policy: PreparedPolicy, key: Key, units: u64) {
        let mut ledger = self.lock();
        ledger.add(parts, key, Debt::new(policy, units));
        self.count.store(ledger.keys, Ordering::Relaxed);
    }

    /// Adds the count of the suspension of the last call, which was reported to the store but not counted there, unless it was reset
    /// meanwhile.
    pub(super) fn add_count(&self, parts: u64) {
        let mut ledger = self.lock();
        let Some((key, Debt { counted: Some((suspensions, times)), units: 1.., .. })) = ledger.out.pop()
        else {
            return;
        };
        ledger.add(parts, key, Debt { alone: times, ..Debt::new(suspensions, times) });
        self.count.store(ledger.keys, Ordering::Relaxed);
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
        if ledger.keys == 0 && ledger.out.is_empty() {
            return;
        }
        let key = key.to_key();
        let DebtLedger { parts, out, .. } = &mut *ledger;
        let owed = parts.values_mut().filter_map(|keys| keys.get_mut(&key)).flatten();
        let owed = owed.chain(out.iter_mut().filter(|(of, _)| *of == key).map(|(_, debt)| debt));
        owed.filter(|debt| debt.policy.is(policy)).for_each(|debt| debt.units = 0);
    }

    /// Moves debts from a replaced policy to the new one; or forgets them, if the new one starts all keys afresh.
    pub(super) fn hand_over(&self, old: &PreparedPolicy, new: &PreparedPolicy, how: Inherit) {
        let mut ledger = self.lock();
        let DebtLedger { parts, out, .. } = &mut *ledger;
        let owed = parts.values_mut().flat_map(HashMap::values_mut).flatten();
        for debt in owed.chain(out.iter_mut().map(|(_, debt)| debt)) {
            let counted = debt.counted.iter_mut().map(|(suspensions, _)| suspensions);
            counted
                .chain([&mut debt.policy])
                .filter(|policy| policy.is(old))
                .for_each(|policy| *policy = new.clone());
        }
        if how == Inherit::Reset {
            ledger
                .out
                .iter_mut()
                .filter(|(_, debt)| debt.policy.is(new))
                .for_each(|(_, debt)| debt.units = 0);
            for keys in ledger.parts.values_mut() {
                keys.retain(|_, owed| {
                    owed.retain(|debt| !debt.policy.is(new));
                    !owed.is_empty()
                });
            }
            ledger.keys = ledger.parts.values().map(HashMap::len).sum();
            self.count.store(ledger.keys, Ordering::Relaxed);
        }
    }

    /// The keys in debt to parts that are asked, each with these parts, in the order of the parts and the keys, so that a run is
    /// repeatable.
    pub(super) fn debtors(&self, is_asked: impl Fn(u64) -> bool) -> Vec<(u64, Key)> {
        let ledger = self.lock();
        let asked = ledger.parts.iter().filter(|(parts, _)| is_asked(**parts));
        let debtors = asked.flat_map(|(parts, keys)| keys.keys().map(|key| (*parts, key.clone())));
        let mut debtors: Vec<_> = debtors.collect();
        debtors.sort_unstable_by(|(one, key), (other, next)| {
            (one, key.as_bytes()).cmp(&(other, next.as_bytes()))
        });
        debtors
    }

    /// Takes out the debts of the last of these debtors, as many as one call may name. Debts to different parts are never together:
    /// another part's failure never makes a charge uncertain that succeeded. A suspension has a call of its own.
    pub(super) fn take(&self, debtors: &mut Vec<(u64, Key)>) -> Option<DebtBatch> {
        let mut ledger = self.lock();
        let (mut batch, mut room) = (DebtBatch { parts: 0, debts: Vec::new() }, 0);
        while let Some((parts, key)) = debtors.last() {
            if batch.debts.is_empty() {
                (batch.parts, room) = (*parts, MAX_QUOTAS);
            }
            let Some((owed, place)) = ledger.next_of(*parts, key) else {
                debtors.pop();
                continue;
            };
            let debt = &owed[place];
            let needs = if debt.is_suspension() { MAX_QUOTAS } else { debt.policy.policy().quotas().len() };
            if *parts != batch.parts || needs > room {
                break;
            }
            room -= needs;
            batch.debts.push((key.clone(), take_next(owed, place)));
        }
        ledger.out.clone_from(&batch.debts);
        self.count.store(ledger.keys, Ordering::Relaxed);
        Some(batch).filter(|batch| !batch.debts.is_empty())
    }

    /// Puts back the debts of the last call, which could not be charged to these parts.
    pub(super) fn put_back(&self, parts: u64) {
        let mut ledger = self.lock();
        for (key, mut debt) in std::mem::take(&mut ledger.out) {
            if debt.units == 0 {
                continue;
            }
            if let Some((suspensions, times)) = debt.counted.take() {
                ledger.add(parts, key.clone(), Debt::new(suspensions, times));
            }
            ledger.add(parts, key, debt);
        }
        self.count.store(ledger.keys, Ordering::Relaxed);
    }
}
