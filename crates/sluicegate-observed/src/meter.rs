//! The meter of one policy name: [`PolicyMeter`].
//!
//! An allowed request adds to counters of its thread, and checks the end of the current second: the first request of a second
//! updates the rates. A refused request is also noted with its key, behind a lock of the policy. The
//! meter has a fixed size, whatever keys clients make up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use sluicegate_core::Decision;
use sluicegate_core::clock::Clock;
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::key::{Key, KeyRef};
use sluicegate_core::limiter::{Limiters, RateLimiter};
use sluicegate_core::policy::check_name;
use sluicegate_core::store::{Alarm, DecidedBy, KnownKeys, QuotaStatus};
use sluicegate_core::support::lock;
use sluicegate_in_flight::InFlight;

use crate::budgets::Budgets;
use crate::counts::{
    ALL_WHO_DECIDE, Answer, Counted, Judgement, PolicyCounts, Sums, is_shown, of_whom, series_of,
};
use crate::events::{EventReaders, Minutely};
use crate::lanes::Timing;
use crate::metrics::{DURATION, ExportedTotals, WAIT, series};
use crate::offenders::Offenders;
use crate::rates::{Rates, Recent, Tally};
use crate::snapshot::{InFlightSnapshot, Minute, PolicySnapshot, Rate, Totals};
use crate::unusual::{AnomalyDetector, CountsSoFar};

/// The counters of a policy. They belong to the name: a replacing policy continues the counts.
pub(super) struct PolicyMeter {
    kind: Counted,
    name: String,
    clock: Arc<dyn Clock>,
    events: Arc<EventReaders>,
    counts: PolicyCounts,
    rates: Rates,
    offenders: Offenders,
    /// Made when a policy with a budget opens.
    budgets: OnceLock<Budgets>,
    waits: Timing,
    /// In the order of [`of_whom`].
    durations: [Timing; ALL_WHO_DECIDE.len()],
    told: Mutex<ExportedTotals>,
    /// Keys that were refused as suspended in the last minute.
    suspended: SeenLately,
    /// The refusals of this minute, for one line in the log when it is over.
    log: Minutely,
    unusual: AnomalyDetector,
}

/// A refusal, for the list of the most refused keys.
#[derive(Clone, Copy)]
pub(super) struct MeteredRefusal<'a> {
    pub(super) key: KeyRef<'a>,
    pub(super) answer: Answer,
    pub(super) retry_after: Option<Duration>,
}

impl PolicyMeter {
    fn new(of: &Meters, policy: &str) -> Self {
        let Meters { kind, store, clock, events, .. } = of;
        let (clock, events) = (Arc::clone(clock), Arc::clone(events));
        let now_us = clock.now_us();
        let duration = |by: DecidedBy| {
            Timing::of(series(
                DURATION,
                [("store", &**store), ("policy", policy), ("decided_by", by.as_str())],
            ))
        };
        Self {
            kind: *kind,
            name: policy.to_owned(),
            clock,
            events,
            counts: PolicyCounts::new(),
            rates: Rates::new(now_us),
            offenders: Offenders::new(),
            budgets: OnceLock::new(),
            waits: Timing::of(series(WAIT, [("policy", policy)])),
            durations: ALL_WHO_DECIDE.map(duration),
            told: Mutex::default(),
            suspended: SeenLately::default(),
            log: Minutely::new(now_us),
            unusual: AnomalyDetector::new(now_us),
        }
    }

    /// Counts a request that was decided at this time of the store's clock.
    // Inlined always, like all that it calls: the counter of an allowed request is known to the compiler then.
    #[inline(always)]
    pub(super) fn request(&self, judgement: &Judgement, is_shadow: bool, at_us: u64) {
        if self.rates.are_due(at_us) {
            return self.begin_second_with(judgement, is_shadow);
        }
        self.counts.request(judgement, is_shadow);
    }

    /// Counts the first request of a second.
    #[cold]
    fn begin_second_with(&self, judgement: &Judgement, is_shadow: bool) {
        // Uses the clock of all policies, which is not the store's.
        let now_us = self.clock.now_us();
        self.rates.turn(now_us, || Tally::of(&self.counts.sums()));
        self.turn_log_and_alarms(now_us);
        self.counts.request(judgement, is_shadow);
        if let Ok(mut told) = self.told.try_lock() {
            self.tell_to(&mut told);
        }
    }

    /// Sees the key of a request that was counted.
    #[inline]
    pub(super) fn see(&self, key: KeyRef<'_>) {
        // The second that is under way.
        self.unusual.see(key, self.rates.now_us() - 1);
    }

    /// Logs a minute that has ended, and reports alarms that begin and end.
    fn turn_log_and_alarms(&self, now_us: u64) {
        self.log.turn(&self.name, || self.counts.sums().refused(), &self.offenders, now_us);
        let counted = || {
            let sums = self.counts.sums();
            let totals = sums.totals();
            let refusals = totals.rejected + totals.impossible + totals.suspended;
            CountsSoFar { requests: sums.requests(), refusals }
        };
        for alarm in self.unusual.turn(&self.name, now_us, counted) {
            self.events.alarm(&self.expected(alarm, now_us));
        }
    }

    /// From now on the keys of the policy are remembered.
    pub(super) fn remember_keys(&self) {
        self.unusual.remember_keys(self.clock.now_us());
    }

    /// Tests whether a key came before requests became unusual; `None` if all keys count as known.
    pub(super) fn known_keys(&self) -> Option<KnownKeys> {
        self.unusual.known_keys(self.clock.now_us())
    }

    /// The current alarms.
    pub(super) fn alarms(&self) -> Vec<Alarm> {
        let now_us = self.clock.now_us();
        self.unusual.alarms().into_iter().map(|alarm| self.expected(alarm, now_us)).collect()
    }

    fn expected(&self, mut alarm: Alarm, now_us: u64) -> Alarm {
        alarm.expected = self.events.expected(now_us);
        alarm
    }

    /// The number of keys that came for the first time in the last whole minute.
    pub(super) fn new_keys(&self) -> f64 {
        self.unusual.new_keys()
    }

    /// Records a request that waits for its turn.
    pub(super) fn waits(&self, delay: Duration) {
        self.waits.record(delay, 1);
    }

    /// Counts the duration of a decision, which stands for `weight` decisions.
    pub(super) fn took(&self, by: DecidedBy, lasted: Duration, weight: usize) {
        self.durations[of_whom(by)].record(lasted, weight);
    }

    /// Counts a permit for a request in flight.
    pub(super) fn permit(&self, is_refused: bool) {
        self.request(&Judgement::permit(is_refused), false, self.clock.now_us());
    }

    /// Exports the counts that have grown, and logs a minute that has ended.
    pub(super) fn tell(&self) {
        self.turn_log_and_alarms(self.clock.now_us());
        self.tell_to(&mut lock(&self.told));
    }

    fn tell_to(&self, told: &mut ExportedTotals) {
        let Sums(sums) = self.counts.sums();
        // The counts of policies beyond the bound are shown only once there are such policies.
        let is_used = sums.iter().any(|sum| *sum > 0);
        let sums = sums.into_iter().enumerate();
        let shown = sums.filter(|(counter, sum)| *sum > 0 || is_used && is_shown(*counter));
        told.tell(shown.map(|(counter, sum)| (series_of(self.kind, &self.name, counter), sum)));
    }

    /// The number of keys that were refused as suspended in the last minute.
    pub(super) fn suspended_seen(&self) -> usize {
        self.suspended.count(self.clock.now_us())
    }

    /// Notes the key of a refused request. The thread that has the answer calls this, often in the middle of a request.
    pub(super) fn refused(&self, refusal: MeteredRefusal<'_>) {
        let MeteredRefusal { key, answer, retry_after } = refusal;
        self.offenders.refused(key, retry_after, answer == Answer::Suspended, self.rates.now_us());
        if answer == Answer::Suspended {
            self.suspended.see(key, self.clock.now_us());
        }
        tracing::debug!(
            policy = self.name,
            result = answer.as_str(),
            ?key,
            ?retry_after,
            "a request was refused"
        );
    }

    /// Notes that a suspension of this key has been ended.
    pub(super) fn released(&self, key: KeyRef<'_>) {
        self.offenders.released(key, self.clock.now_us());
    }

    /// Notes a request that was looked at by chance, with its key and the statuses of its quotas.
    pub(super) fn asked<'a>(&self, key: KeyRef<'_>, quotas: impl Iterator<Item = &'a QuotaStatus>) {
        self.offenders.asked(key, quotas, self.rates.now_us());
    }

    /// The budgets of its keys.
    pub(super) fn budgets(&self) -> &Budgets {
        self.budgets.get_or_init(Budgets::new)
    }

    /// Forgets which keys are nearest to the end of their budgets, because they have others now.
    pub(super) fn forget_budgets(&self) {
        if let Some(budgets) = self.budgets.get() {
            budgets.forget_nearest();
        }
    }

    /// The key that is listed with this reference.
    pub(super) fn listed_key(&self, reference: &str) -> Option<Key> {
        self.offenders.find(reference).or_else(|| self.budgets.get()?.find(reference))
    }

    pub(super) fn counts(&self) -> &PolicyCounts {
        &self.counts
    }

    /// The current state of a limit on requests at once that is counted here.
    pub(super) fn permits(&self, limit: &InFlight) -> InFlightSnapshot {
        let sums = self.counts.sums();
        let Recent { seconds, minutes, minute: (began, running) } =
            self.rates.recent(self.clock.now_us(), Tally::of(&sums));
        InFlightSnapshot {
            name: limit.name().to_owned(),
            permits: limit.permits(),
            in_use: limit.in_use_in_all(),
            totals: sums.totals(),
            per_second: rate(&seconds.totals),
            minutes: minutes.iter().map(|(at, tally)| minute(*at, tally)).collect(),
            minute: minute(began, &running),
        }
    }

    pub(super) fn snapshot(&self, limiter: &RateLimiter, key_quotas: usize) -> PolicySnapshot {
        let (sums, now_us) = (self.counts.sums(), self.clock.now_us());
        let Recent { seconds, minutes, minute: (began, running) } =
            self.rates.recent(now_us, Tally::of(&sums));
        self.turn_log_and_alarms(now_us);
        PolicySnapshot {
            policy: limiter.policy(),
            totals: sums.totals(),
            units: sums.units(),
            near: sums.near(),
            key_quotas,
            key_quotas_refused: sums.quotas_refused(),
            per_second: rate(&seconds.totals),
            minutes: minutes.iter().map(|(at, tally)| minute(*at, tally)).collect(),
            minute: minute(began, &running),
            waiting: limiter.waiting(),
            suspended_seen: self.suspended_seen(),
            offenders: self.offenders.most_refused(now_us),
            askers: self.offenders.most_asking(now_us),
            new_keys: self.new_keys(),
            alarms: self.alarms(),
            budgets: self.budgets.get().map(|budgets| budgets.nearest(now_us)).unwrap_or_default(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn rate(in_10_s: &Totals) -> Rate {
    let of = |count: u64| count as f64 / 10.0;
    Rate {
        allowed: of(in_10_s.allowed),
        rejected: of(in_10_s.rejected + in_10_s.impossible),
        delayed: of(in_10_s.delayed),
        suspended: of(in_10_s.suspended),
        other_refused: of(in_10_s.other_refused),
        outage: of(in_10_s.outage),
    }
}

fn minute(at_s: u64, Tally { totals, near }: &Tally) -> Minute {
    Minute {
        at: UNIX_EPOCH + Duration::from_secs(at_s),
        allowed: totals.allowed + totals.delayed,
        rejected: totals.rejected + totals.impossible + totals.suspended,
        other_refused: totals.other_refused,
        outage: totals.outage,
        near: *near,
    }
}

// The meters of all policies, by name: [`Meters`].

/// The most policies with counts of their own. Policies that are opened later count together, under [`OTHER`].
const MOST_METERS: usize = 256;

/// The name of all further policies.
const OTHER: &str = "other";

/// The counts of all policies of a store, or of all limits on requests at once. They stay when a policy is closed, because a count never
/// decreases.
pub(super) struct Meters {
    kind: Counted,
    store: String,
    clock: Arc<dyn Clock>,
    events: Arc<EventReaders>,
    other: OnceLock<Arc<PolicyMeter>>,
    by_name: Mutex<HashMap<String, Arc<PolicyMeter>>>,
}

impl Meters {
    pub(super) fn new(
        kind: Counted,
        store: &str,
        clock: &Arc<dyn Clock>,
        events: &Arc<EventReaders>,
    ) -> Self {
        let (clock, events) = (Arc::clone(clock), Arc::clone(events));
        Self {
            kind,
            store: store.to_owned(),
            clock,
            events,
            other: OnceLock::new(),
            by_name: Mutex::default(),
        }
    }

    /// The common counts of policies without counts of their own.
    fn other(&self) -> Arc<PolicyMeter> {
        Arc::clone(self.other.get_or_init(|| Arc::new(PolicyMeter::new(self, OTHER))))
    }

    /// The counts of the policy of this name; its own, if there is room.
    pub(super) fn open(&self, policy: &str) -> Arc<PolicyMeter> {
        let mut all = lock(&self.by_name);
        if let Some(meter) = all.get(policy) {
            return Arc::clone(meter);
        }
        if all.len() >= MOST_METERS {
            return self.other();
        }
        let meter = Arc::new(PolicyMeter::new(self, policy));
        all.insert(policy.to_owned(), Arc::clone(&meter));
        meter
    }

    /// All meters.
    pub(super) fn all(&self) -> Vec<Arc<PolicyMeter>> {
        let all = lock(&self.by_name);
        all.values().chain(self.other.get()).cloned().collect()
    }

    /// The counts of the policy of this name, or the common counts of policies without counts of their own.
    pub(super) fn known(&self, policy: &str) -> Arc<PolicyMeter> {
        self.get(policy).unwrap_or_else(|| self.other())
    }

    /// The counts of the policy of this name, if they are its own.
    pub(super) fn get(&self, policy: &str) -> Option<Arc<PolicyMeter>> {
        lock(&self.by_name).get(policy).cloned()
    }
}

// Keys whose state is reported from time to time, under names: [`WatchedKeys`].

/// The most keys that are watched.
const MOST_WATCHED: usize = 100;

/// The keys of a store that an application wants to see.
#[derive(Default)]
pub(super) struct WatchedKeys(Mutex<Vec<WatchedKey>>);

/// Names its policy instead of holding a limiter: the limiter would keep the store alive, which owns this.
#[derive(Clone)]
struct WatchedKey {
    name: String,
    policy: String,
    key: Key,
}

/// The share of its quota that a watched key has left.
pub(super) struct RemainingRatio {
    pub(super) name: String,
    pub(super) policy: String,
    /// 0 to 1, of the quota with the least left.
    pub(super) ratio: f64,
}

impl WatchedKeys {
    pub(super) fn add(&self, name: String, policy: String, key: Key) -> Result<(), ConfigError> {
        check_name("name for a watched key", &name)?;
        let mut all = lock(&self.0);
        let wrong = |kind, problem| Err(ConfigError::new(kind, problem).in_policy(&policy));
        if all.iter().any(|watched| watched.name == name) {
            let problem = format!("another watched key is named {name:?}: give each a name of its own");
            return wrong(ConfigErrorKind::NameTaken, problem);
        }
        if all.len() >= MOST_WATCHED {
            let problem = format!("{name:?} is one watched key too many: watch {MOST_WATCHED} at most");
            return wrong(ConfigErrorKind::Store, problem);
        }
        all.push(WatchedKey { name, policy, key });
        Ok(())
    }

    /// Peeks at the watched keys of open policies; keys without an answer are left out.
    pub(super) async fn look(&self, limiters: &Limiters) -> Vec<RemainingRatio> {
        let all = lock(&self.0).clone();
        // All peeks start before the first answer is awaited.
        let asked = all.into_iter().filter_map(|watched| {
            let answer = limiters.get(&watched.policy)?.peek(&watched.key).start();
            Some((watched, answer))
        });
        let asked: Vec<_> = asked.collect();
        let mut left = Vec::with_capacity(asked.len());
        for (WatchedKey { name, policy, .. }, answer) in asked {
            // In an outage the state is unknown.
            if let Ok(decision) = answer.await
                && decision.is_counted()
            {
                left.push(RemainingRatio { name, policy, ratio: ratio(&decision) });
            }
        }
        left
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number to look at")]
fn ratio(decision: &Decision) -> f64 {
    let each =
        decision.quotas().iter().map(|quota| quota.remaining() as f64 / quota.capacity().max(1) as f64);
    each.fold(1.0, f64::min)
}

// Counts different keys of the last minute: [`SeenLately`].

const MINUTE_US: u64 = 60_000_000;
/// The most keys that are remembered: a page or an alert only needs to know whether there are many.
const MOST_KEYS: usize = 1_024;

/// A full map is searched for old keys once in this time, because in a flood each key may be a new one.
const SEARCHED_EVERY_US: u64 = 1_000_000;

/// The digests of the keys that came in the last minute.
#[derive(Default)]
pub(super) struct SeenLately(Mutex<SeenKeys>);

#[derive(Default)]
struct SeenKeys {
    /// The time at which each key came last.
    last_us: HashMap<u64, u64>,
    searched_us: u64,
}

impl SeenLately {
    pub(super) fn see(&self, key: KeyRef<'_>, now_us: u64) {
        let key = key.digest();
        let mut seen = lock(&self.0);
        if let Some(last_us) = seen.last_us.get_mut(&key) {
            *last_us = now_us;
            return;
        }
        if seen.last_us.len() >= MOST_KEYS && now_us.abs_diff(seen.searched_us) >= SEARCHED_EVERY_US {
            seen.forget(now_us);
        }
        if seen.last_us.len() < MOST_KEYS {
            seen.last_us.insert(key, now_us);
        }
    }

    /// The number of keys that came in the last minute, at most 1,024.
    pub(super) fn count(&self, now_us: u64) -> usize {
        let mut seen = lock(&self.0);
        seen.forget(now_us);
        seen.last_us.len()
    }
}

impl SeenKeys {
    /// Forgets the keys that did not come in the last minute.
    fn forget(&mut self, now_us: u64) {
        self.searched_us = now_us;
        self.last_us.retain(|_, at_us| now_us.saturating_sub(*at_us) < MINUTE_US);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::key::Key;

    #[test]
    fn keys_count_once_for_a_minute_and_no_more_than_are_remembered() {
        let seen = SeenLately::default();
        for key in 0..3_000_u64 {
            seen.see(Key::from(key % 7).as_ref(), key);
        }
        assert_eq!((seen.count(3_000), seen.count(59_000_000), seen.count(61_000_000)), (7, 7, 0));
        for key in 0..3_000_u64 {
            seen.see(Key::from(key).as_ref(), 100_000_000);
        }
        assert_eq!(seen.count(100_000_000), MOST_KEYS);
        assert_eq!(seen.count(159_500_000), MOST_KEYS);
        seen.see(Key::from(8_888).as_ref(), 160_400_000); // not searched again within a second
        seen.see(Key::from(9_999).as_ref(), 161_000_000);
        assert_eq!(seen.count(161_000_000), 1, "old ones make room");
    }
}
