//! The counts of an outage.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::error::{StoreError, StoreErrorKind};
use sluicegate_core::store::ResilientStatus;

use super::parts::BreakersStatus;

/// The counters.
#[derive(Default)]
pub(super) struct OutageCounts {
    timeouts: AtomicU64,
    unavailable: AtomicU64,
    protocol: AtomicU64,
    alone: AtomicU64,
}

impl OutageCounts {
    // Relaxed, here and below: the counts order nothing else.
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

    pub(super) fn status(&self, parts: &BreakersStatus, debts: usize) -> ResilientStatus {
        let mut status = ResilientStatus::default();
        status.breaker = parts.worst;
        status.opened = parts.opened;
        status.timeouts = self.timeouts.load(Ordering::Relaxed);
        status.unavailable = self.unavailable.load(Ordering::Relaxed);
        status.protocol = self.protocol.load(Ordering::Relaxed);
        status.fallback_decisions = self.alone.load(Ordering::Relaxed);
        status.in_fallback = parts.lasted;
        status.debts = debts;
        status
    }
}
