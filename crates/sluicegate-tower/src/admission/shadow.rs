//! Policies in shadow, which are tried out and not enforced.
//!
//! Their verdicts are counted and logged, never shown and never waited for. Each policy is asked
//! alone, after the enforced limits have admitted the request. So its count shows the effect that the policy
//! would have if it were enforced.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use sluicegate_core::limiter::Receipt;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::support::{Seldom, lock, read, write};
use sluicegate_core::{Decision, Key, Policy, RateLimiter, StoreError};
use tokio::runtime::Handle;

use crate::limits::plan::LimitPlan;
use crate::limits::walk::RequestAsk;

/// The requests admitted by the enforced limits, counted by the verdict of a shadow policy.
///
/// Each shadow policy of a layer is decided on its own, as if it were the only one in addition. Its requests pass
/// whatever it decides, and clients do not see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShadowCount {
    /// The name of the policy.
    pub policy: String,
    /// Requests that it would have passed at once.
    pub passed: u64,
    /// Requests that it would have delayed and then passed.
    pub delayed: u64,
    /// Requests that it would have refused.
    pub refused: u64,
    /// Requests that the store did not answer, and requests with a late answer if no tokio runtime could wait
    /// for it.
    pub unknown: u64,
}

/// The most policies that are counted, because policies chosen per request may have many names.
const MOST: usize = 1_000;

/// The counts of a layer. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadows(Arc<AllCounts>);

#[derive(Debug, Default)]
struct AllCounts {
    /// In the order of the names of their policies.
    each: RwLock<Vec<Arc<Counts>>>,
    /// Policies beyond the most share these, which are not shown, so that they share one line of the log a second, too.
    beyond: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    policy: String,
    passed: AtomicU64,
    delayed: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
    log: Seldom,
}

impl Shadows {
    /// Counts the verdict when it is known; the request does not wait for it.
    pub(super) fn watch(&self, trial: &Arc<Trial>, verdict: DecisionFuture) {
        let policy = trial.limiter.policy();
        let counts = self.of(policy.name());
        match verdict.now() {
            Ok(mut result) => counts.count(trial, &policy, &mut result),
            Err(pending) => match Handle::try_current() {
                Ok(runtime) => {
                    let trial = Arc::clone(trial);
                    // It ends when the store answers or its deadline passes.
                    drop(DecisionFuture::begun(&runtime, async move {
                        let mut result = pending.await;
                        counts.count(&trial, &policy, &mut result);
                        result
                    }));
                }
                Err(_) => add(&counts.unknown),
            },
        }
    }

    /// Counts a body that a policy in shadow would have delayed, or passed at once.
    pub(crate) fn told(&self, policy: &str, is_held: bool) {
        let counts = self.of(policy);
        add(if is_held { &counts.delayed } else { &counts.passed });
    }

    /// The counts of this policy.
    fn of(&self, policy: &str) -> Arc<Counts> {
        let all = read(&self.0.each);
        match found(&all, policy) {
            Ok(counts) => return counts,
            Err(_) if all.len() >= MOST => return Arc::clone(&self.0.beyond),
            Err(_) => drop(all),
        }
        let mut all = write(&self.0.each);
        match found(&all, policy) {
            Ok(counts) => counts,
            Err(_) if all.len() >= MOST => Arc::clone(&self.0.beyond),
            Err(at) => {
                let counts = Arc::new(Counts { policy: policy.to_owned(), ..Counts::default() });
                all.insert(at, Arc::clone(&counts));
                counts
            }
        }
    }

    /// The counts of `known` policies in shadow, in their order, and then of others.
    pub(crate) fn counts(&self, known: impl Iterator<Item = Arc<Policy>>) -> Vec<ShadowCount> {
        let known: Vec<_> = known.collect();
        let all = read(&self.0.each);
        let is_known = |name: &str| known.iter().any(|policy| policy.name() == name);
        let shadows = known.iter().filter(|policy| policy.mode() == PolicyMode::Shadow);
        let count = |name: &str| found(&all, name).unwrap_or_default().shown(name);
        let others = all.iter().filter(|counts| !is_known(&counts.policy));
        let others = others.map(|counts| counts.shown(&counts.policy));
        shadows.map(|policy| count(policy.name())).chain(others).collect()
    }
}

/// The counts of this policy, or their index among all.
fn found(all: &[Arc<Counts>], policy: &str) -> Result<Arc<Counts>, usize> {
    all.binary_search_by(|counts| (*counts.policy).cmp(policy)).map(|at| Arc::clone(&all[at]))
}

impl Counts {
    fn shown(&self, policy: &str) -> ShadowCount {
        // Relaxed: counts that are read one by one are not a consistent snapshot anyway.
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ShadowCount {
            policy: policy.to_owned(),
            passed: of(&self.passed),
            delayed: of(&self.delayed),
            refused: of(&self.refused),
            unknown: of(&self.unknown),
        }
    }

    fn count(&self, trial: &Trial, policy: &Policy, result: &mut Result<Decision, StoreError>) {
        trial.settle(result.as_mut().ok());
        match result {
            Ok(decision) if !decision.is_counted() => add(&self.unknown),
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
    // Relaxed: it is a count that guards no other data.
    count.fetch_add(1, Ordering::Relaxed);
}

/// A request's ask of a policy in shadow, so that it can be given back as if the policy were enforced.
#[derive(Debug)]
pub(crate) struct Trial {
    /// The index of its limit.
    pub(crate) limit: usize,
    pub(crate) limiter: RateLimiter,
    pub(crate) key: Key,
    pub(crate) cost: u64,
    state: Mutex<TrialState>,
}

/// The verdict may come before the response or after it, and the response may give units back. The later of the two gives them back; the
/// mutex orders the two.
#[derive(Debug)]
enum TrialState {
    Asked,
    /// The verdict is pending, and this many units of its spend have to be given back.
    GivenBack(u64),
    Spent(Receipt),
    /// The spend was given back, or the meter has it.
    Over,
    /// The ask was refused, or not counted.
    Unspent,
}

impl Trial {
    pub(crate) fn new(plan: &LimitPlan, asked: RequestAsk) -> Self {
        let limiter = asked.limiter(plan).clone();
        let RequestAsk { limit, key, cost, .. } = asked;
        Self { limit, limiter, key, cost, state: Mutex::new(TrialState::Asked) }
    }

    /// Records the verdict and its spend.
    pub(super) fn settle(&self, decision: Option<&mut Decision>) {
        let is_spent =
            decision.as_ref().is_some_and(|decision| decision.is_allowed() && decision.is_counted());
        let receipt = decision.and_then(|decision| decision.take_receipt(0));
        let mut state = self.state();
        *state = match (&*state, receipt) {
            (TrialState::Asked, Some(receipt)) => TrialState::Spent(receipt),
            (TrialState::GivenBack(units), Some(receipt)) => self.refund(receipt, *units),
            _ if is_spent => TrialState::Over,
            _ => TrialState::Unspent,
        };
    }

    /// Gives up to this many units of the spend back, now or when the verdict comes.
    pub(super) fn give_back(&self, units: u64) {
        let mut state = self.state();
        *state = match mem::replace(&mut *state, TrialState::Over) {
            TrialState::Asked => TrialState::GivenBack(units),
            TrialState::GivenBack(before) => TrialState::GivenBack(before.saturating_add(units)),
            TrialState::Spent(receipt) => self.refund(receipt, units),
            over => over,
        };
    }

    /// Whether the verdict has come, and the ask has spent nothing.
    pub(super) fn is_unspent(&self) -> bool {
        matches!(*self.state(), TrialState::Unspent)
    }

    /// Returns the receipt of the spend, if the verdict has arrived.
    pub(crate) fn take_receipt(&self) -> Option<Receipt> {
        let mut state = self.state();
        match mem::replace(&mut *state, TrialState::Over) {
            TrialState::Spent(receipt) => Some(receipt),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Gives units of a receipt back, and keeps the rest.
    fn refund(&self, mut receipt: Receipt, units: u64) -> TrialState {
        let rest = receipt.split(units);
        // The store starts at once; its answer is not awaited.
        drop(self.limiter.refund(&self.key, units).of(&mut receipt).start());
        rest.map_or(TrialState::Over, TrialState::Spent)
    }

    fn state(&self) -> MutexGuard<'_, TrialState> {
        lock(&self.state)
    }
}
