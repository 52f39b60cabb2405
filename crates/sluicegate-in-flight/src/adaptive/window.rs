//! Latencies of requests, summed up: [`Samples`] and [`SampleWindow`].

use std::time::Duration;

use super::histogram::Histogram;
use sluicegate_core::clock::micros;

/// A window is at least this long, and at least as long as its samples took on average.
const SHORTEST_US: u64 = 100_000;
/// Samples that take longer than this do not make a window longer.
const LONGEST_US: u64 = 10_000_000;

/// A request that the service has answered.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what an algorithm learns of a request is this")]
pub struct Sample {
    /// The time that the service took, without the wait for a permit.
    pub latency: Duration,
    /// The number of requests under way, this one included.
    pub in_flight: u64,
    /// Whether the answer shows that the service has too much to do: an error of its own, or a timeout.
    pub is_fault: bool,
}

/// Samples of a span of time, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what an algorithm learns of a span is this")]
pub struct SampleWindow {
    /// The median latency of the samples.
    pub latency: Duration,
    /// The most requests that were under way at once.
    pub in_flight: u64,
    /// The number of samples.
    pub samples: u64,
    /// The number of samples that are faults.
    pub faults: u64,
}

/// Collects samples until there are enough of them for a [`SampleWindow`].
///
/// A sample closes the window when the window is a tenth of a second long, as long as its samples took on average (up to ten
/// seconds), and has the [least number](Self::new) of samples. So a window after a change covers requests that have seen
/// the change, and a service without requests changes nothing.
///
/// # State
/// About two kilobytes: a count for each part of a histogram, with parts a sixteenth as wide as their time.
#[derive(Clone, Debug)]
pub struct Samples {
    least: u64,
    /// The time of the last window's end.
    since_us: Option<u64>,
    times: Histogram,
    sum_us: u64,
    in_flight: u64,
    samples: u64,
    faults: u64,
}

impl Samples {
    /// Collects windows of at least this many samples, and at least one.
    pub fn new(least: u64) -> Self {
        let times = Histogram::new();
        Self { least: least.max(1), since_us: None, times, sum_us: 0, in_flight: 0, samples: 0, faults: 0 }
    }

    /// Adds a sample that ended at `now`, a time since any fixed moment, and returns the window that it closes, if any.
    pub fn add(&mut self, now: Duration, sample: Sample) -> Option<SampleWindow> {
        let (now_us, latency_us) = (micros(now), micros(sample.latency));
        // The first window begins with its first request.
        let since_us = *self.since_us.get_or_insert_with(|| now_us.saturating_sub(latency_us));
        self.times.add(latency_us);
        self.sum_us = self.sum_us.saturating_add(latency_us);
        self.in_flight = self.in_flight.max(sample.in_flight);
        self.samples += 1;
        self.faults += u64::from(sample.is_fault);
        let long_enough = (self.sum_us / self.samples).clamp(SHORTEST_US, LONGEST_US);
        (self.samples >= self.least && now_us.saturating_sub(since_us) >= long_enough).then(|| {
            self.since_us = Some(now_us);
            self.close()
        })
    }

    fn close(&mut self) -> SampleWindow {
        let Self { in_flight, samples, faults, .. } = *self;
        let window = SampleWindow {
            latency: Duration::from_micros(self.times.median_us()),
            in_flight,
            samples,
            faults,
        };
        self.times.clear();
        (self.sum_us, self.in_flight, self.samples, self.faults) = (0, 0, 0, 0);
        window
    }
}

impl SampleWindow {
    /// Whether more than one sample in twenty is a fault.
    pub fn is_faulty(&self) -> bool {
        self.faults * 20 > self.samples
    }

    /// Whether less than half of the limit was under way, so that the limit has had no effect.
    pub(super) fn is_idle(&self, limit: u64) -> bool {
        self.in_flight * 2 < limit
    }

    pub(super) fn latency_us(&self) -> u64 {
        micros(self.latency).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(samples: &mut Samples, now_ms: u64, latency_ms: u64, is_fault: bool) -> Option<SampleWindow> {
        let latency = Duration::from_millis(latency_ms);
        samples.add(Duration::from_millis(now_ms), Sample { latency, in_flight: now_ms, is_fault })
    }

    #[test]
    fn a_window_ends_when_it_is_long_enough_and_has_samples_enough() {
        let mut samples = Samples::new(3);
        assert_eq!(add(&mut samples, 1_000, 10, false), None);
        assert_eq!(add(&mut samples, 1_200, 10, true), None, "two are too few");
        let window = add(&mut samples, 1_201, 12, false).expect("it has three, in 211 ms");
        assert_eq!((window.samples, window.faults, window.in_flight), (3, 1, 1_201));
        assert!(window.latency.as_millis().abs_diff(10) <= 1, "{window:?}");
        for now in [1_250, 1_260, 1_270, 1_300] {
            assert_eq!(add(&mut samples, now, 10, false), None, "100 ms are not over");
        }
        let window = add(&mut samples, 1_301, 10, false).expect("they are now");
        assert_eq!((window.samples, window.faults), (5, 0), "the samples of the first are not in it");
    }

    #[test]
    fn a_window_is_as_long_as_its_requests_take() {
        let mut samples = Samples::new(1);
        assert!(add(&mut samples, 5_000, 2_000, false).is_some(), "it began with its first request");
        assert_eq!(add(&mut samples, 6_900, 2_000, false), None);
        assert!(add(&mut samples, 7_000, 2_000, false).is_some());
    }

    #[test]
    fn a_clock_that_goes_back_closes_no_window_and_breaks_nothing() {
        let mut samples = Samples::new(1);
        assert!(add(&mut samples, 5_000, 200, false).is_some());
        assert_eq!(add(&mut samples, 10, 200, false), None);
        assert!(add(&mut samples, 5_200, 200, false).is_some());
    }
}
