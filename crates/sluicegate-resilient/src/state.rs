//! The state of a store with a fallback: [`ResilientState`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_core::Decision;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::{ConfigError, ConfigErrorKind, StoreError, StoreErrorKind};
use sluicegate_core::store::{DecisionFuture, ResilientStatus};
use sluicegate_core::wrap::Within;
use tokio::time::timeout;

use super::fallback::{FallbackShare, LocalFallback};
use super::parts::{OutageCounts, Parts};

/// The state: a deadline for the store, a breaker for each part of it, and a fallback with its debts.
pub(super) struct ResilientState {
    pub(super) within: Within<FallbackShare>,
    pub(super) deadline: Deadline,
    pub(super) parts: Arc<Parts>,
    pub(super) fallback: LocalFallback,
    pub(super) settlement: DebtSettlement,
    pub(super) counts: OutageCounts,
    pub(super) clock: Arc<dyn Clock>,
}

impl ResilientState {
    pub(super) fn status(&self) -> ResilientStatus {
        let mut status = ResilientStatus::default();
        self.parts.report(&mut status);
        self.counts.report(&mut status);
        (status.debts, status.replicas) = (self.fallback.debts.count(), self.fallback.replicas);
        status
    }
}

/// The longest time that one call of the store may take, if it is bounded.
///
/// It is only for stores without a deadline of their own. A deadline inside the store is better: it knows
/// whether the command was sent, and closes the connection. From outside, a late call can only be
/// dropped.
pub(super) struct Deadline(Option<Duration>);

impl Deadline {
    /// # Errors
    /// For a deadline of zero.
    pub(super) fn new(longest: Option<Duration>) -> Result<Self, ConfigError> {
        if longest.is_some_and(|longest| longest.is_zero()) {
            let problem = "a store with a deadline of 0: no call could keep it";
            return Err(ConfigError::new(ConfigErrorKind::Store, problem));
        }
        Ok(Self(longest))
    }

    /// The answer, or a timeout.
    pub(super) async fn keep(&self, answer: DecisionFuture) -> Result<Decision, StoreError> {
        match (self.0, answer.now()) {
            // Without a timer, which needs a runtime.
            (_, Ok(answer)) => answer,
            (None, Err(pending)) => pending.await,
            (Some(longest), Err(pending)) => {
                let late = |_| Err(StoreError::new(StoreErrorKind::Timeout));
                timeout(longest, pending).await.unwrap_or_else(late)
            }
        }
    }
}

/// The progress of settling debts.
#[derive(Default)]
pub(super) struct DebtSettlement {
    pub(super) is_running: AtomicBool,
    /// Debts of the call that the settling task waits for.
    pub(super) held: AtomicUsize,
    /// Charges and refunds in progress, including those whose callers have gone.
    pub(super) reports: AtomicUsize,
    /// The end of the last try, if it left debts; otherwise 0.
    pub(super) tried_us: AtomicU64,
    /// Tries in a row that have charged none of the debts that they took out.
    pub(super) in_vain: AtomicU32,
    /// The number of times that a breaker had closed at the last try.
    pub(super) closings: AtomicU64,
}

impl DebtSettlement {
    /// Charges that are on their way.
    pub(super) fn under_way(&self) -> usize {
        // Relaxed: a late change is seen in the next round.
        self.held.load(Ordering::Relaxed) + self.reports.load(Ordering::Relaxed)
    }
}

/// Whether a report that failed with this error did not reach the store, and may be repeated later. A report without an answer
/// in time has most likely been made, or will be; repeating it could lock a key out.
pub(super) fn is_owed_on(error: &StoreError) -> bool {
    let may_arrive = error.kind() == StoreErrorKind::Timeout && error.may_have_spent();
    error.may_succeed_later() && !may_arrive
}
