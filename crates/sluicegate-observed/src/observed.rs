//! A store whose decisions are counted: [`Observed`].

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::key::{AsKey, Key};
use sluicegate_core::limiter::RateLimiter;
use sluicegate_core::policy::Policy;
use sluicegate_core::store::{BreakerState, Event, IntoStore, Listener, Store, StoreStatus};
use sluicegate_core::support::lock;
use sluicegate_core::wrap::Within;
use sluicegate_in_flight::{Class, InFlight};

use crate::events::{Events, RecentEvents, events};
use crate::lanes::TimeOf;
use crate::meter::RemainingRatio;
use crate::metrics::{
    ADAPTIVE_LATENCY, ADAPTIVE_LIMIT, ADAPTIVE_WAITING, ALARM, BREAKER_STATE, IN_FLIGHT, LEASED_KEYS,
    LEASED_UNITS, NEW_KEYS, Name, POLICY_INFO, QUOTA, QUOTA_PERIOD, QUOTAS_IN_USE, REFUSALS_KEPT,
    REMAINING_RATIO, SUSPENDED_SEEN, TABLE_KEYS, TABLE_SLOTS, UNSETTLED_KEYS, WAITING, series,
};
use crate::snapshot::{Snapshot, StoreSnapshot};
use crate::state::ObservedState;
use crate::store::ObservedStore;
use crate::tighten::{Tighteners, follow};

/// Counts all decisions of a store. Clones are handles to the same counts.
///
/// Put it around all other stores, including `Resilient`, so that it sees the decisions that requests get.
///
/// A decision is counted when its answer comes. The answer to a request that was dropped is not counted.
#[derive(Clone)]
pub struct Observed(Arc<ObservedStore>);

impl Observed {
    /// Observes this store under a name, which pages and metrics show.
    ///
    /// # Errors
    /// [`ConfigErrorKind::NameTaken`] when another observed store of this process has the name, or the store is observed
    /// already; and for a name outside `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    pub fn named(name: impl Into<String>, store: impl IntoStore) -> Result<Self, ConfigError> {
        let (name, store) = (Name::take(name.into())?, store.into());
        if let Some(observed) = store.status().observed {
            let problem = format!(
                "{:?} is around a store that is observed as {observed:?}: each decision would count twice",
                name.as_str()
            );
            return Err(ConfigError::new(ConfigErrorKind::NameTaken, problem));
        }
        let clock = TimeOf::store(&store);
        let past = Arc::new(RecentEvents::new(Arc::clone(&clock)));
        store.listen(Arc::clone(&past) as Arc<dyn Listener>);
        let store = Arc::new(ObservedStore {
            is_far: !store.always_answers(),
            within: Within::new(store),
            state: Arc::new(ObservedState::new(name, clock, past)),
            gauges: Mutex::default(),
        });
        // Weak, because the store keeps this.
        let (weak, tighteners) = (Arc::downgrade(&store), Arc::new(Tighteners::default()));
        store.state.events.follow(move |alarm| {
            if let Some(store) = weak.upgrade() {
                follow(&store, &tighteners, alarm);
            }
        });
        InFlight::observe_all(&store.state.as_listener());
        let state = Arc::clone(&store.state);
        store.limiters().know_keys(move |policy| state.meters.get(policy.counted_as())?.known_keys());
        Ok(Self(store))
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.state.name.as_str()
    }

    /// Adds a listener for all events of the store. It is called in the middle of requests, so it must not block. To write to a
    /// file or to a network, take the [`events`](Self::events) from a queue.
    pub fn listen(&self, listener: impl Listener) {
        let store: Arc<dyn Store> = self.into();
        store.listen(Arc::new(listener));
    }

    /// A queue of the values that `take` makes of the store's events from now on, with room for `room` values, at least one: for a task
    /// that writes or sends them.
    ///
    /// No request waits for that task. An event that does not fit is dropped and counted: by [`Events::dropped`], in
    /// [`StoreSnapshot::events_dropped`], and as `rate_limit_events_dropped_total`. `take` runs in the middle of a request and
    /// copies what it needs; it returns `None` for events that are not needed, so that a flood of decisions drives out no suspension.
    /// It is called as long as the store lives, even after the queue was dropped: ask for one queue, not for one per page.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use sluicegate_observed::Observed;
    /// use sluicegate_core::store::Event;
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = Observed::named("memory", MemoryStore::new())?;
    /// let mut suspensions = store.events(100, |event| match event {
    ///     Event::Suspended { subject, lasts, .. } => Some(format!("{}: {lasts:?}", subject.policy?)),
    ///     _ => None,
    /// });
    ///
    /// let login = Policy::gcra("login", "5/min").suspend(100, "10min", "30min").on(&store)?;
    /// login.suspensions().suspend("ada", Duration::from_secs(600)).await?;
    /// assert_eq!(suspensions.next().await.as_deref(), Some("login: 600s"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn events<T: Send + 'static>(
        &self,
        room: usize,
        take: impl Fn(&Event<'_>) -> Option<T> + Send + Sync + 'static,
    ) -> Events<T> {
        let (queue, listener) = events(room, take, Arc::clone(&self.0.state.dropped));
        self.listen(listener);
        queue
    }

    /// A listener for events that do not come from the store: pass it to code that takes a listener and is on no store, such as the
    /// extractor of addresses behind proxies.
    pub fn listener(&self) -> Arc<dyn Listener> {
        self.0.state.as_listener()
    }

    /// Counts permits for requests in flight here, under the name of their limit.
    ///
    /// The first observed store of a process counts the permits of all limits by itself. With several observed stores this says which
    /// one counts those of this limit.
    pub fn in_flight(&self, in_flight: &InFlight) {
        in_flight.observe_by(&self.0.state.as_listener());
    }

    /// Announces that unusual requests are expected until then, for example at the opening of a sale: alarms that begin before that time
    /// carry the reason, and are logged as expected instead of as warnings. It replaces an earlier announcement.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use sluicegate_core::MemoryStore;
    /// use sluicegate_observed::Observed;
    ///
    /// let store = Observed::named("shop", MemoryStore::new())?;
    /// store.expect_unusual("the sale opens at ten", SystemTime::now() + Duration::from_secs(2 * 3_600));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expect_unusual(&self, why: impl Into<String>, until: SystemTime) {
        self.0.state.events.expect(why.into(), until);
    }

    /// Makes [`refresh`](Self::refresh) export the share that this key has left, under a name: for the few keys that matter most, such
    /// as the largest customers. The key itself is not exported.
    ///
    /// # Errors
    /// When the name is taken by another watched key, or cannot be a label; when 100 keys are watched already; and when the
    /// limiter is on another store.
    pub fn watch(
        &self,
        name: impl Into<String>,
        limiter: &RateLimiter,
        key: impl AsKey,
    ) -> Result<(), ConfigError> {
        let policy = limiter.policy();
        let own = self.0.limiters().get(policy.name());
        if !own.is_some_and(|own| own.is(limiter)) {
            let problem = format!("it is on another store than {:?}: put it on that one", self.name());
            return Err(ConfigError::new(ConfigErrorKind::OtherStore, problem).in_policy(policy.name()));
        }
        self.0.state.watched.add(name.into(), policy.name().to_owned(), key.with_key(|key| key.to_key()))
    }

    /// A snapshot of this moment. It sums counts and walks tables, so it is for pages that are read occasionally.
    ///
    /// Policies beyond the first 256 names, and policies that are [counted as](sluicegate_core::policy::PolicyBuilder::counted_as) one, are
    /// counted together, and are not listed.
    pub fn snapshot(&self) -> Snapshot {
        let ObservedState { meters, events, clock, since_us, .. } = &*self.0.state;
        let now_us = clock.now_us();
        let (limiters, status) = (self.0.limiters().all(), Store::status(&*self.0));
        let permits = self.0.state.permits();
        let policies = limiters.iter().filter_map(|limiter| {
            let meter = limiter.with_policy(|policy| meters.get(policy.name()))?;
            let key_quotas = limiter.with_policy(|policy| quotas_in_use(&status, policy.name()));
            Some(meter.snapshot(limiter, key_quotas))
        });
        Snapshot {
            at: UNIX_EPOCH + Duration::from_micros(now_us),
            uptime: Duration::from_micros(now_us.saturating_sub(*since_us)),
            stores: vec![self.store_snapshot(&status)],
            policies: policies.collect(),
            in_flight: permits
                .iter()
                .map(|limit| self.0.state.permit_meters.open(limit.name()).permits(limit))
                .collect(),
            adaptive: permits
                .iter()
                .filter_map(|limit| Some((limit.name().to_owned(), limit.status()?)))
                .collect(),
            shared: permits
                .iter()
                .filter_map(|limit| Some((limit.name().to_owned(), limit.shared_status()?)))
                .collect(),
            events: events.past.events(),
        }
    }

    /// The key that [`snapshot`](Self::snapshot) lists for this policy under this [reference](crate::Offender::reference), while it is
    /// listed: to look it up, to reset it, or to suspend it. `None` for a key of more than 64 bytes, of which only the beginning is kept.
    pub fn listed_key(&self, policy: &str, reference: &str) -> Option<Key> {
        self.0.state.meters.get(policy)?.listed_key(reference)
    }

    fn store_snapshot(&self, status: &StoreStatus) -> StoreSnapshot {
        let (errors, state) = (self.0.state.errors(status), self.0.state.state(status));
        let (resilient, memory) = (status.resilient, status.memory);
        StoreSnapshot {
            name: self.name().to_owned(),
            state,
            breaker: resilient.map_or(BreakerState::Closed, |resilient| resilient.breaker),
            opened: resilient.map_or(0, |resilient| resilient.opened),
            errors,
            p99: self.0.state.p99(),
            answered_at: self.0.state.answered_at(),
            replicas: resilient.map(|resilient| resilient.replicas),
            fallback_decisions: resilient.map_or(0, |resilient| resilient.fallback_decisions),
            in_fallback: resilient.map_or(Duration::ZERO, |resilient| resilient.in_fallback),
            unsettled_keys: resilient.map_or(0, |resilient| resilient.debts),
            keys: memory.map_or(0, |memory| memory.keys),
            slots: memory.map_or(0, |memory| memory.slots),
            evictions: memory.map_or(0, |memory| memory.evictions),
            events_dropped: self.0.state.events_dropped(),
            undecided: self.0.state.undecided(),
        }
    }
}

sluicegate_core::store_handle!(Observed, name);

// Gauges that change without a decision, exported on demand: [`Observed::refresh`].

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

    fn of_store(&self, status: &StoreStatus) -> impl Iterator<Item = (metrics::Key, f64)> {
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
    fn of_policies(&self, status: &StoreStatus) -> impl Iterator<Item = (metrics::Key, f64)> {
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
fn of_permits(of: &InFlight) -> Vec<(metrics::Key, f64)> {
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
fn quotas_in_use(status: &StoreStatus, policy: &str) -> usize {
    status.quotas.iter().filter(|(name, _)| name == policy).map(|(_, quotas)| *quotas).max().unwrap_or(0)
}

/// The gauges that describe a policy and its quotas.
fn about(policy: &Policy) -> Vec<(metrics::Key, f64)> {
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

fn of_key(RemainingRatio { name, policy, ratio }: &RemainingRatio) -> (metrics::Key, f64) {
    (series(REMAINING_RATIO, [("policy", &**policy), ("watched", name)]), *ratio)
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn number(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or(u64::MAX) as f64
}
