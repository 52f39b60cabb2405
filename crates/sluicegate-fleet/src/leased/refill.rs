//! Calls that lease: a [`PendingRefill`], from its first request to the units of its answer.
//!
//! A lease is requested with the spends of the request that found no units, and comes after them: if it came alone, its first unit
//! would be the first in the bucket and end at once. A key that spends held units does not wait for that: the next lease is requested
//! alone when a quarter of the last one is left.
//!
//! # Lost answers
//! A call that fails after it was sent may have leased units. Their receipt is unknown, so they can neither be spent nor given back: they
//! count as lost, and drain as if they had been spent. Then too few are admitted, never too many.
//!
//! # The size of a lease: [`Batch`]
//! The size follows from three numbers: the key's rate here, the units left by the store's answer, and the speed at which units drain
//! while they wait. All divisions round down, so a lease is never larger than its share, except for units that have come back since the
//! store's last answer, and for one unit near the limit, so that a key is not refused while units are left.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::micros;
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Mode, QuotaStatus};
use sluicegate_core::{ConfigError, Decision, StoreError};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::LeaseState;
use super::measure::Measure;
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
    pub(super) units: u64,
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

/// Units of a key that come back while no call is made are leased together, up to this part of the burst.
const BACK_PART: u64 = 20;

/// Sets how many units an instance leases at a time.
///
/// A lease lasts [`ahead`](Self::ahead) at the key's own rate on this instance, and is at most a [`share`](Self::share) of the units that
/// the key has left in the tightest of its quotas. So a key that is far from its limit is leased in large batches, a key near its limit
/// unit by unit, and a rarely used key not at all. If units drain, the units that have come back since the store's last answer are leased
/// at once, up to a twentieth of the burst: a key that is always at its limit spends them in any case. Units are leased for whole requests:
/// in multiples of the cost of the request that asks.
///
/// | setting | default | too low | too high |
/// |---|---|---|---|
/// | [`ahead`](Self::ahead) | 2 s | more calls | resets and replacements elsewhere are seen late |
/// | [`share`](Self::share) | 20 % | more calls | instances hold units that others need |
/// | [`most`](Self::most) | 100,000 units | more calls | a crash loses more |
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::MemoryStore;
/// use sluicegate_fleet::leased::{Batch, Leased};
///
/// # let redis = MemoryStore::new();
/// let batch = Batch::new().ahead(Duration::from_millis(500)).share(10);
/// let store = Leased::builder(redis).batch(batch).build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until they are given to a store"]
pub struct Batch {
    ahead: Duration,
    share: u64,
    most: u64,
}

impl Batch {
    /// The defaults: see each setting.
    pub const fn new() -> Self {
        Self { ahead: Duration::from_secs(2), share: 20, most: 100_000 }
    }

    sluicegate_core::setters! {
        const;
        /// Sets how long a lease lasts at the key's own rate. Default: 2 s. At least 1 ms, at most an hour.
        ahead(ahead: Duration);

        /// Sets the largest part of the key's remaining units that one lease takes, in percent (1 to 100). Default: 20.
        ///
        /// A quota is not leased if this share of it is less than two units. With N instances, N shares may be leased at once.
        share(percent: u64);

        /// Sets the most units of one lease. Default: 100,000.
        most(units: u64);
    }

    /// # Errors
    /// When a setting is outside of its range; the message names it.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let Self { ahead, share, most } = *self;
        let problem = if ahead < Duration::from_millis(1) || ahead > Duration::from_secs(3_600) {
            format!("leases for {ahead:?} ahead: use 1 ms to 1 h")
        } else if share == 0 || share > 100 {
            format!("leases of {share} percent of what is left: use 1 to 100")
        } else if most == 0 {
            "leases of at most 0 units: use at least 1".to_owned()
        } else {
            return Ok(());
        };
        Err(ConfigError::new(ConfigErrorKind::Store, problem))
    }

    pub(super) fn ahead_us(&self) -> u64 {
        micros(self.ahead)
    }

    /// Whether a key at rest has a share of at least two units, because near the limit one unit is leased.
    pub(super) fn is_for(&self, measure: &Measure) -> bool {
        self.share_of(measure.capacity()) >= 2
    }

    fn share_of(&self, units: u64) -> u64 {
        u64::try_from(u128::from(units) * u128::from(self.share) / 100).unwrap_or(u64::MAX)
    }

    /// The units to lease for a key that will spend `rate` units within [`ahead`](Self::ahead); `stocks` are the assumed stocks of the
    /// quotas. Requests of `cost` spend all of it, so that no unusable rest is held. Returns 0 if a lease would
    /// save no call.
    ///
    /// If units drain while they wait, a slow key needs more of them than it will spend. A lease is worth its call if one of its units
    /// can be spent before it ends.
    pub(super) fn size(&self, measures: &[Measure], stocks: &[Stock], rate: u64, cost: u64) -> u64 {
        if rate < 2 {
            return 0;
        }
        let (mut needed, mut room) = (rate, self.most);
        for (measure, stock) in measures.iter().zip(stocks) {
            let used = measure.capacity().saturating_sub(stock.left);
            let drained = measure.drains_in(self.ahead_us());
            needed = needed.max(drained.saturating_sub(used));
            room = room.min(self.room(measure, stock, cost));
        }
        let units = needed.min(room);
        let units = units - units % cost.max(1);
        if units == 0 {
            return 0;
        }
        let can_be_spent = measures.iter().zip(stocks).all(|(measure, stock)| {
            let used = measure.capacity().saturating_sub(stock.left).saturating_add(units);
            let drained = measure.drains_in(self.ahead_us());
            u128::from(rate) * u128::from(used) >= u128::from(drained)
        });
        if can_be_spent { units } else { 0 }
    }

    /// The most units that a lease takes from a quota, beside a request of this cost.
    ///
    /// At least one unit while the quota has more than the request takes: near the limit the lease is the next request's unit.
    fn room(&self, measure: &Measure, stock: &Stock, cost: u64) -> u64 {
        if stock.left <= cost {
            return 0;
        }
        let back = stock.back.min(measure.capacity() / BACK_PART);
        self.share_of(stock.left).max(back).max(1)
    }
}

/// The units that a quota is assumed to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stock {
    pub(super) left: u64,
    /// The units among them that have come back since the store's last answer.
    pub(super) back: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
