//! Charges units that were spent without the store to it when it is back.
//!
//! One task at a time charges the debts to parts that are asked, part by part in calls of up to 16 quotas. Only units that *still count*
//! are charged: the fallback is asked how much of each quota the key uses now, because units that drained during the outage would have
//! drained in the store as well. A suspension is not a sum, and is reported in a call of its own.
//!
//! A charge that is not answered in time is given up and not repeated: it has most likely arrived,
//! and repeating it could lock a key out. A charge that certainly failed stays owed.
//!
//! A try costs as much as the keys that it looks at, and a client may have made many. So debts to a part that is down stay
//! where they are, and while tries charge nothing, the pause between them grows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::clock::micros;
use sluicegate_core::error::{StoreError, StoreErrorKind};
use sluicegate_core::key::Key;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::{Ask, DecisionFuture, Event, Mode, QuotaStatus};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::debts::Debt;
use super::state::{DebtSettlement, ResilientState, is_owed_on};

/// The pause between two tries while debts are left; doubled after each try that has charged none of the debts that it took out, until
/// a breaker closes.
const PAUSE: Duration = Duration::from_millis(100);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A report that is counted until the store has it, or it is owed.
pub(super) struct Report(Arc<ResilientState>);

impl Report {
    pub(super) fn begin(state: Arc<ResilientState>) -> Self {
        // Relaxed: a number to look at.
        state.settlement.reports.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.0.settlement.reports.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ResilientState {
    /// Charges the debts to the store in the background, by one task at a time.
    pub(super) fn settle(self: &Arc<Self>) {
        // Relaxed, here and below: at worst it is tried once more.
        let DebtSettlement { tried_us, in_vain, closings, .. } = &self.settlement;
        let is_another = closings.load(Ordering::Relaxed) != self.parts.closings();
        let doublings = if is_another { 0 } else { in_vain.load(Ordering::Relaxed).min(16) };
        let pause = PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
        let tried_us = tried_us.load(Ordering::Relaxed);
        if tried_us > 0 && self.clock.now_us() < tried_us.saturating_add(micros(pause)) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if let Some(settling) = self.settling() {
            runtime.spawn(settling.run(None));
        }
    }

    /// The right to settle, if no other task has it.
    fn settling(self: &Arc<Self>) -> Option<Settling> {
        // Acquire and Release: one task's work is done before the next one's begins.
        if self.settlement.is_running.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Settling { state: Arc::clone(self), charged: 0 })
    }

    /// Charges debts to the store, as far as they still count.
    fn charge(&self, owed: &[(Key, Debt)]) -> DecisionFuture {
        let each: Vec<_> = owed.iter().map(|(key, debt)| (key, debt, self.still_counts(key, debt))).collect();
        let asks = each.iter().map(|(key, debt, units)| {
            Ask::new(&debt.policy, key.as_ref(), 0, Mode::Charge).with_costs(units)
        });
        self.within.decide(&asks.collect::<Vec<_>>())
    }

    /// The units of the debt that the fallback still counts under each quota. The others have expired during the outage: a quota per
    /// minute has forgotten most of what a quota per day still counts.
    fn still_counts(&self, key: &Key, debt: &Debt) -> SmallVec<[u64; 2]> {
        let quotas = debt.policy.policy().quotas().iter();
        let look = Ask::new(&debt.policy, key.as_ref(), 1, Mode::Peek);
        match self.fallback.look(look) {
            None => quotas.map(|_| debt.units).collect(),
            Some(None) => quotas.map(|_| 0).collect(),
            Some(Some((share, decision))) => {
                let share = share.quotas().iter().zip(decision.quotas());
                share.map(|(quota, status)| debt.units.min(used(quota, status))).collect()
            }
        }
    }

    /// Suspends the key for at least the rest of a suspension that the fallback has made. A suspension that has ended in the same
    /// outage is forgotten.
    ///
    /// Processes that decide alone each suspend the same key by themselves. If their suspensions were charged like other debts, the
    /// remaining times would add up, and so would the counts of suspensions. So each process reports, in one call, that the key is
    /// suspended for *at least* this time: in any order and number of reports, the key is suspended until the latest end,
    /// and counts as suspended once.
    async fn suspend(&self, key: &Key, debt: &Debt) -> Result<(), StoreError> {
        let left = self.still_counts(key, debt).into_iter().max().unwrap_or_default();
        if left == 0 {
            return Ok(());
        }
        let ask = |cost, mode| Ask::new(&debt.policy, key.as_ref(), cost, mode);
        // The question passes unless the key is already suspended for longer, and the reports are made only if it passes.
        let longest = Duration::from_millis(left);
        let told = self.within.decide(&[
            ask(1, Mode::Reserve { longest }),
            ask(0, Mode::Reset),
            ask(left, Mode::Charge),
        ]);
        let told = self.deadline.keep(told).await?;
        if let Some((suspensions, times)) = &debt.counted
            && told.is_allowed()
            && told.delay().is_zero()
        {
            let counted = Ask::new(suspensions, key.as_ref(), *times, Mode::Charge);
            let parts = self.within.parts(&[counted]);
            if let Err(error) = self.deadline.keep(self.within.decide(&[counted])).await {
                self.counts.failed(&error);
                if is_owed_on(&error) {
                    // The key is suspended in the store. Another call would not count as a new suspension, so the count is owed alone.
                    self.fallback.debts.add_count(parts);
                }
            }
        }
        Ok(())
    }

    /// Settles until no debt is left, or until this moment; returns the number of debts left.
    pub(super) async fn settle_until(self: &Arc<Self>, until: Instant) -> usize {
        let mut unanswered = 0;
        loop {
            if let Some(settling) = self.settling() {
                unanswered += settling.run(Some(until)).await;
            }
            let left = self.fallback.debts.owed() + self.settlement.under_way();
            let now = Instant::now();
            if left == 0 || now >= until {
                return left + unanswered;
            }
            sleep_until(until.min(now + PAUSE)).await;
        }
    }
}

/// The used units of a quota: more than all of it, if more was charged.
fn used(quota: &PolicyQuota, status: &QuotaStatus) -> u64 {
    let used = status.capacity().saturating_sub(status.remaining());
    match (quota.rule(), quota.rule().drains_in(micros(status.reset_after()))) {
        // The longer the time to rest, the more was charged.
        (_, Some(drains)) => used.max(drains),
        // However much was charged in a window, it ends with it: all that is owed may have been.
        (Rule::FixedWindow(_) | Rule::CalendarWindow(_), None) if status.remaining() == 0 => u64::MAX,
        _ => used,
    }
}

/// The one task that settles. However it ends, debts that it has not tried to charge are owed, and another task may begin.
struct Settling {
    state: Arc<ResilientState>,
    charged: usize,
}

impl Settling {
    /// Charges the debts to all parts that are asked; with an end time, to all parts, because there is no later try. Returns how
    /// many debts were given up, because their charge was not answered.
    async fn run(mut self, until: Option<Instant>) -> usize {
        let state = Arc::clone(&self.state);
        let DebtSettlement { closings, held, in_vain, .. } = &state.settlement;
        // Relaxed, here and below: numbers to look at, which only the task that settles writes.
        closings.store(state.parts.closings(), Ordering::Relaxed);
        let is_asked = |parts: u64| match until {
            Some(until) => Instant::now() < until,
            None => state.parts.are_closed(parts),
        };
        let debts = &state.fallback.debts;
        let (mut debtors, mut unanswered) = (debts.debtors(is_asked), 0);
        let owes = !debtors.is_empty();
        while let Some(batch) = debts.take(&mut debtors) {
            held.store(batch.debts.len(), Ordering::Relaxed);
            match self.charge(&batch.debts, until).await {
                Ok(()) => self.charged += batch.debts.len(),
                Err(error) => {
                    if error.may_succeed_later() {
                        state.counts.failed(&error);
                        debtors.retain(|(parts, _)| parts & batch.parts == 0);
                    }
                    if is_owed_on(&error) {
                        debts.put_back(batch.parts);
                    } else {
                        unanswered += batch.debts.len();
                    }
                }
            }
            // The other debts stay where they are.
            while debtors.pop_if(|(parts, _)| !is_asked(*parts)).is_some() {}
        }
        if owes && until.is_none() && self.charged == 0 && unanswered == 0 {
            in_vain.fetch_add(1, Ordering::Relaxed);
        } else {
            in_vain.store(0, Ordering::Relaxed);
        }
        unanswered
    }

    async fn charge(&self, batch: &[(Key, Debt)], until: Option<Instant>) -> Result<(), StoreError> {
        let charge = async {
            match batch {
                [(key, debt)] if debt.is_suspension() => self.state.suspend(key, debt).await,
                batch => self.state.deadline.keep(self.state.charge(batch)).await.map(drop),
            }
        };
        let Some(until) = until else { return charge.await };
        timeout_at(until, charge).await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout)))
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        let ResilientState { fallback, settlement, clock, parts, .. } = &*self.state;
        let left = fallback.debts.count();
        // What is left is not tried at once when another part answers; what is new is.
        let tried_us = if left > 0 { clock.now_us() } else { 0 };
        settlement.tried_us.store(tried_us, Ordering::Relaxed);
        settlement.held.store(0, Ordering::Relaxed);
        settlement.is_running.store(false, Ordering::Release);
        if self.charged > 0 {
            parts.listeners.tell(&Event::Settled { charged: self.charged, left });
        }
    }
}
