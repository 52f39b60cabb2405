//! Tightens a policy while an alarm of it lasts: [`Tighteners`].
//!
//! A policy configures it by [`PolicyBuilder::tighten`](sluicegate_core::policy::PolicyBuilder::tighten). The effect is an override by the
//! operator [`ALARM`], so that it reaches all instances, ends in time, and is shown and withdrawn like any other override.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use sluicegate_core::limiter::{OverrideErrorKind, Overrides};
use sluicegate_core::policy::{Override, OverrideBuilder, Policy, PolicyQuota, Tightening};
use sluicegate_core::store::{Alarm, AlarmCause, DecidedBy, Store};
use sluicegate_core::support::lock;

use crate::store::ObservedStore;

/// The operator name of these overrides.
pub(super) const ALARM: &str = "alarm";
/// The policy by which instances vote: its key is the name of a policy, and each of them spends one unit in an hour.
const VOTES: &str = "sluicegate-alarms";
const VOTERS: u64 = 100;
const HOUR: Duration = Duration::from_secs(3_600);

/// The policies that this instance has tightened or tried to tighten.
#[derive(Default)]
pub(super) struct Tighteners(Mutex<HashMap<String, Tightened>>);

#[derive(Default)]
struct Tightened {
    /// The current causes.
    causes: Vec<AlarmCause>,
    /// When this instance last voted.
    voted_us: Option<u64>,
    /// The override that this instance has put.
    version: Option<u64>,
}

/// The work to do when an alarm begins or ends.
enum Task {
    Tighten { is_to_vote: bool },
    Loosen { version: u64 },
}

/// Tightens or loosens the policy of an alarm, in the background.
pub(super) fn follow(store: &Arc<ObservedStore>, tighteners: &Arc<Tighteners>, alarm: &Alarm) {
    let own = store.limiters().get(&alarm.policy).map(|limiter| limiter.own_policy());
    let tightening = own.and_then(|own| own.tightening()).filter(|_| alarm.expected.is_none());
    // A tightened policy is loosened, whatever its settings are by now, and also while it is closed.
    if tightening.is_none() && !alarm.is_over {
        return;
    }
    let Some(task) = tighteners.turn(alarm, store.within.store().now_us()) else { return };
    let (store, policy) = (Arc::clone(store), alarm.policy.clone());
    match (task, tightening) {
        (Task::Loosen { version }, _) => run(async move { loosen(&store, &policy, version).await }),
        (Task::Tighten { .. }, Some(tightening)) if tightening.is_shadow() => {
            let (quota, keys) = (tightening.quota(), keys_of(tightening));
            tracing::warn!(policy, %quota, keys, "would be tightened, if it were not in shadow");
        }
        (Task::Tighten { is_to_vote }, Some(tightening)) => {
            let tighteners = Arc::clone(tighteners);
            run(async move {
                if let Some(version) = tighten(&store, &policy, tightening, is_to_vote).await {
                    tighteners.has_put(&policy, version);
                }
            });
        }
        (Task::Tighten { .. }, None) => {}
    }
}

/// The tightened keys, in the words of a rules file.
fn keys_of(tightening: Tightening) -> &'static str {
    if tightening.is_of_new_keys() { "new" } else { "all" }
}

/// Tightens the policy, and returns the version of the override.
async fn tighten(
    store: &Arc<ObservedStore>,
    policy: &str,
    tightening: Tightening,
    is_to_vote: bool,
) -> Option<u64> {
    let quota = tightening.quota();
    if store.within.store().shared().is_some()
        && !is_agreed(store, policy, tightening.agreed_by(), is_to_vote).await
    {
        let needed = tightening.agreed_by();
        tracing::info!(policy, needed, "is not tightened yet: too few instances have noticed the alarm");
        return None;
    }
    let own = store.limiters().get(policy).map(|limiter| limiter.own_policy());
    let others = own.iter().flat_map(|own| own.quotas()).skip(1).map(PolicyQuota::quota);
    let over = Override::builder(policy, ALARM).quota(quota).lasting(tightening.longest());
    let over = others.fold(over, OverrideBuilder::quota);
    let over = if tightening.is_of_new_keys() { over.new_keys() } else { over };
    match Overrides::of(Arc::clone(store) as Arc<dyn Store>).put(over).await {
        Ok(over) => {
            tracing::warn!(policy, %quota, keys = keys_of(tightening), "is tightened while its requests are unusual");
            return Some(over.version());
        }
        Err(error) if error.kind() == OverrideErrorKind::OutOfDate => {
            tracing::info!(policy, %error, "is not tightened: another override stands");
        }
        Err(error) => tracing::warn!(policy, %error, "could not be tightened"),
    }
    None
}

async fn loosen(store: &Arc<ObservedStore>, policy: &str, version: u64) {
    match Overrides::of(Arc::clone(store) as Arc<dyn Store>).withdraw(policy, version, ALARM).await {
        Ok(()) => tracing::info!(policy, "is no longer tightened"),
        // An operator acted first, or the override has expired.
        Err(error) => tracing::debug!(policy, %error, "is no longer tightened by this alarm"),
    }
}

/// Whether enough instances have voted within an hour, counted in the shared store; an answer without the store is no agreement.
async fn is_agreed(store: &Arc<ObservedStore>, policy: &str, needed: u64, is_to_vote: bool) -> bool {
    let votes = Policy::sliding_log(VOTES, format!("{VOTERS}/h")).hidden();
    let Ok(votes) = votes.on(Arc::clone(store.within.store())) else { return false };
    let decision = if is_to_vote { votes.charge(policy, 1).await } else { votes.peek(policy).await };
    decision.is_ok_and(|decision| {
        decision.decided_by() == DecidedBy::Store && VOTERS.saturating_sub(decision.remaining()) >= needed
    })
}

impl Tighteners {
    fn turn(&self, alarm: &Alarm, now_us: u64) -> Option<Task> {
        let mut all = lock(&self.0);
        let tightened = all.entry(alarm.policy.clone()).or_default();
        tightened.causes.retain(|cause| *cause != alarm.cause);
        if alarm.is_over {
            let version = tightened.version.filter(|_| tightened.causes.is_empty())?;
            tightened.version = None;
            return Some(Task::Loosen { version });
        }
        tightened.causes.push(alarm.cause);
        let hour = sluicegate_core::clock::micros(HOUR);
        let is_to_vote = tightened.voted_us.is_none_or(|voted_us| now_us.saturating_sub(voted_us) >= hour);
        if is_to_vote {
            tightened.voted_us = Some(now_us);
        }
        tightened.version.is_none().then_some(Task::Tighten { is_to_vote })
    }

    fn has_put(&self, policy: &str, version: u64) {
        lock(&self.0).entry(policy.to_owned()).or_default().version = Some(version);
    }
}

/// Runs the work in the background. Without a runtime it is polled once here, which completes it on a store in memory.
fn run(work: impl Future<Output = ()> + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(work)),
        Err(_) => _ = pin!(work).poll(&mut Context::from_waker(Waker::noop())),
    }
}
