//! The state of a limit that adapts: [`AdaptiveStatus`].

use std::collections::VecDeque;
use std::time::Duration;

use sluicegate_core::policy::PolicyMode;

use crate::adaptive::{LimitAlgorithm, LimitBounds};

/// The state of a limit that adapts; made by [`InFlight::status`](crate::InFlight::status).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AdaptiveStatus {
    /// The way in which the number follows the service.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::json::word"))]
    pub algorithm: LimitAlgorithm,
    /// Whether it is enforced.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::json::word"))]
    pub mode: PolicyMode,
    /// The bounds within which it adapts.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub bounds: LimitBounds,
    /// The number of requests that may be under way now.
    pub limit: u64,
    /// The number of requests in progress.
    pub in_flight: u64,
    /// The number of waiting requests, by [class](crate::Class::ALL).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::json::by_class"))]
    pub waiting: [usize; 4],
    /// The number of requests that were refused since the limit was built, by [class](crate::Class::ALL): because there was no
    /// room to wait, because they reached their longest wait, or because a more important one took their place.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::json::by_class"))]
    pub shed: [u64; 4],
    /// The number of requests that would have been refused while the limit was in [`Shadow`](PolicyMode::Shadow), by class.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::json::by_class"))]
    pub would_shed: [u64; 4],
    /// The median latency of the last window; zero before the first window.
    #[cfg_attr(feature = "serde", serde(rename = "latency_ms", serialize_with = "crate::json::millis"))]
    pub latency: Duration,
    /// The last hour, the oldest first.
    #[cfg_attr(feature = "serde", serde(rename = "minutes", serialize_with = "crate::json::minutes"))]
    pub history: Vec<AdaptiveMoment>,
}

impl AdaptiveStatus {
    /// The last moment of each of the last 60 minutes, the oldest first; `None` for a minute without one.
    pub fn minutes(&self) -> Vec<Option<AdaptiveMoment>> {
        minutes_of(&self.history)
    }
}

/// The last moment of each of the last 60 minutes of a history, the oldest first.
pub(super) fn minutes_of(history: &[AdaptiveMoment]) -> Vec<Option<AdaptiveMoment>> {
    let mut minutes = vec![None; 60];
    for moment in history {
        let minutes_ago = usize::try_from(moment.ago.as_secs() / 60).unwrap_or(usize::MAX);
        if let Some(minute) = minutes.iter_mut().rev().nth(minutes_ago) {
            *minute = Some(*moment);
        }
    }
    minutes
}

/// A moment of the last hour of a limit that adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct AdaptiveMoment {
    /// The time that has passed since.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub ago: Duration,
    /// The number of requests that could be under way.
    pub limit: u64,
    /// The median latency.
    #[cfg_attr(feature = "serde", serde(rename = "latency_ms", serialize_with = "crate::json::millis"))]
    pub latency: Duration,
}

/// The state of permits that instances share, as known to this instance; made by
/// [`InFlight::shared_status`](crate::InFlight::shared_status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SharedStatus {
    /// The number of permits of each key, for all instances together.
    pub permits: u64,
    /// The time after which the permits of a silent instance are given to others.
    #[cfg_attr(feature = "serde", serde(rename = "lease_seconds", serialize_with = "crate::json::seconds"))]
    pub lease: Duration,
    /// The number of permits in use on this instance, for all keys.
    pub in_use: u64,
    /// The number of keys with permits in use on this instance.
    pub keys: usize,
    /// The number of requests that wait here for permits to come back.
    pub waiting: usize,
    /// The permits in use on all instances of the key with the fewest left, among keys with permits in use here. As of the
    /// store's last answer; 0 if no permit is in use here.
    pub held: u64,
    /// The number of instances that hold these permits, including this one.
    pub instances: u64,
    /// The time since the store's last answer; `None` before the first answer. While permits are in use, the store is asked three times in
    /// each lease.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "answered_seconds", serialize_with = "crate::json::seconds_if_any")
    )]
    pub answered: Option<Duration>,
    /// Whether the last call to the store had no answer.
    #[cfg_attr(feature = "serde", serde(rename = "store", serialize_with = "crate::json::ok_or_down"))]
    pub is_down: bool,
    /// The number of permits that this instance has [lost](crate::Permit::is_lost) so far.
    pub lost: u64,
}

/// The rate at which permits come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrainRate {
    since_us: u64,
    ended: u64,
    /// The time for each permit in the span before this one.
    each_us: Option<u64>,
}

/// The length of the spans over which the rate is measured.
const SPAN_US: u64 = 1_000_000;

impl DrainRate {
    pub(super) fn since(now_us: u64) -> Self {
        Self { since_us: now_us, ended: 0, each_us: None }
    }

    pub(super) fn end(&mut self, now_us: u64) {
        self.ended += 1;
        let spent_us = now_us.saturating_sub(self.since_us);
        if spent_us >= SPAN_US {
            *self = Self { since_us: now_us, ended: 0, each_us: Some(spent_us / self.ended) };
        }
    }

    /// The time until this many permits have come back, as an estimate: at most a minute, and longer while no permit comes back.
    pub(super) fn of(&self, permits: u64, now_us: u64) -> u64 {
        let now_each_us = now_us.saturating_sub(self.since_us) / (self.ended + 1);
        let each_us = self.each_us.map_or(now_each_us, |each_us| each_us.max(now_each_us));
        permits.saturating_mul(each_us).min(60 * SPAN_US)
    }
}

/// Limits and latencies of the last hour.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    moments: VecDeque<(u64, u64, Duration)>,
}

impl History {
    const EVERY_US: u64 = 10_000_000;
    const MOST: usize = 360;

    pub(super) fn add(&mut self, now_us: u64, limit: u64, latency: Duration) {
        let last = self.moments.back().map(|(at_us, ..)| *at_us);
        if last.is_some_and(|at_us| now_us.saturating_sub(at_us) < Self::EVERY_US) {
            return;
        }
        if self.moments.len() == Self::MOST {
            self.moments.pop_front();
        }
        self.moments.push_back((now_us, limit, latency));
    }

    pub(super) fn until(&self, now_us: u64) -> Vec<AdaptiveMoment> {
        let hour_us = Self::EVERY_US * Self::MOST as u64;
        let moments = self.moments.iter().map(|(at_us, limit, latency)| AdaptiveMoment {
            ago: Duration::from_micros(now_us.saturating_sub(*at_us)),
            limit: *limit,
            latency: *latency,
        });
        moments.filter(|moment| moment.ago <= Duration::from_micros(hour_us)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ahead_drains_as_fast_as_permits_have_come_back() {
        let mut drain = DrainRate::since(0);
        (1..=100).for_each(|end| drain.end(end * 10_000));
        assert_eq!(drain.of(50, 1_000_000), 500_000, "100 a second have come back");
        assert_eq!(drain.of(50, 5_000_000), 60_000_000, "and then none for four seconds");
        assert_eq!(DrainRate::since(0).of(50, 0), 0);
    }

    #[test]
    fn an_hour_is_kept_in_steps_of_ten_seconds() {
        let mut history = History::default();
        (0..8_000).for_each(|second| history.add(second * 1_000_000, second, Duration::from_millis(second)));
        let kept = history.until(7_999_000_000);
        assert_eq!((kept.len(), kept[359].limit, kept[0].limit), (360, 7_990, 4_400));
    }
}
