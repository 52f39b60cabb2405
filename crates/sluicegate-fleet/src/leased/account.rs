//! The state of one key on this instance: [`KeyAccount`].

use sluicegate_core::Decision;
use sluicegate_core::clock::micros;
use sluicegate_core::store::{Ask, DecidedBy, QuotaStatus, judge};

use super::measure::{Measure, SpendRate, at_least};
use super::refill::{Batch, Stock};
use super::units::{LeasedUnits, PerQuota};
use crate::latch::Latch;

/// The time for which no lease is requested ahead of need after the store has granted few units, as a fraction of [`Batch::ahead`].
const DRY_PART: u64 = 8;

/// Below this fraction of a lease, the next one is requested.
const LOW_PART: u64 = 4;

/// The held units of a key, its rate, and the current refill.
#[derive(Debug)]
pub(super) struct KeyAccount {
    pub(super) units: LeasedUnits,
    rate: SpendRate,
    /// The status of each quota at the store's last answer; empty before that, and after a call without an answer of the store.
    standing: PerQuota<LastStatus>,
    /// The time of the store's last answer, by its clock, and by the local clock on arrival.
    heard_us: (u64, u64),
    /// Below this many units, the next lease is requested.
    low: u64,
    /// Until this moment, no lease is requested while some units are left.
    dry_until_us: u64,
    flight: Option<Flight>,
}

/// The store's last answer about a quota.
/// A lease is a share of the units left by this answer. It is as old as the last call: units that have drained since are added at the
/// quota's rate, and units that others have spent since are unknown, so the store may grant fewer than requested.
#[derive(Clone, Copy, Debug)]
struct LastStatus {
    /// Units that the key had left for all instances, beyond the units that this instance holds.
    remaining: u64,
    /// The time that its bucket needed to come to rest.
    reset_us: u64,
    /// Whether others could give back units in a moment.
    is_provisional: bool,
}

/// The current refill.
#[derive(Debug)]
struct Flight {
    /// Distinguishes its answer from the answer of an earlier refill that a reset has cancelled.
    number: u64,
    /// Requested units; the store may grant fewer.
    asked: u64,
    /// Units for requests that wait for it.
    promised: u64,
    /// Opened when the refill has arrived or was dropped.
    latch: Option<Latch>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(latch) = &self.latch {
            latch.open();
        }
    }
}

impl KeyAccount {
    /// An account of an unknown key: its first request goes to the store and leases nothing.
    pub(super) fn new(now_us: u64) -> Self {
        Self {
            units: LeasedUnits::default(),
            rate: SpendRate::new(now_us),
            standing: PerQuota::new(),
            heard_us: (0, 0),
            low: 0,
            dry_until_us: 0,
            flight: None,
        }
    }

    /// Whether the held units are enough. Units that have ended are forgotten first, and counted as lost.
    #[inline]
    pub(super) fn has(&mut self, measures: &[Measure], ask: &Ask<'_>, now_us: u64, lost: &mut u64) -> bool {
        if self.units.is_empty() {
            return false;
        }
        *lost += self.units.expire(measures, now_us);
        (0_u8..).take(measures.len()).all(|quota| self.units.of(quota.into()) >= ask.cost_of(quota))
    }

    /// Spends held units, which must be enough; passes the status of each quota for the ask at index `place` to `tell`.
    #[inline]
    pub(super) fn spend(
        &mut self,
        measures: &[Measure],
        ask: &Ask<'_>,
        (place, now_us): (u8, u64),
        mut tell: impl FnMut(QuotaStatus),
    ) {
        self.rate.spend(ask.cost());
        for (quota, measure) in (0_u8..).zip(measures) {
            let (index, cost) = (usize::from(quota), ask.cost_of(quota));
            self.units.spend(index, cost);
            let (units, reset_us) = (self.units.of(index), self.units.reset_us(index, now_us));
            // If nothing is left, this says whether the next request is worth a call.
            let is_more_there =
                units == 0 && (self.flight.is_some() || self.has_more(index, measure, cost, now_us));
            let more_us = if is_more_there { 0 } else { measure.more_after_us(reset_us) };
            let status = QuotaStatus::at_rest((place, quota), measure.capacity())
                .with_remaining(units)
                .with_reset_after_us(reset_us)
                .with_more_after_us(more_us);
            tell(status.spending(cost));
        }
    }

    /// The store's time, or an earlier one, because refunds count from it.
    #[inline]
    pub(super) fn store_us(&self, now_us: u64) -> u64 {
        let (store_us, local_us) = self.heard_us;
        store_us.saturating_add(at_least(now_us.saturating_sub(local_us)))
    }

    /// Decides one ask here.
    #[inline]
    pub(super) fn decide(&mut self, measures: &[Measure], ask: &Ask<'_>, now_us: u64) -> Decision {
        let at_us = self.store_us(now_us);
        if let ([_], [measure]) = (measures, measures) {
            let mut status = QuotaStatus::at_rest((0, 0), measure.capacity());
            self.spend(measures, ask, (0, now_us), |told| status = told);
            return judge(at_us, 0, [status]).by(DecidedBy::Lease);
        }
        let mut statuses = PerQuota::new();
        self.spend(measures, ask, (0, now_us), |told| statuses.push(told));
        judge(at_us, 0, statuses).by(DecidedBy::Lease)
    }

    /// Whether so few units are held that the next lease should be under way.
    #[inline]
    pub(super) fn is_low(&self, measures: &[Measure], now_us: u64) -> bool {
        self.low > 0
            && self.flight.is_none()
            && now_us >= self.dry_until_us
            && self.units.whole(measures.len()) <= self.low
    }

    /// Waits for the current refill, if it brings enough units.
    ///
    /// Only as many requests wait as it can serve: the others go to the store at once.
    pub(super) fn wait(&mut self, cost: u64) -> Option<Latch> {
        let flight = self.flight.as_mut()?;
        let promised = flight.promised.saturating_add(cost);
        if promised > flight.asked {
            return None;
        }
        flight.promised = promised;
        Some(flight.latch.get_or_insert_with(Latch::closed).clone())
    }

    /// Notes a request that goes to the store.
    pub(super) fn passes(&mut self, cost: u64) {
        self.rate.spend(cost);
    }

    /// Begins the refill of this number and returns the units to request beside this cost; 0 if there are none.
    pub(super) fn begin(
        &mut self,
        measures: &[Measure],
        batch: &Batch,
        cost: u64,
        (now_us, number): (u64, u64),
    ) -> u64 {
        if self.flight.is_some() || self.standing.is_empty() || !self.units.has_room() {
            return 0;
        }
        let rate = self.rate.within(batch.ahead_us(), now_us);
        let asked = batch.size(measures, &self.stocks(measures, now_us), rate, cost);
        if asked > 0 {
            self.flight = Some(Flight { number, asked, promised: 0, latch: None });
        } else {
            self.low = 0;
        }
        asked
    }

    /// Ends the refill of this number, whatever its outcome. Returns whether it was still current.
    pub(super) fn end(&mut self, number: u64) -> bool {
        self.flight.take_if(|flight| flight.number == number).is_some()
    }

    /// Notes the store's answer about the quotas, at this moment by its clock and by the local clock.
    pub(super) fn hear(&mut self, statuses: &[QuotaStatus], store_us: u64, now_us: u64) {
        let standing = |status: &QuotaStatus| LastStatus {
            remaining: status.remaining(),
            reset_us: micros(status.reset_after()),
            is_provisional: status.is_provisional(),
        };
        self.standing = statuses.iter().map(standing).collect();
        self.heard_us = (store_us, now_us);
    }

    /// Notes a call without an answer of the store: no lease is asked for until the store answers again.
    pub(super) fn unheard(&mut self) {
        self.standing.clear();
        self.low = 0;
    }

    /// Notes that the store has granted this many of the requested units.
    pub(super) fn granted(&mut self, units: u64, asked: u64, batch: &Batch, now_us: u64) {
        self.low = units / LOW_PART;
        if units < asked.div_ceil(2) {
            self.dry_until_us = now_us.saturating_add(batch.ahead_us() / DRY_PART);
        }
    }

    /// Whether the store has answered recently, so that another answer need not be noted.
    pub(super) fn is_fresh(&self, batch: &Batch, now_us: u64) -> bool {
        !self.standing.is_empty() && now_us.saturating_sub(self.heard_us.1) < batch.ahead_us() / DRY_PART
    }

    /// Drops the held units, and the refill under way. Returns the number of units that were held.
    pub(super) fn forget(&mut self) -> u64 {
        self.flight = None;
        self.standing.clear();
        self.units.clear()
    }

    /// The time since which it is unused, if it may make room for another key.
    pub(super) fn idle_since(&self) -> Option<u64> {
        (self.flight.is_none() && self.units.is_empty()).then_some(self.rate.since_us)
    }

    /// Whether a refill is under way. Such an account stays: otherwise the answer would find no account, and its units would be lost.
    pub(super) fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// The stocks that the quotas are assumed to have now: the units at the store's last answer, and the units that have come back since.
    fn stocks(&self, measures: &[Measure], now_us: u64) -> PerQuota<Stock> {
        measures
            .iter()
            .zip(&self.standing)
            .map(|(measure, standing)| self.stock(measure, standing, now_us))
            .collect()
    }

    fn stock(&self, measure: &Measure, standing: &LastStatus, now_us: u64) -> Stock {
        let passed_us = now_us.saturating_sub(self.heard_us.1);
        let LastStatus { remaining, reset_us, .. } = *standing;
        let most = measure.capacity().saturating_sub(remaining);
        let back = if passed_us < reset_us { measure.drains_in(passed_us).min(most) } else { most };
        Stock { left: remaining.saturating_add(back), back }
    }

    /// Whether the store is assumed to have room for another request of this cost, and more; also before its first answer.
    fn has_more(&self, quota: usize, measure: &Measure, cost: u64, now_us: u64) -> bool {
        self.standing.get(quota).is_none_or(|standing| {
            standing.is_provisional || self.stock(measure, standing, now_us).left > cost
        })
    }
}
