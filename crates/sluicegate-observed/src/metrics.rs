//! The metrics that an observed store exports: [`METRICS`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ptr;
use std::sync::Mutex;

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

/// Bounds for the buckets of all histograms of [`METRICS`], in seconds: from 50 us, with the 5 ms that an alert asks for, to 30 s.
///
/// Give them to the exporter. Without buckets it may render summaries, which cannot be added up over instances, and on which no alert on
/// histograms ever fires.
pub const BUCKETS: [f64; 16] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// The metrics, each with a constant for its name.
macro_rules! metrics {
    ($(#[$doc:meta])* $all:ident; $($name:ident: $kind:ident = $series:literal, $labels:tt, $help:literal;)*) => {
        $(pub(super) const $name: &str = $series;)*

        $(#[$doc])*
        pub const $all: [Metric; 42] =
            [$(Metric { name: $name, kind: MetricKind::$kind, labels: &$labels, help: $help }),*];
    };
}

metrics! {
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
    METRICS;

    REQUESTS: Counter = "rate_limit_requests_total", ["policy", "result", "decided_by", "mode"],
        "Decisions about requests, one for each policy that a request asked; a sum over policies is no number of requests.";
    ROUTE_REQUESTS: Counter = "rate_limit_route_requests_total", ["route", "result"],
        "Requests that limits decided on, by the route that they have matched.";
    ROUTE_DURATION: Histogram = "rate_limit_route_duration_seconds", ["route"],
        "How long limits took to decide on a request, by the route that it has matched.";
    UNITS: Counter = "rate_limit_units_total", ["policy", "kind"],
        "Units that were spent, refunded and charged.";
    NEAR: Counter = "rate_limit_near_total", ["policy"],
        "Requests that were allowed when less than a fifth was left.";
    BUDGET_WARNINGS: Counter = "rate_limit_budget_warnings_total", ["policy", "percent"],
        "Keys that have used this part of a budget of the calendar, once each in a period.";
    UNDECIDED: Counter = "rate_limit_undecided_total", ["reason"],
        "Requests that no store was asked about.";
    DURATION: Histogram = "rate_limit_duration_seconds", ["store", "policy", "decided_by"],
        "How long decisions took, one for each policy that a request asked.";
    WAIT: Histogram = "rate_limit_wait_seconds", ["policy"],
        "How long requests were told to wait for their turn.";
    WAITING: Gauge = "rate_limit_waiting", ["policy"],
        "Requests that wait for their turn.";
    IN_FLIGHT: Gauge = "rate_limit_in_flight", ["policy"],
        "Permits that are out.";
    ADAPTIVE_LIMIT: Gauge = "rate_limit_adaptive_limit", ["policy"],
        "Requests that a service can bear at once, by its limit that adapts.";
    ADAPTIVE_WAITING: Gauge = "rate_limit_adaptive_waiting", ["policy", "class"],
        "Requests that wait for a permit of a limit that adapts.";
    ADAPTIVE_LATENCY: Gauge = "rate_limit_adaptive_latency_seconds", ["policy"],
        "The median of what a service took lately, by its limit that adapts.";
    SHED: Counter = "rate_limit_shed_total", ["policy", "class", "mode"],
        "Requests that a limit that adapts has refused, or would have refused in shadow.";
    PERMITS_LOST: Counter = "rate_limit_permits_lost_total", ["policy"],
        "Permits that instances share, and that an instance could not renew in time.";
    SUSPENDED_SEEN: Gauge = "rate_limit_suspended_seen", ["policy"],
        "Keys that were refused here as suspended in the last minute.";
    SUSPENSIONS: Counter = "rate_limit_suspensions_total", ["policy"],
        "Suspensions of keys.";
    STORE_ERRORS: Counter = "rate_limit_store_errors_total", ["store", "kind"],
        "Calls that the store did not answer.";
    BREAKER_STATE: Gauge = "rate_limit_breaker_state", ["store"],
        "The breaker: 0 is closed, 1 half-open, 2 open.";
    BREAKER_OPENED: Counter = "rate_limit_breaker_opened_total", ["store"],
        "How often a breaker has opened; a trial that fails is no opening.";
    FALLBACK_SECONDS: Counter = "rate_limit_fallback_seconds_total", ["store"],
        "How long a part of the store was not asked.";
    UNSETTLED_KEYS: Gauge = "rate_limit_unsettled_keys", ["store"],
        "Keys whose spending the store has not been told yet.";
    DISAGREEMENTS: Counter = "rate_limit_store_disagreements_total", ["store"],
        "Quotas about which the server that decided and this process did not agree.";
    TABLE_KEYS: Gauge = "rate_limit_table_keys", ["store"],
        "Keys that have spent something, in the table in memory.";
    TABLE_SLOTS: Gauge = "rate_limit_table_slots", ["store"],
        "Keys that fit into the table in memory.";
    TABLE_EVICTIONS: Counter = "rate_limit_table_evictions_total", ["store"],
        "Keys that the table in memory forgot before they were at rest.";
    QUOTAS_IN_USE: Gauge = "rate_limit_key_quotas", ["policy"],
        "Different quotas of keys that are in use in memory, of at most 65,535.";
    QUOTAS_REFUSED: Counter = "rate_limit_key_quotas_refused_total", ["policy"],
        "Quotas of keys that were refused, because as many different ones are in use as may be.";
    LEASED_UNITS: Gauge = "rate_limit_leased_units", ["store"],
        "Units that are leased to this process and not spent.";
    LEASED_KEYS: Gauge = "rate_limit_leased_keys", ["store"],
        "Keys that this process holds leases of.";
    REFUSALS_KEPT: Gauge = "rate_limit_refusals_kept", ["store"],
        "Keys whose refusal a denial cache of this process keeps.";
    POLICY_INFO: Gauge = "rate_limit_policy_info", ["policy", "algorithm", "mode", "hidden"],
        "The policy in force; 0 for one that was.";
    QUOTA: Gauge = "rate_limit_quota", ["policy", "quota"],
        "Units of a quota in each of its periods.";
    QUOTA_PERIOD: Gauge = "rate_limit_quota_period_seconds", ["policy", "quota"],
        "The period of a quota.";
    REMAINING_RATIO: Gauge = "rate_limit_remaining_ratio", ["policy", "watched"],
        "The part that a watched key has left, of the quota that has the least.";
    NEW_KEYS: Gauge = "rate_limit_new_keys", ["policy"],
        "Keys that came for the first time in the last minute.";
    ALARM: Gauge = "rate_limit_alarm", ["policy", "cause"],
        "Whether something is unusual about requests, and not expected.";
    FORWARDED_FAULTS: Counter = "rate_limit_forwarded_faults_total", ["fault"],
        "Forwarded headers of trusted proxies that did not lead to a client.";
    EVENTS_DROPPED: Counter = "rate_limit_events_dropped_total", ["store"],
        "Events that did not fit into the queue of whoever takes them.";
    _RELOADS: Counter = "rate_limit_rules_reloads_total", ["result"],
        "Rules files that took effect, and those that were wrong and changed nothing.";
    _LOADED: Gauge = "rate_limit_rules_loaded_timestamp_seconds", [],
        "When the rules that are in force took effect, in seconds of Unix time.";
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

/// For totals that only grow, the part that was already exported to the recorder, by series.
#[derive(Default)]
pub(super) struct ExportedTotals {
    recorder: usize,
    each: HashMap<Key, (Counter, u64)>,
}

impl ExportedTotals {
    /// Exports the increase of these totals. A series begins when its total comes first, perhaps with zero, so that its first increase is
    /// visible.
    pub(super) fn tell(&mut self, totals: impl IntoIterator<Item = (Key, u64)>) {
        let recorder = recorder();
        if self.recorder != recorder {
            *self = Self { recorder, each: HashMap::new() };
            metrics::with_recorder(describe);
        }
        for (key, total) in totals {
            let (counter, told) = self.each.entry(key).or_insert_with_key(|key| {
                (metrics::with_recorder(|recorder| recorder.register_counter(key, &METADATA)), 0)
            });
            counter.increment(total.saturating_sub(*told));
            *told = total.max(*told);
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
