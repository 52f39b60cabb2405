//! Gauges that change without a decision, exported on demand: [`Observed::refresh`].

use metrics::Key;
use sluicegate_core::policy::Policy;
use sluicegate_core::store::{BreakerState, Store, StoreStatus};
use sluicegate_core::support::lock;
use sluicegate_in_flight::{Class, InFlight};

use crate::Observed;
use crate::meter::RemainingRatio;
use crate::metrics::{
    ADAPTIVE_LATENCY, ADAPTIVE_LIMIT, ADAPTIVE_WAITING, ALARM, BREAKER_STATE, IN_FLIGHT, LEASED_KEYS,
    LEASED_UNITS, NEW_KEYS, POLICY_INFO, QUOTA, QUOTA_PERIOD, QUOTAS_IN_USE, REFUSALS_KEPT, REMAINING_RATIO,
    SUSPENDED_SEEN, TABLE_KEYS, TABLE_SLOTS, UNSETTLED_KEYS, WAITING, series,
};

impl Observed {
    /// Exports everything that the recorder does not know yet: all counts, and gauges that change without a decision, such as tables,
    /// waiting requests and [watched keys](Self::watch). Call this before metrics are rendered.
    ///
    /// # Cancel safety
    /// If it is dropped while watched keys are looked up, it has exported counts but no gauges.
    pub async fn refresh(&self) {
        self.rebind();
        let left = self.0.state.watched.look(self.0.limiters()).await;
        let status = Store::status(&*self.0);
        let mut gauges = lock(&self.0.gauges);
        gauges.tell(self.of_store(&status).chain(self.of_policies(&status)).chain(left.iter().map(of_key)));
    }

    /// Exports the counts to the installed recorder, including those from before it was installed. A recorder gets
    /// each count once, however often this is called. Decisions call it by themselves, once a second for each policy;
    /// [`refresh`](Self::refresh) calls it, too.
    pub fn rebind(&self) {
        self.0.state.tell(&Store::status(&*self.0));
    }

    fn of_store(&self, status: &StoreStatus) -> impl Iterator<Item = (Key, f64)> {
        let store = self.name().to_owned();
        let breaker = status.resilient.map(|resilient| match resilient.breaker {
            BreakerState::Closed => 0.0,
            BreakerState::HalfOpen => 1.0,
            BreakerState::Open => 2.0,
        });
        let all = [
            (BREAKER_STATE, breaker),
            (UNSETTLED_KEYS, status.resilient.map(|resilient| number(resilient.debts))),
            (TABLE_KEYS, status.memory.map(|memory| number(memory.keys))),
            (TABLE_SLOTS, status.memory.map(|memory| number(memory.slots))),
            (LEASED_UNITS, status.leases.map(|leases| number(leases.held))),
            (LEASED_KEYS, status.leases.map(|leases| number(leases.keys))),
            (REFUSALS_KEPT, status.deny_cache.map(|cache| number(cache.keys))),
        ];
        all.into_iter().filter_map(move |(name, value)| Some((series(name, [("store", &*store)]), value?)))
    }

    /// The gauges of open policies with counts of their own, and of requests in flight.
    fn of_policies(&self, status: &StoreStatus) -> impl Iterator<Item = (Key, f64)> {
        let state = &self.0.state;
        let limiters = self.0.limiters().all();
        let policies = limiters.into_iter().filter_map(|limiter| {
            let policy = limiter.policy();
            let meter = state.meters.get(policy.name())?;
            let of = [("policy", policy.name())];
            let waiting = (series(WAITING, of), number(limiter.waiting()));
            let suspended = (series(SUSPENDED_SEEN, of), number(meter.suspended_seen()));
            let quotas = policy.takes_quotas().then(|| number(quotas_in_use(status, policy.name())));
            let quotas = quotas.map(|quotas| (series(QUOTAS_IN_USE, of), quotas));
            let new_keys = (series(NEW_KEYS, of), meter.new_keys().round());
            let alarms = meter.alarms().into_iter().filter(|alarm| alarm.expected.is_none());
            let alarms = alarms.map(|alarm| {
                (series(ALARM, [("policy", policy.name()), ("cause", alarm.cause.as_str())]), 1.0)
            });
            let alarms: Vec<_> = alarms.collect();
            let few = [waiting, suspended, new_keys];
            Some(about(&policy).into_iter().chain(few).chain(quotas).chain(alarms))
        });
        let permits: Vec<_> = state.permits().iter().flat_map(of_permits).collect();
        policies.flatten().chain(permits)
    }
}

/// The number of permits that are out, and the state of a limit that adapts.
fn of_permits(of: &InFlight) -> Vec<(Key, f64)> {
    let name = ("policy", of.name());
    let mut all = vec![(series(IN_FLIGHT, [name]), number(of.in_use_in_all()))];
    if let Some(status) = of.status() {
        all.push((series(ADAPTIVE_LIMIT, [name]), number(status.limit)));
        all.push((series(ADAPTIVE_LATENCY, [name]), status.latency.as_secs_f64()));
        let waiting = Class::ALL.into_iter().zip(status.waiting);
        all.extend(waiting.map(|(class, waiting)| {
            (series(ADAPTIVE_WAITING, [name, ("class", class.as_str())]), number(waiting))
        }));
    }
    all
}

/// The number of different quotas of keys in use under the policy of this name.
pub(super) fn quotas_in_use(status: &StoreStatus, policy: &str) -> usize {
    status.quotas.iter().filter(|(name, _)| name == policy).map(|(_, quotas)| *quotas).max().unwrap_or(0)
}

/// The gauges that describe a policy and its quotas.
fn about(policy: &Policy) -> Vec<(Key, f64)> {
    let of = ("policy", policy.name());
    let mut algorithms: Vec<String> = Vec::new();
    for algorithm in policy.quotas().iter().map(|quota| quota.algorithm().to_string()) {
        if !algorithms.contains(&algorithm) {
            algorithms.push(algorithm);
        }
    }
    let (algorithm, mode) = (algorithms.join(", "), policy.mode().to_string());
    let hidden = if policy.is_hidden() { "true" } else { "false" };
    let labels = [of, ("algorithm", &*algorithm), ("mode", &*mode), ("hidden", hidden)];
    let mut all = vec![(series(POLICY_INFO, labels), 1.0)];
    for (place, quota) in policy.quotas().iter().enumerate() {
        let place = place.to_string();
        let labels = [of, ("quota", quota.id().unwrap_or(&place))];
        let quota = quota.quota();
        all.push((series(QUOTA, labels), number(quota.limit())));
        all.push((series(QUOTA_PERIOD, labels), quota.period().as_secs_f64()));
    }
    all
}

fn of_key(RemainingRatio { name, policy, ratio }: &RemainingRatio) -> (Key, f64) {
    (series(REMAINING_RATIO, [("policy", &**policy), ("watched", name)]), *ratio)
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn number(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or(u64::MAX) as f64
}
