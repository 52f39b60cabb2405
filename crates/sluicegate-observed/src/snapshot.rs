//! A store and its policies at one moment: [`Snapshot`], for pages and tests.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::policy::Policy;
use sluicegate_core::store::{Alarm, BreakerState, Undecided};
use sluicegate_in_flight::{AdaptiveStatus, SharedStatus};

use crate::budgets::KeyBudget;
use crate::events::PastEvent;
use crate::offenders::{Asker, Offender};

/// A store and its policies at one moment; see [`Observed::snapshot`](crate::Observed::snapshot). The numbers are those of this process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// The time of the snapshot.
    pub at: SystemTime,
    /// The time since the store was first observed.
    pub uptime: Duration,
    /// The stores.
    pub stores: Vec<StoreSnapshot>,
    /// The policies that are open and have counts of their own, by name.
    pub policies: Vec<PolicySnapshot>,
    /// The limits on requests at once that are [counted](crate::Observed::in_flight) here, by name.
    pub in_flight: Vec<InFlightSnapshot>,
    /// Those of them that [adapt](sluicegate_in_flight::InFlight::adaptive).
    pub adaptive: Vec<(String, AdaptiveStatus)>,
    /// Those of them whose permits instances [share](sluicegate_in_flight::InFlightBuilder::on).
    pub shared: Vec<(String, SharedStatus)>,
    /// The latest events, the youngest last: at most 40 of each kind, and of those that operators and clients have caused.
    pub events: Vec<PastEvent>,
}

/// The state of a store. Counts are since it was made.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StoreSnapshot {
    /// Its name.
    pub name: String,
    /// Whether it decides.
    pub state: StoreState,
    /// The breaker of the part in the worst state.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::breaker"))]
    pub breaker: BreakerState,
    /// The number of times that a breaker has opened; a trial that fails is no opening.
    pub opened: u64,
    /// Calls that it did not answer.
    pub errors: StoreErrors,
    /// The time within which 99 of 100 of its answers came in the last one to two minutes, at most an eighth too high; `None` if none
    /// was timed. Decisions that are made without it do not count.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "p99_ms", serialize_with = "json::millis", skip_serializing_if = "Option::is_none")
    )]
    pub p99: Option<Duration>,
    /// The time of its last answer that was timed: each one of a remote store, one in 64 of a store in memory.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::moment_if_any"))]
    pub answered_at: Option<SystemTime>,
    /// The number of instances among which an outage divides each quota; `None` if nothing around the store divides them.
    pub replicas: Option<u64>,
    /// Decisions that were made without it.
    pub fallback_decisions: u64,
    /// The total time in which a part of the store was not asked.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "fallback_seconds", serialize_with = "sluicegate_in_flight::json::seconds")
    )]
    pub in_fallback: Duration,
    /// Keys with spending that the store does not know of yet.
    pub unsettled_keys: usize,
    /// Keys that have spent something, in its table in memory or in that of its fallback.
    pub keys: usize,
    /// The number of keys that fit into the table.
    pub slots: usize,
    /// Keys that were forgotten before they were at rest, because there was no room.
    pub evictions: u64,
    /// Events that did not fit into the queues of [`Observed::events`](crate::Observed::events).
    pub events_dropped: u64,
    /// Requests that its layers let in or refused without asking a store, by reason, if there were any.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::by_reason"))]
    pub undecided: Vec<(Undecided, u64)>,
}

/// A limit on requests at once at one moment. Counts are since its name was first counted.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct InFlightSnapshot {
    /// Its name.
    pub name: String,
    /// The number of permits: for each key, or for all together if it adapts.
    pub permits: u64,
    /// Permits in use on this instance, for all keys.
    pub in_use: u64,
    /// Requests that got a permit, and requests that were refused.
    pub totals: Totals,
    /// Requests a second, as the mean of the last 10 seconds.
    pub per_second: Rate,
    /// The last 60 whole minutes, the oldest first.
    pub minutes: Vec<Minute>,
    /// The current minute.
    pub minute: Minute,
}

/// Whether a store decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum StoreState {
    /// It decides.
    #[default]
    Ok,
    /// A part of it is not asked: policies decide by their [`OnOutage`](sluicegate_core::OnOutage).
    Fallback,
    /// It did not answer the last call.
    Down,
}

/// Calls that a store did not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StoreErrors {
    /// Not in time.
    pub timeout: u64,
    /// It could not be reached.
    pub unavailable: u64,
    /// Its reply was invalid.
    pub protocol: u64,
}

/// A policy at one moment. Counts are since its name was first opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicySnapshot {
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// Decisions, by result.
    pub totals: Totals,
    /// Units that were spent and given back.
    pub units: UnitTotals,
    /// Requests that were allowed when less than a fifth was left. [`minutes`](Self::minutes) have those of the last hour.
    pub near: u64,
    /// Decisions a second, as the mean of the last 10 seconds.
    pub per_second: Rate,
    /// The last 60 whole minutes, the oldest first.
    pub minutes: Vec<Minute>,
    /// The current minute.
    pub minute: Minute,
    /// Requests that wait for their turn now.
    pub waiting: usize,
    /// Keys that were refused as suspended in the last minute.
    pub suspended_seen: usize,
    /// Different quotas that keys have [brought](sluicegate_core::RateLimiter::with_quotas) and that are in use in memory, of at most 65,535.
    pub key_quotas: usize,
    /// Quotas of keys that were refused because too many different ones were in use.
    pub key_quotas_refused: u64,
    /// The keys that were refused most in the last 5 to 10 minutes, the one with the most certain refusals first. All keys with
    /// more than one in 64 of the refusals are among them.
    pub offenders: Vec<Offender>,
    /// The keys that asked most in the last 5 to 10 minutes, refused or not, found by looking at one ask in 64.
    pub askers: Vec<Asker>,
    /// Keys that came for the first time in the last whole minute; an estimate if more than 448 keys come in a day.
    pub new_keys: f64,
    /// The current alarms.
    pub alarms: Vec<Alarm>,
    /// The keys that have used most of their [budgets](sluicegate_core::Quota::in_calendar) in the periods that are under way, the one
    /// nearest to the end first: at most 16, of those that this process has decided about.
    pub budgets: Vec<KeyBudget>,
}

/// Decisions, by result: see [`Answer`](crate::Answer).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Totals {
    /// Let in at once.
    pub allowed: u64,
    /// Let in after a wait.
    pub delayed: u64,
    /// Refused until later, by this policy.
    pub rejected: u64,
    /// Refused because they cost more than can ever pass at once.
    pub impossible: u64,
    /// Refused because the key is suspended.
    pub suspended: u64,
    /// Refused by another policy of the request, while this one had room.
    pub other_refused: u64,
    /// Refused because the store gave no answer.
    pub outage: u64,
    /// Not decided because of a mistake in the program.
    pub error: u64,
}

impl Totals {
    /// The difference to the earlier counts.
    pub(super) fn since(&self, then: &Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(then.allowed),
            delayed: self.delayed.saturating_sub(then.delayed),
            rejected: self.rejected.saturating_sub(then.rejected),
            impossible: self.impossible.saturating_sub(then.impossible),
            suspended: self.suspended.saturating_sub(then.suspended),
            other_refused: self.other_refused.saturating_sub(then.other_refused),
            outage: self.outage.saturating_sub(then.outage),
            error: self.error.saturating_sub(then.error),
        }
    }
}

/// Units of a policy, since its name was first opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnitTotals {
    /// Spent by requests.
    pub spent: u64,
    /// Given back, never more than were spent.
    pub refunded: u64,
    /// Charged after the fact.
    pub charged: u64,
}

/// Decisions a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Rate {
    /// Let in at once.
    pub allowed: f64,
    /// Refused by this policy, for now or forever.
    pub rejected: f64,
    /// Let in after a wait.
    pub delayed: f64,
    /// Refused because the key is suspended.
    pub suspended: f64,
    /// Refused by another policy of the request, while this one had room.
    pub other_refused: f64,
    /// Refused because the store gave no answer.
    pub outage: f64,
}

/// One minute of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Minute {
    /// When it began.
    #[cfg_attr(feature = "serde", serde(serialize_with = "json::moment"))]
    pub at: SystemTime,
    /// Let in, at once or after a wait.
    pub allowed: u64,
    /// Refused by this policy, or because the key is suspended.
    pub rejected: u64,
    /// Refused by another policy of the request, while this one had room.
    pub other_refused: u64,
    /// Refused because the store gave no answer.
    pub outage: u64,
    /// Let in, and left less than a fifth.
    pub near: u64,
}

impl Default for Minute {
    /// A minute without requests, at the epoch.
    fn default() -> Self {
        Self { at: UNIX_EPOCH, allowed: 0, rejected: 0, other_refused: 0, outage: 0, near: 0 }
    }
}

/// The parts of a snapshot whose JSON is not that of their type: moments, times and words.
#[cfg(feature = "serde")]
mod json {
    use std::time::{Duration, SystemTime};

    use jiff::Timestamp;
    use serde::Serializer;
    use sluicegate_core::store::{BreakerState, Undecided};

    /// Writes a moment in RFC 3339, in UTC and whole milliseconds: `2026-11-21T15:00:00.000Z`.
    pub(super) fn moment<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        let at = Timestamp::try_from(*at).unwrap_or_default().max(Timestamp::UNIX_EPOCH);
        serializer.collect_str(&format_args!("{at:.3}"))
    }

    /// As [`moment`], or `null`.
    pub(super) fn moment_if_any<S: Serializer>(
        at: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => moment(at, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Writes milliseconds, or `null`.
    pub(super) fn millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => sluicegate_in_flight::json::millis(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn breaker<S: Serializer>(state: &BreakerState, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match state {
            BreakerState::Closed => "closed",
            BreakerState::HalfOpen => "half_open",
            BreakerState::Open => "open",
        })
    }

    /// Writes an object with the count of each reason.
    pub(super) fn by_reason<S: Serializer>(
        counts: &[(Undecided, u64)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(counts.iter().map(|(why, count)| (why.as_str(), count)))
    }
}
