//! Policies that are only tried out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::store::{DecidedBy, DecisionFuture};
use sluicegate_core::{Decision, Policy, StoreError};
use tokio::runtime::Handle;

use crate::rate_limit::shared::OnceASecond;
use crate::rate_limit::trial::Trial;

/// What a shadow policy would have done to the requests that the enforced limits let pass.
///
/// Each shadow policy of a layer is decided on its own, as if it were the only one that were added. Its requests pass,
/// whatever it says, and no client sees anything of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShadowCount {
    /// The name of the policy.
    pub policy: String,
    /// Requests that it would have let pass at once.
    pub passed: u64,
    /// Requests that it would have let wait and then pass.
    pub delayed: u64,
    /// Requests that it would have refused.
    pub refused: u64,
    /// Requests that the store gave no answer for, and those whose answer came late where no tokio runtime could wait
    /// for it.
    pub unknown: u64,
}

/// The counts of a layer, one per slot.
#[derive(Debug)]
pub(crate) struct Shadows(Arc<[Counts]>);

#[derive(Debug, Default)]
struct Counts {
    passed: AtomicU64,
    delayed: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
    log: OnceASecond,
}

impl Shadows {
    pub(crate) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Counts::default()).collect())
    }

    /// Counts what the verdict says when it is known; the request does not wait for it.
    pub(crate) fn watch(&self, trial: &Arc<Trial>, policy: &Arc<Policy>, verdict: DecisionFuture) {
        let slot = trial.slot;
        match verdict.now() {
            Ok(result) => self.0[slot].count(trial, policy, result),
            Err(pending) => match Handle::try_current() {
                Ok(runtime) => {
                    let (counts, trial, policy) =
                        (Arc::clone(&self.0), Arc::clone(trial), Arc::clone(policy));
                    // It ends when the store answers or its deadline is over.
                    drop(runtime.spawn(async move { counts[slot].count(&trial, &policy, pending.await) }));
                }
                Err(_) => add(&self.0[slot].unknown),
            },
        }
    }

    pub(crate) fn count_of(&self, slot: usize, policy: &Policy) -> ShadowCount {
        // Relaxed: counts that are read one by one are not a snapshot of one moment anyhow.
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { passed, delayed, refused, unknown, .. } = &self.0[slot];
        ShadowCount {
            policy: policy.name().to_owned(),
            passed: of(passed),
            delayed: of(delayed),
            refused: of(refused),
            unknown: of(unknown),
        }
    }
}

impl Counts {
    fn count(&self, trial: &Trial, policy: &Policy, mut result: Result<Decision, StoreError>) {
        trial.is_known(result.as_mut().ok());
        match result {
            Ok(decision) if decision.decided_by() == DecidedBy::Outage => add(&self.unknown),
            Err(_) => add(&self.unknown),
            Ok(decision) if !decision.is_allowed() => {
                add(&self.refused);
                if self.log.is_due() {
                    let refused = self.refused.load(Ordering::Relaxed);
                    tracing::info!(
                        target: "sluicegate::shadow",
                        policy = policy.name(),
                        refused,
                        "a policy in shadow would have refused this request"
                    );
                }
            }
            Ok(decision) if decision.delay().is_zero() => add(&self.passed),
            Ok(_) => add(&self.delayed),
        }
    }
}

fn add(count: &AtomicU64) {
    // Relaxed: it is a count and guards nothing else.
    count.fetch_add(1, Ordering::Relaxed);
}
