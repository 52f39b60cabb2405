//! Charges units that were spent without the store to it when it is back.
//!
//! One task at a time takes all debts out, charges them part by part in calls of up to 16 quotas,
//! and puts back the debts that it could not charge. Only units that *still count* are charged: the fallback is
//! asked how much of each quota the key uses now, because units that drained during the outage
//! would have drained in the store as well. A suspension is not a sum; `suspended` tells the store of it.
//!
//! A charge that is not answered in time is given up and not repeated: it has most likely arrived,
//! and repeating it could lock a key out. A charge that certainly failed stays owed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_core::clock::micros;
use sluicegate_core::error::{StoreError, StoreErrorKind};
use sluicegate_core::key::Key;
use sluicegate_core::policy::{MAX_QUOTAS, PolicyQuota};
use sluicegate_core::store::QuotaStatus;
use sluicegate_core::store::{Ask, DecisionFuture, Event, Mode};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::ResilientState;
use super::debts::Debt;

/// The shortest interval between two attempts to settle the debts of a part that is still down.
const SETTLES_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The progress of settling debts.
#[derive(Default)]
pub(super) struct DebtSettlement {
    is_running: AtomicBool,
    /// Debts that the settling task holds.
    held: AtomicUsize,
    /// Charges and refunds in progress, including those whose callers have gone.
    reports: AtomicUsize,
    again_from_us: AtomicU64,
}

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

impl DebtSettlement {
    /// Charges that are on their way.
    pub(super) fn under_way(&self) -> usize {
        // Relaxed: a late change is seen in the next round.
        self.held.load(Ordering::Relaxed) + self.reports.load(Ordering::Relaxed)
    }
}

impl ResilientState {
    /// Charges the debts to the store in the background, by one task at a time.
    pub(super) fn settle(self: &Arc<Self>) {
        if self.clock.now_us() < self.settlement.again_from_us.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if let Some(settling) = self.settling() {
            runtime.spawn(settling.run(None));
        }
    }

    /// The right to settle, if no other task has it.
    pub(super) fn settling(self: &Arc<Self>) -> Option<Settling> {
        // Acquire and Release: one task's work is done before the next one's begins.
        if self.settlement.is_running.swap(true, Ordering::AcqRel) {
            return None;
        }
        let state = Arc::clone(self);
        Some(Settling { state, owed: Vec::new(), kept: Vec::new(), charged: 0, followed: 0 })
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
    pub(super) fn still_counts(&self, key: &Key, debt: &Debt) -> SmallVec<[u64; 2]> {
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
}

/// Whether a charge that failed with this error did not reach the store, and may be repeated later. A charge without an answer
/// in time has most likely been made; repeating it could lock a key out.
pub(super) fn is_owed_on(error: &StoreError) -> bool {
    error.may_succeed_later() && error.kind() != StoreErrorKind::Timeout
}

/// The used units of a quota: more than all of it, if more was charged.
fn used(quota: &PolicyQuota, status: &QuotaStatus) -> u64 {
    let used = status.capacity().saturating_sub(status.remaining());
    // The longer the time to rest, the more was charged, except where spends fade by themselves.
    used.max(quota.rule().drains_in(micros(status.reset_after())).unwrap_or(0))
}

/// The one task that settles. However it ends, debts that it has not tried to charge are owed again, and another task may begin.
pub(super) struct Settling {
    state: Arc<ResilientState>,
    /// Each debt with the part of the store that it is owed to.
    owed: Vec<(u64, (Key, Debt))>,
    kept: Vec<(Key, Debt)>,
    charged: usize,
    /// The number of policy replacements that `owed` takes into account.
    followed: usize,
}

impl Settling {
    /// Charges the debts to all parts that are asked; with an end time, to all parts, because there is no later try. Returns how
    /// many debts were given up, because their charge was not answered.
    pub(super) async fn run(mut self, until: Option<Instant>) -> usize {
        let owed = self.state.fallback.debts.take();
        // Relaxed, here and below: a number to look at.
        self.state.settlement.held.store(owed.len(), Ordering::Relaxed);
        self.owed = owed.into_iter().map(|owed| (self.parts_of(&owed), owed)).collect();
        self.owed.sort_by_key(|(parts, _)| *parts);
        let (mut away, mut unanswered) = (0, 0);
        while let Some((parts, batch)) = self.next() {
            let asks = match until {
                Some(until) => Instant::now() < until,
                None => self.state.parts.are_closed(parts),
            };
            if parts & away != 0 || !asks {
                self.kept.extend(batch);
                continue;
            }
            let Err(error) = self.charge(&batch, until).await else {
                self.charged += batch.len();
                continue;
            };
            if error.may_succeed_later() {
                self.state.counts.failed(&error);
                away |= parts;
            }
            if is_owed_on(&error) {
                self.kept.extend(batch);
            } else {
                unanswered += batch.len();
            }
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

    fn parts_of(&self, (key, debt): &(Key, Debt)) -> u64 {
        self.state.within.parts(&[Ask::new(&debt.policy, key.as_ref(), 1, Mode::Charge)])
    }

    /// The next debts of one part, at most as many as one call may name. One part per call: another part's failure never makes a
    /// charge uncertain that succeeded. A suspension has a call of its own.
    fn next(&mut self) -> Option<(u64, Vec<(Key, Debt)>)> {
        self.state.fallback.debts.follow(&mut self.owed, &mut self.followed);
        let (parts, (_, last)) = self.owed.last()?;
        let (parts, is_alone, mut buckets) = (*parts, last.is_suspension(), 0);
        let other = self.owed.iter().rposition(|(of, (_, debt))| {
            let is_first = buckets == 0;
            buckets += debt.policy.policy().quotas().len();
            *of != parts || buckets > MAX_QUOTAS || !is_first && (is_alone || debt.is_suspension())
        });
        let batch = self.owed.split_off(other.map_or(0, |index| index + 1));
        Some((parts, batch.into_iter().map(|(_, owed)| owed).collect()))
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        let ResilientState { fallback, settlement, clock, parts, .. } = &*self.state;
        let kept = self.owed.drain(..).map(|(_, owed)| owed).chain(self.kept.drain(..));
        let left = fallback.debts.put_back(kept);
        if left > 0 {
            // Kept for the next try, which is not at once when another part answers.
            let next_us = clock.now_us().saturating_add(micros(SETTLES_AGAIN_AFTER));
            // Relaxed: at worst it is tried once more.
            settlement.again_from_us.store(next_us, Ordering::Relaxed);
        }
        settlement.held.store(0, Ordering::Relaxed);
        settlement.is_running.store(false, Ordering::Release);
        if self.charged + left > 0 {
            parts.listeners.tell(&Event::Settled { charged: self.charged, left });
        }
    }
}
