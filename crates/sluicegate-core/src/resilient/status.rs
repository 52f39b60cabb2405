//! What can be seen of an outage: [`ResilientStatus`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::breaker::BreakerState;
use super::parts::PartsStatus;
use crate::error::{StoreError, StoreErrorKind};

/// How a [`Resilient`](super::Resilient) store is doing. Counts are since it was made.
///
/// For alarms: `breaker` other than closed for longer than a deployment takes, `debts` that do not
/// shrink while it is closed, and `timeouts` that grow while it is closed, which say that the
/// deadline is near the store's usual time.
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
    /// Replies that could not be understood.
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
    timeouts: AtomicU64,
    unavailable: AtomicU64,
    protocol: AtomicU64,
    alone: AtomicU64,
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

    pub(super) fn status(&self, parts: &PartsStatus, debts: usize) -> ResilientStatus {
        ResilientStatus {
            breaker: parts.worst,
            opened: parts.opened,
            timeouts: self.timeouts.load(Ordering::Relaxed),
            unavailable: self.unavailable.load(Ordering::Relaxed),
            protocol: self.protocol.load(Ordering::Relaxed),
            fallback_decisions: self.alone.load(Ordering::Relaxed),
            in_fallback: parts.lasted,
            debts,
        }
    }
}
