//! The spend of a request on one limiter, and its changes.
//!
//! An account has a sum of units, and the receipts for them. A refund uses the youngest receipts
//! first, because the fewest of their units have drained; a charge that the store did not answer is taken
//! out of the sum again, and an unanswered refund is not repeated.

use std::sync::{Arc, Mutex, MutexGuard};

use sluicegate_core::limiter::{Change, Receipt};
use sluicegate_core::support::lock;
use sluicegate_core::{Key, Policy, RateLimiter};
use smallvec::{SmallVec, smallvec};

use crate::admission::restate::Now;
use crate::admission::shadow::Trial;

/// The spend of a request on one limiter.
pub(super) struct MeterAccount {
    pub(super) limiter: RateLimiter,
    /// The policy that was in force when the request began.
    pub(super) policy: Arc<Policy>,
    /// The name of the limit, if it has one of its own.
    name: Option<Arc<str>>,
    key: Key,
    entries: Mutex<Entries>,
    /// Set for a shadow policy, which is also charged, but does not answer.
    trial: Option<Arc<Trial>>,
}

/// The spend of an account, and the receipts to give it back.
struct Entries {
    spent: u64,
    /// The receipts of the request and of each answered charge, in that order.
    receipts: SmallVec<[Receipt; 1]>,
    /// Units of charges that the store has not answered yet.
    unanswered: u64,
    /// Units of these charges to give back when their receipts come.
    owed: u64,
    /// The status of the key after the last answered change.
    now: Option<Now>,
}

/// An account that no other call changes or reads meanwhile.
pub(super) struct LockedAccount<'a> {
    entries: MutexGuard<'a, Entries>,
    trial: Option<&'a Trial>,
}

/// A change of an account.
pub(super) enum MeterEntry {
    Charge(u64),
    /// Gives back units of these receipts, which were taken out of the account.
    Refund(SmallVec<[(Receipt, u64); 1]>),
}

impl Entries {
    fn charge(&mut self, units: u64) -> MeterEntry {
        self.spent = self.spent.saturating_add(units);
        self.unanswered = self.unanswered.saturating_add(units);
        MeterEntry::Charge(units)
    }

    /// Takes out up to this many units; returns those that receipts are there for, and the number of those without any.
    fn refund(&mut self, units: u64) -> (MeterEntry, u64) {
        let units = units.min(self.spent);
        self.spent -= units;
        let (parts, left) = self.take(units);
        let owed = left.min(self.unanswered.saturating_sub(self.owed));
        self.owed += owed;
        (MeterEntry::Refund(parts), left - owed)
    }

    /// Takes this many units out of the receipts; returns the number of those missing.
    fn take(&mut self, units: u64) -> (SmallVec<[(Receipt, u64); 1]>, u64) {
        let (mut left, mut parts) = (units, SmallVec::new());
        // The youngest first, because the fewest of their units have drained.
        while left > 0
            && let Some(mut receipt) = self.receipts.pop()
        {
            let part = left.min(receipt.cost());
            left -= part;
            if let Some(rest) = receipt.split(part) {
                self.receipts.push(rest);
            }
            parts.push((receipt, part));
        }
        (parts, left)
    }

    /// Notes that a charge of these units is answered.
    fn end_charge(&mut self, charged: u64) {
        self.unanswered = self.unanswered.saturating_sub(charged);
    }
}

impl LockedAccount<'_> {
    pub(super) fn charge(&mut self, units: u64) -> MeterEntry {
        self.entries.charge(units)
    }

    pub(super) fn refund(&mut self, units: u64) -> MeterEntry {
        let (entry, missing) = self.entries.refund(units);
        // The verdict of a trial may be pending.
        if let Some(trial) = self.trial.filter(|_| missing > 0) {
            trial.give_back(missing);
        }
        entry
    }

    /// Charges or gives back the difference to the spend so far.
    pub(super) fn settle(&mut self, actual: u64) -> MeterEntry {
        match actual.checked_sub(self.entries.spent) {
            Some(more) => self.charge(more),
            None => self.refund(self.entries.spent - actual),
        }
    }
}

impl MeterEntry {
    /// The units that the entry charges.
    pub(super) fn charged(&self) -> u64 {
        match self {
            Self::Charge(units) => *units,
            Self::Refund(_) => 0,
        }
    }

    pub(super) fn gives_back(&self) -> bool {
        matches!(self, Self::Refund(parts) if !parts.is_empty())
    }
}

impl MeterAccount {
    /// The account of a request that has `spent` these units, with the receipt for them.
    pub(super) fn new(
        name: Option<Arc<str>>,
        limiter: RateLimiter,
        key: Key,
        (spent, receipt): (u64, Option<Receipt>),
        trial: Option<Arc<Trial>>,
    ) -> Self {
        let receipts = receipt.into_iter().collect();
        let entries = Mutex::new(Entries { spent, receipts, unanswered: 0, owed: 0, now: None });
        Self { policy: limiter.policy(), limiter, name, key, entries, trial }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.policy.name() == name || self.name.as_deref() == Some(name)
    }

    pub(super) fn is_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Whether the policy is in shadow and would have refused the request, so that it would not have been served.
    pub(super) fn would_be_refused(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| trial.is_unspent())
    }

    pub(super) fn spent(&self) -> u64 {
        self.entries().spent
    }

    /// The status of the key after the last answered change, if there was one since the request began.
    pub(super) fn now(&self) -> Option<Now> {
        self.entries().now.clone()
    }

    /// Records the answer to a change: the receipt of a charge, and the status of the key. Returns units of the charge that were taken
    /// out of the account before the answer.
    pub(super) fn answered(&self, charged: u64, receipt: Option<Receipt>, now: Now) -> MeterEntry {
        let mut entries = self.entries();
        entries.now = Some(now);
        entries.end_charge(charged);
        let Some(receipt) = receipt else { return MeterEntry::Refund(SmallVec::new()) };
        entries.receipts.push(receipt);
        let owed = std::mem::take(&mut entries.owed);
        let (parts, left) = entries.take(owed);
        entries.owed = left;
        MeterEntry::Refund(parts)
    }

    /// Takes out a charge that the store did not answer.
    pub(super) fn forget(&self, charged: u64) {
        let mut entries = self.entries();
        entries.end_charge(charged);
        let given_back = entries.owed.saturating_sub(entries.unanswered);
        entries.owed -= given_back;
        entries.spent = entries.spent.saturating_sub(charged.saturating_sub(given_back));
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        lock(&self.entries)
    }

    /// The account for a change. Accounts that change together are locked together, in the order of their meter, which is the same in all
    /// meters of a request.
    pub(super) fn lock(&self) -> LockedAccount<'_> {
        // The receipt of a trial may have arrived since the request began.
        let known = self.trial.as_ref().and_then(|trial| trial.take_receipt());
        let mut entries = self.entries();
        entries.receipts.extend(known);
        LockedAccount { entries, trial: self.trial.as_deref() }
    }

    /// The changes for the store; at least one, so that its answer has the status of the key.
    pub(super) fn changes<'a>(&'a self, entry: &'a mut MeterEntry) -> SmallVec<[Change<'a, &'a Key>; 1]> {
        let refund = |units| self.limiter.refund(&self.key, units);
        match entry {
            MeterEntry::Charge(units) => smallvec![self.limiter.charge(&self.key, *units)],
            MeterEntry::Refund(parts) if parts.is_empty() => smallvec![refund(0)],
            MeterEntry::Refund(parts) => {
                parts.iter_mut().map(|(receipt, units)| refund(*units).of(receipt)).collect()
            }
        }
    }
}
