//! The metrics that an observed store exports: [`METRICS`].

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use std::{array, ptr};

use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder};
use sluicegate_core::error::{ConfigError, ConfigErrorKind};
use sluicegate_core::policy::check_name;
use sluicegate_core::support::lock;

/// A metric that an observed store exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// Its labels. Each has few values; a key is never one of them.
    pub labels: &'static [&'static str],
    /// Its meaning in one sentence, used as its HELP.
    pub help: &'static str,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// Counts of values by size.
    Histogram,
}

pub(super) const REQUESTS: &str = "rate_limit_requests_total";
pub(super) const ROUTE_REQUESTS: &str = "rate_limit_route_requests_total";
pub(super) const ROUTE_DURATION: &str = "rate_limit_route_duration_seconds";
pub(super) const UNITS: &str = "rate_limit_units_total";
pub(super) const NEAR: &str = "rate_limit_near_total";
pub(super) const BUDGET_WARNINGS: &str = "rate_limit_budget_warnings_total";
pub(super) const UNDECIDED: &str = "rate_limit_undecided_total";
pub(super) const DURATION: &str = "rate_limit_duration_seconds";
pub(super) const WAIT: &str = "rate_limit_wait_seconds";
pub(super) const WAITING: &str = "rate_limit_waiting";
pub(super) const IN_FLIGHT: &str = "rate_limit_in_flight";
pub(super) const ADAPTIVE_LIMIT: &str = "rate_limit_adaptive_limit";
pub(super) const ADAPTIVE_WAITING: &str = "rate_limit_adaptive_waiting";
pub(super) const ADAPTIVE_LATENCY: &str = "rate_limit_adaptive_latency_seconds";
pub(super) const SHED: &str = "rate_limit_shed_total";
pub(super) const PERMITS_LOST: &str = "rate_limit_permits_lost_total";
pub(super) const SUSPENDED_SEEN: &str = "rate_limit_suspended_seen";
pub(super) const SUSPENSIONS: &str = "rate_limit_suspensions_total";
pub(super) const STORE_ERRORS: &str = "rate_limit_store_errors_total";
pub(super) const BREAKER_STATE: &str = "rate_limit_breaker_state";
pub(super) const BREAKER_OPENED: &str = "rate_limit_breaker_opened_total";
pub(super) const FALLBACK_SECONDS: &str = "rate_limit_fallback_seconds_total";
pub(super) const UNSETTLED_KEYS: &str = "rate_limit_unsettled_keys";
pub(super) const DISAGREEMENTS: &str = "rate_limit_store_disagreements_total";
pub(super) const TABLE_KEYS: &str = "rate_limit_table_keys";
pub(super) const TABLE_SLOTS: &str = "rate_limit_table_slots";
pub(super) const TABLE_EVICTIONS: &str = "rate_limit_table_evictions_total";
pub(super) const QUOTAS_IN_USE: &str = "rate_limit_key_quotas";
pub(super) const QUOTAS_REFUSED: &str = "rate_limit_key_quotas_refused_total";
pub(super) const LEASED_UNITS: &str = "rate_limit_leased_units";
pub(super) const LEASED_KEYS: &str = "rate_limit_leased_keys";
pub(super) const REFUSALS_KEPT: &str = "rate_limit_refusals_kept";
pub(super) const POLICY_INFO: &str = "rate_limit_policy_info";
pub(super) const QUOTA: &str = "rate_limit_quota";
pub(super) const QUOTA_PERIOD: &str = "rate_limit_quota_period_seconds";
pub(super) const REMAINING_RATIO: &str = "rate_limit_remaining_ratio";
pub(super) const FORWARDED_FAULTS: &str = "rate_limit_forwarded_faults_total";
pub(super) const NEW_KEYS: &str = "rate_limit_new_keys";
pub(super) const ALARM: &str = "rate_limit_alarm";
pub(super) const EVENTS_DROPPED: &str = "rate_limit_events_dropped_total";

/// Bounds for the buckets of all histograms of [`METRICS`], in seconds: from 50 us, with the 5 ms that an alert asks for, to 30 s.
///
/// Give them to the exporter. Without buckets it may render summaries, which cannot be added up over instances, and on which no alert on
/// histograms ever fires.
pub const BUCKETS: [f64; 16] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// All metrics of an observed store.
///
/// | metric | kind | labels |
/// |---|---|---|
/// | `rate_limit_requests_total` | counter | `policy`, `result` ([`Answer`](crate::Answer)), `decided_by` (`store`, `fallback`, `lease`, `cache`, `outage`; `permits` for a limit on requests at once), `mode` (`enforce`, `shadow`). A request is in the series of each policy that it asked: a sum over policies is no number of requests |
/// | `rate_limit_route_requests_total` | counter | `route` (the pattern that a request has matched), `result`; reported by layers that count routes |
/// | `rate_limit_route_duration_seconds` | histogram | `route`; reported by layers that count routes; includes the look-up of keys and tiers, but not the wait for a turn |
/// | `rate_limit_units_total` | counter | `policy`, `kind` (`spent`, `refunded`, `charged`) |
/// | `rate_limit_near_total` | counter | `policy` |
/// | `rate_limit_budget_warnings_total` | counter | `policy`, `percent` (`50`, `80`, `100`); see [`Event::BudgetUsed`](sluicegate_core::store::Event::BudgetUsed) |
/// | `rate_limit_undecided_total` | counter | `reason` ([`Undecided`](sluicegate_core::store::Undecided)) |
/// | `rate_limit_duration_seconds` | histogram | `store`, `policy`, `decided_by`; one for each policy that a request asked |
/// | `rate_limit_wait_seconds` | histogram | `policy` |
/// | `rate_limit_waiting`, `rate_limit_in_flight`, `rate_limit_suspended_seen` | gauge | `policy` |
/// | `rate_limit_adaptive_limit`, `rate_limit_adaptive_latency_seconds` | gauge | `policy`; of limits that [adapt](sluicegate_in_flight::InFlight::adaptive) |
/// | `rate_limit_adaptive_waiting` | gauge | `policy`, `class` ([`Class`](sluicegate_in_flight::Class)) |
/// | `rate_limit_shed_total` | counter | `policy`, `class`, `mode` (`enforce`, `shadow`) |
/// | `rate_limit_permits_lost_total` | counter | `policy`; of permits that instances [share](sluicegate_in_flight::InFlightBuilder::on) |
/// | `rate_limit_suspensions_total` | counter | `policy` |
/// | `rate_limit_store_errors_total` | counter | `store`, `kind` (`timeout`, `unavailable`, `protocol`) |
/// | `rate_limit_breaker_state` | gauge | `store`; 0 closed, 1 half-open, 2 open |
/// | `rate_limit_breaker_opened_total`, `rate_limit_fallback_seconds_total` | counter | `store` |
/// | `rate_limit_unsettled_keys`, `rate_limit_table_keys`, `rate_limit_table_slots` | gauge | `store` |
/// | `rate_limit_table_evictions_total`, `rate_limit_store_disagreements_total` | counter | `store` |
/// | `rate_limit_key_quotas` | gauge | `policy`; at most 65,535 |
/// | `rate_limit_key_quotas_refused_total` | counter | `policy` |
/// | `rate_limit_leased_units`, `rate_limit_leased_keys`, `rate_limit_refusals_kept` | gauge | `store` |
/// | `rate_limit_policy_info` | gauge | `policy`, `algorithm` (all of them, as `gcra, fixed-window`), `mode` (`enforce`, `shadow`, `off`), `hidden`; 1, and 0 for earlier values of the labels |
/// | `rate_limit_quota`, `rate_limit_quota_period_seconds` | gauge | `policy`, `quota` (its id, or its place) |
/// | `rate_limit_remaining_ratio` | gauge | `policy`, `watched` |
/// | `rate_limit_new_keys` | gauge | `policy`; in the last whole minute |
/// | `rate_limit_alarm` | gauge | `policy`, `cause` ([`AlarmCause`](sluicegate_core::store::AlarmCause)); 1 while it lasts and is not expected |
/// | `rate_limit_forwarded_faults_total` | counter | `fault` ([`ForwardedFault`](sluicegate_core::store::ForwardedFault)) |
/// | `rate_limit_events_dropped_total` | counter | `store` |
/// | `rate_limit_rules_reloads_total` | counter | `result` (`loaded`, `wrong`); reported by rules files |
/// | `rate_limit_rules_loaded_timestamp_seconds` | gauge | none; reported by rules files |
pub const METRICS: [Metric; 42] = {
    use MetricKind::{Counter, Gauge, Histogram};
    [
        metric(
            REQUESTS,
            Counter,
            &["policy", "result", "decided_by", "mode"],
            "Decisions about requests, one for each policy that a request asked; a sum over policies is no number of requests.",
        ),
        metric(
            ROUTE_REQUESTS,
            Counter,
            &["route", "result"],
            "Requests that limits decided on, by the route that they have matched.",
        ),
        metric(
            ROUTE_DURATION,
            Histogram,
            &["route"],
            "How long limits took to decide on a request, by the route that it has matched.",
        ),
        metric(UNITS, Counter, &["policy", "kind"], "Units that were spent, refunded and charged."),
        metric(NEAR, Counter, &["policy"], "Requests that were allowed when less than a fifth was left."),
        metric(
            BUDGET_WARNINGS,
            Counter,
            &["policy", "percent"],
            "Keys that have used this part of a budget of the calendar, once each in a period.",
        ),
        metric(UNDECIDED, Counter, &["reason"], "Requests that no store was asked about."),
        metric(
            DURATION,
            Histogram,
            &["store", "policy", "decided_by"],
            "How long decisions took, one for each policy that a request asked.",
        ),
        metric(WAIT, Histogram, &["policy"], "How long requests were told to wait for their turn."),
        metric(WAITING, Gauge, &["policy"], "Requests that wait for their turn."),
        metric(IN_FLIGHT, Gauge, &["policy"], "Permits that are out."),
        metric(
            ADAPTIVE_LIMIT,
            Gauge,
            &["policy"],
            "Requests that a service can bear at once, by its limit that adapts.",
        ),
        metric(
            ADAPTIVE_WAITING,
            Gauge,
            &["policy", "class"],
            "Requests that wait for a permit of a limit that adapts.",
        ),
        metric(
            ADAPTIVE_LATENCY,
            Gauge,
            &["policy"],
            "The median of what a service took lately, by its limit that adapts.",
        ),
        metric(
            SHED,
            Counter,
            &["policy", "class", "mode"],
            "Requests that a limit that adapts has refused, or would have refused in shadow.",
        ),
        metric(
            PERMITS_LOST,
            Counter,
            &["policy"],
            "Permits that instances share, and that an instance could not renew in time.",
        ),
        metric(
            SUSPENDED_SEEN,
            Gauge,
            &["policy"],
            "Keys that were refused here as suspended in the last minute.",
        ),
        metric(SUSPENSIONS, Counter, &["policy"], "Suspensions of keys."),
        metric(STORE_ERRORS, Counter, &["store", "kind"], "Calls that the store did not answer."),
        metric(BREAKER_STATE, Gauge, &["store"], "The breaker: 0 is closed, 1 half-open, 2 open."),
        metric(
            BREAKER_OPENED,
            Counter,
            &["store"],
            "How often a breaker has opened; a trial that fails is no opening.",
        ),
        metric(FALLBACK_SECONDS, Counter, &["store"], "How long a part of the store was not asked."),
        metric(UNSETTLED_KEYS, Gauge, &["store"], "Keys whose spending the store has not been told yet."),
        metric(
            DISAGREEMENTS,
            Counter,
            &["store"],
            "Quotas about which the server that decided and this process did not agree.",
        ),
        metric(TABLE_KEYS, Gauge, &["store"], "Keys that have spent something, in the table in memory."),
        metric(TABLE_SLOTS, Gauge, &["store"], "Keys that fit into the table in memory."),
        metric(
            TABLE_EVICTIONS,
            Counter,
            &["store"],
            "Keys that the table in memory forgot before they were at rest.",
        ),
        metric(
            QUOTAS_IN_USE,
            Gauge,
            &["policy"],
            "Different quotas of keys that are in use in memory, of at most 65,535.",
        ),
        metric(
            QUOTAS_REFUSED,
            Counter,
            &["policy"],
            "Quotas of keys that were refused, because as many different ones are in use as may be.",
        ),
        metric(LEASED_UNITS, Gauge, &["store"], "Units that are leased to this process and not spent."),
        metric(LEASED_KEYS, Gauge, &["store"], "Keys that this process holds leases of."),
        metric(REFUSALS_KEPT, Gauge, &["store"], "Keys whose refusal a denial cache of this process keeps."),
        metric(
            POLICY_INFO,
            Gauge,
            &["policy", "algorithm", "mode", "hidden"],
            "The policy in force; 0 for one that was.",
        ),
        metric(QUOTA, Gauge, &["policy", "quota"], "Units of a quota in each of its periods."),
        metric(QUOTA_PERIOD, Gauge, &["policy", "quota"], "The period of a quota."),
        metric(
            REMAINING_RATIO,
            Gauge,
            &["policy", "watched"],
            "The part that a watched key has left, of the quota that has the least.",
        ),
        metric(NEW_KEYS, Gauge, &["policy"], "Keys that came for the first time in the last minute."),
        metric(
            ALARM,
            Gauge,
            &["policy", "cause"],
            "Whether something is unusual about requests, and not expected.",
        ),
        metric(
            FORWARDED_FAULTS,
            Counter,
            &["fault"],
            "Forwarded headers of trusted proxies that did not lead to a client.",
        ),
        metric(
            EVENTS_DROPPED,
            Counter,
            &["store"],
            "Events that did not fit into the queue of whoever takes them.",
        ),
        metric(
            "rate_limit_rules_reloads_total",
            Counter,
            &["result"],
            "Rules files that took effect, and those that were wrong and changed nothing.",
        ),
        metric(
            "rate_limit_rules_loaded_timestamp_seconds",
            Gauge,
            &[],
            "When the rules that are in force took effect, in seconds of Unix time.",
        ),
    ]
};

const fn metric(
    name: &'static str,
    kind: MetricKind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, help }
}

// Numbers for the recorder of the `metrics` facade: the increase of totals, [`ExportedTotals`], and gauges, [`Gauges`].
//
// A handle that is made before a recorder is installed never records. So both types remember their recorder, and
// export everything to a new recorder from the beginning.

static METADATA: Metadata<'static> = Metadata::new("sluicegate", Level::INFO, None);

/// A number that identifies the installed recorder.
pub(super) fn recorder() -> usize {
    metrics::with_recorder(|recorder| ptr::from_ref(recorder).addr())
}

fn describe(recorder: &dyn Recorder) {
    for metric in METRICS {
        let (name, help) = (metric.name.into(), metric.help.into());
        match metric.kind {
            MetricKind::Counter => recorder.describe_counter(name, None, help),
            MetricKind::Gauge => recorder.describe_gauge(name, None, help),
            MetricKind::Histogram => recorder.describe_histogram(name, None, help),
        }
    }
}

/// The series of a metric with these labels.
pub(super) fn series<'a>(
    name: &'static str,
    labels: impl IntoIterator<Item = (&'static str, &'a str)>,
) -> Key {
    let labels: Vec<Label> =
        labels.into_iter().map(|(label, value)| Label::new(label, value.to_owned())).collect();
    Key::from_parts(name, labels)
}

pub(super) fn histogram(key: &Key) -> Histogram {
    metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
}

/// For totals that only grow, the part that was already exported to the recorder.
pub(super) struct ExportedTotals<const TOTALS: usize> {
    recorder: usize,
    each: [(Option<Counter>, u64); TOTALS],
}

impl<const TOTALS: usize> ExportedTotals<TOTALS> {
    pub(super) fn nobody() -> Self {
        Self::to(0)
    }

    fn to(recorder: usize) -> Self {
        Self { recorder, each: array::from_fn(|_| (None, 0)) }
    }

    /// Exports the increase of the totals. A series begins when its total is no longer zero; if it is `shown`, it begins at once, so
    /// that its first increase is visible.
    pub(super) fn tell(
        &mut self,
        totals: &[u64; TOTALS],
        shown: impl Fn(usize) -> bool,
        series: impl Fn(usize) -> Key,
    ) {
        let recorder = recorder();
        if self.recorder != recorder {
            *self = Self::to(recorder);
            metrics::with_recorder(describe);
        }
        for (index, ((counter, told), total)) in self.each.iter_mut().zip(totals).enumerate() {
            let new = total.saturating_sub(*told);
            if new == 0 && (counter.is_some() || !shown(index)) {
                continue;
            }
            let bind = || {
                let key = series(index);
                metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
            };
            counter.get_or_insert_with(bind).increment(new);
            *told = *total;
        }
    }
}

/// Gauges that come and go with their subjects.
#[derive(Default)]
pub(super) struct Gauges(HashSet<Key>);

impl Gauges {
    /// Sets these gauges. Earlier gauges that are not among them become NaN; the info of a policy that
    /// is no longer in force, and an alarm that is over, become 0.
    pub(super) fn tell(&mut self, all: impl IntoIterator<Item = (Key, f64)>) {
        let mut before = std::mem::take(&mut self.0);
        metrics::with_recorder(|recorder| {
            for (key, value) in all {
                recorder.register_gauge(&key, &METADATA).set(value);
                before.remove(&key);
                self.0.insert(key);
            }
            for key in before {
                let gone = if [POLICY_INFO, ALARM].contains(&key.name()) { 0.0 } else { f64::NAN };
                recorder.register_gauge(&key, &METADATA).set(gone);
            }
        });
    }
}

// The names of observed stores, unique in this process: [`Name`].

/// A name that no other observed store of this process has, until it is dropped.
#[derive(Debug)]
pub(super) struct Name(String);

static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

impl Name {
    pub(super) fn take(name: String) -> Result<Self, ConfigError> {
        check_name("name for an observed store", &name)?;
        let is_free = lock(&TAKEN).insert(name.clone());
        if is_free {
            return Ok(Self(name));
        }
        let problem =
            format!("another observed store of this process is named {name:?}: give each a name of its own");
        Err(ConfigError::new(ConfigErrorKind::NameTaken, problem))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        lock(&TAKEN).remove(&self.0);
    }
}
