//! What can be seen of an outage: [`ResilientStatus`], and a line in the log for each change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::breaker::{BreakerState, Change};
use crate::error::{StoreError, StoreErrorKind};

/// How a [`Resilient`](super::Resilient) store is doing. Counts are since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResilientStatus {
    /// The breaker; of a store in several parts, that of the part that does worst.
    pub breaker: BreakerState,
    /// How often a breaker has opened.
    pub opened: u64,
    /// Calls that were not answered in time; what they asked for may have been spent.
    pub timeouts: u64,
    /// Calls that found no store.
    pub unavailable: u64,
    /// Answers that were none.
    pub protocol: u64,
    /// Decisions that were made without the store.
    pub fallback_decisions: u64,
    /// How long a breaker was not closed, in all.
    pub in_fallback: Duration,
    /// Keys with spending that the store does not know of yet.
    pub debts: usize,
}

/// What is counted.
#[derive(Default)]
pub(super) struct Counts {
    opened: AtomicU64,
    timeouts: AtomicU64,
    unavailable: AtomicU64,
    protocol: AtomicU64,
    alone: AtomicU64,
    outage: Mutex<Outage>,
}

/// Which parts are not asked, and since when there is one.
#[derive(Clone, Copy, Default)]
struct Outage {
    parts: u64,
    since_us: u64,
    before: Duration,
}

impl Counts {
    // Relaxed, here and below: numbers to look at.
    pub(super) fn failed(&self, error: &StoreError) {
        let count = match error.kind() {
            StoreErrorKind::Timeout => &self.timeouts,
            StoreErrorKind::Protocol => &self.protocol,
            _ => &self.unavailable,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn decided_alone(&self) {
        self.alone.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of what happened to a part's breaker, and tells whoever reads the log.
    pub(super) fn changed(&self, part: usize, change: Change, error: Option<&StoreError>, now_us: u64) {
        let mut outage = self.outage();
        let (bit, before) = (1_u64 << part, outage.parts);
        match change {
            Change::PreparedPolicy { pause } => {
                self.opened.fetch_add(1, Ordering::Relaxed);
                outage.parts |= bit;
                if before == 0 {
                    outage.since_us = now_us;
                }
                if before & bit == 0 {
                    let error = error.map(|error| error as &(dyn std::error::Error + 'static));
                    tracing::error!(
                        error,
                        part,
                        ?pause,
                        "the rate limit store fails: policies now decide by what they say of an outage"
                    );
                }
            }
            Change::Closed => {
                outage.parts &= !bit;
                if before & bit != 0 && outage.parts == 0 {
                    let lasted = Duration::from_micros(now_us.saturating_sub(outage.since_us));
                    outage.before += lasted;
                    tracing::info!(part, ?lasted, "the rate limit store decides again");
                }
            }
        }
    }

    pub(super) fn status(&self, breaker: BreakerState, debts: usize, now_us: u64) -> ResilientStatus {
        let outage = *self.outage();
        let current = if outage.parts == 0 { 0 } else { now_us.saturating_sub(outage.since_us) };
        ResilientStatus {
            breaker,
            opened: self.opened.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            unavailable: self.unavailable.load(Ordering::Relaxed),
            protocol: self.protocol.load(Ordering::Relaxed),
            fallback_decisions: self.alone.load(Ordering::Relaxed),
            in_fallback: outage.before + Duration::from_micros(current),
            debts,
        }
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
