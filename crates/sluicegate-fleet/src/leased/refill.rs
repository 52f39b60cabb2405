//! Calls that lease: a [`PendingRefill`], from its first request to the units of its answer.
//!
//! A lease is requested with the spends of the request that found no units, and comes after them: if it came alone, its first unit
//! would be the first in the bucket and end at once. A key that spends held units does not wait for that: the next lease is requested
//! alone when a quarter of the last one is left.
//!
//! # Lost answers
//! A call that fails after it was sent may have leased units. Their receipt is unknown, so they can neither be spent nor given back: they
//! count as lost, and drain as if they had been spent. Then too few are admitted, never too many.

use std::sync::Arc;

use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Mode, QuotaStatus};
use sluicegate_core::{Decision, StoreError};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::LeaseState;
use super::table::AccountId;
use super::units::Grant;

/// A request that goes to the store for a key, and the units requested beside it; 0 if there are none.
pub(super) struct PendingRefill {
    /// The account in which its answer is noted.
    id: AccountId,
    /// The moment before the call was sent, by the local clock: leases end by this time.
    sent_us: u64,
    /// The number of its flight; 0 if it has none.
    number: u64,
    units: u64,
}

/// The leases requested beside the asks of a request, each with the index of its ask.
pub(super) type Refills = SmallVec<[(u8, PendingRefill); 1]>;

impl PendingRefill {
    pub(super) fn new(id: AccountId, sent_us: u64, number: u64, units: u64) -> Self {
        Self { id, sent_us, number, units }
    }

    /// A refill of no units, for an unknown key: its answer is noted.
    pub(super) fn none(id: AccountId, sent_us: u64) -> Self {
        Self::new(id, sent_us, 0, 0)
    }
}

/// The refills of one call. However the call ends, their waiters are notified.
///
/// If it is dropped without an answer, because the runtime ends or the store panics, it ends the flights as well, so that no key waits for
/// a call that is no longer made.
struct Landing {
    state: Arc<LeaseState>,
    refills: Refills,
}

impl Drop for Landing {
    fn drop(&mut self) {
        for (_, refill) in &self.refills {
            if let Some((account, _)) = self.state.table.set_of(refill.id.hash).at(&refill.id)
                && account.end(refill.number)
            {
                account.unheard();
            }
        }
    }
}

impl LeaseState {
    /// Asks the store about all asks, and for leases beside them.
    #[cold]
    pub(super) fn ask_within(self: &Arc<Self>, asks: &[Ask<'_>], refills: Refills) -> DecisionFuture {
        let mut all: SmallVec<[Ask<'_>; 4]> = asks.into();
        for (place, refill) in refills.iter().filter(|(_, refill)| refill.units > 0) {
            let ask = &asks[usize::from(*place)];
            all.push(Ask::new(ask.policy(), ask.key(), refill.units, Mode::Lease));
        }
        let landing = Landing { state: Arc::clone(self), refills };
        let count = asks.len();
        self.within.decide(&all).map_even_if_dropped(move |result| landing.landed(count, result))
    }

    /// Requests the next lease of a key with some units left.
    #[cold]
    pub(super) fn refill_alone(self: &Arc<Self>, ask: &Ask<'_>, refill: PendingRefill) {
        if refill.units == 0 {
            return;
        }
        let asked = Ask::new(ask.policy(), ask.key(), refill.units, Mode::Lease);
        let landing = Landing { state: Arc::clone(self), refills: std::iter::once((0, refill)).collect() };
        // Without a runtime, no task can wait for a later answer.
        if Handle::try_current().is_ok() || self.within.store().always_answers() {
            let answer = self.within.decide(&[asked]);
            drop(answer.map_even_if_dropped(move |result| landing.landed(0, result)));
        }
    }
}

impl Landing {
    /// Settles the answer: the decision about the first `count` asks, and the leases after them.
    fn landed(mut self, count: usize, result: Result<Decision, StoreError>) -> Result<Decision, StoreError> {
        let mut decision = result.inspect_err(|error| self.failed(error))?;
        let now_us = self.state.clock.now_us();
        let (mut lease, mut kept) = (count, SmallVec::<[(u8, u64); 1]>::new());
        for (place, refill) in std::mem::take(&mut self.refills) {
            let asked = if refill.units > 0 { lease } else { usize::from(place) };
            lease += usize::from(refill.units > 0);
            kept.push((place, self.state.settle(&refill, asked, &mut decision, now_us)));
        }
        if count == 0 {
            return Ok(decision);
        }
        let mut decision = decision.of_first(count);
        for (place, units) in kept.into_iter().filter(|(_, units)| *units > 0) {
            // The store counts them as spent; for this request they remain.
            decision = decision.with_more(usize::from(place), units);
        }
        Ok(decision)
    }
}

impl Landing {
    /// Handles a call without an answer. Its units may have been granted, and are then lost. If the error came before the call was sent,
    /// they were not granted, and are not lost.
    fn failed(&self, error: &StoreError) {
        for (_, refill) in self.refills.iter().filter(|_| error.may_have_spent()) {
            self.state.table.set_of(refill.id.hash).counts.lost += refill.units;
        }
    }
}

impl LeaseState {
    /// Notes the store's answer to the ask at this index, and keeps the lease if it is one. Returns the number of units kept.
    fn settle(&self, refill: &PendingRefill, place: usize, decision: &mut Decision, now_us: u64) -> u64 {
        let PendingRefill { id, sent_us, number, units } = refill;
        let receipt = if *units > 0 { decision.take_receipt(place) } else { None };
        let statuses: SmallVec<[QuotaStatus; 4]> =
            decision.quotas().iter().filter(|status| status.policy_index() == place).copied().collect();
        let granted = receipt.as_ref().map_or(0, |receipt| receipt.cost());
        let mut set = self.table.set_of(id.hash);
        let Some((account, counts)) = set.at(id) else { return 0 };
        let is_its = *units == 0 || account.end(*number);
        // A fallback knows only its own share.
        if decision.decided_by() != DecidedBy::Store || !is_its {
            counts.lost += granted;
            account.unheard();
            return 0;
        }
        account.hear(&statuses, decision.at_us(), now_us);
        if *units == 0 {
            return 0;
        }
        counts.granted += granted;
        account.granted(granted, *units, &self.batch, now_us);
        let Some(measures) = id.policy.measures() else {
            counts.lost += granted;
            return 0;
        };
        match receipt.and_then(|receipt| Grant::new(measures, receipt, *sent_us)) {
            Some(grant) => {
                counts.lost += account.units.add(grant, measures, &statuses, now_us);
                granted
            }
            None => {
                counts.lost += granted;
                0
            }
        }
    }
}
