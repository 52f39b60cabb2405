//! The gradient of Envoy, with a gentle measurement; see [`LimitAlgorithm::Gradient`](super::LimitAlgorithm::Gradient).

use super::SampleWindow;
use super::estimate::ONE;

/// The limit grows until latency is this many percent of the unloaded latency, plus the headroom.
const TOLERATED: u64 = 120;
/// The growth of a window, in percent of the limit, before smoothing.
const STEEPEST: u64 = 130;
/// Smoothed latency moves half of the way to the latency of a window with at least half as many samples.
const FULL: u64 = 100;
/// Windows in use between two measurements of the unloaded latency.
const EVERY: u32 = 100;
/// Windows after a measurement for which none follows it, however much latency has changed.
const SOON: u32 = 5;
/// Latency outside this range, in percent of the unloaded latency, triggers a measurement.
const EXPECTED: std::ops::RangeInclusive<u64> = 80..=200;
/// A measured latency within this, in percent of the former one, is averaged with the former one.
const SAME: std::ops::RangeInclusive<u64> = 75..=130;
/// The limit during a measurement, in percent of the limit.
const LOWERED: u64 = 50;
/// Latency that falls below this, in percent, with half of the limit was all queue: half of the limit is still too much.
const ALL_QUEUE: u64 = 62;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gradient {
    /// The latency with half as many requests. Zero before the first window.
    unloaded_us: u64,
    /// The latency of the last windows.
    recent_us: u64,
    measurement: Option<Measurement>,
    /// Windows in use since the last measurement.
    windows: u32,
}

/// A measurement in progress.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    /// The limit before it.
    before: u64,
    /// Whether the window in which it began, with requests from before it, is over.
    is_drained: bool,
    /// The latencies of its windows, by their samples.
    sum_us: u128,
    samples: u64,
}

impl Gradient {
    pub(super) fn next(&mut self, limit: u64, lowest: u64, window: &SampleWindow) -> u64 {
        match self.measurement.take() {
            // The latency of faults has no meaning: many requests fail immediately.
            measurement if window.is_faulty() => {
                let before = measurement.map_or(limit, |measurement| measurement.before);
                before * 9 / 10
            }
            None => self.follow(limit, lowest, window),
            Some(measurement) => self.measure(limit, measurement, window),
        }
    }

    fn follow(&mut self, limit: u64, lowest: u64, window: &SampleWindow) -> u64 {
        let latency_us = window.latency_us();
        let weight = window.samples.min(FULL / 2);
        if self.unloaded_us == 0 {
            // The first requests meet cold caches, so their latency is measured again soon.
            (self.unloaded_us, self.recent_us) = (latency_us, latency_us);
            self.windows = EVERY - SOON;
            return limit;
        }
        self.recent_us = towards(self.recent_us, latency_us, weight, FULL);
        if window.is_idle(limit / ONE) {
            self.unloaded_us = towards(self.unloaded_us, latency_us, weight, 5 * FULL);
            return limit;
        }
        self.windows += 1;
        let is_expected = EXPECTED.contains(&percent(self.recent_us, self.unloaded_us, 100));
        let due = if is_expected { EVERY } else { SOON };
        let lower = (limit / 100 * LOWERED).max(lowest);
        if self.windows >= due && lower / ONE < limit / ONE {
            self.measurement = Some(Measurement { before: limit, is_drained: false, sum_us: 0, samples: 0 });
            return lower;
        }
        let target = self.target(limit);
        let is_full = window.in_flight * ONE + ONE > limit;
        // A fifth of the way, or less in windows of few samples.
        towards(limit, if is_full { target } else { target.min(limit) }, weight, FULL / 2 * 5)
    }

    /// Continues a measurement, or ends it: with the limit before it, or with less if latency was too long.
    fn measure(&mut self, limit: u64, measurement: Measurement, window: &SampleWindow) -> u64 {
        if !measurement.is_drained {
            self.measurement = Some(Measurement { is_drained: true, ..measurement });
            return limit;
        }
        let sum_us = measurement.sum_us + u128::from(window.latency_us()) * u128::from(window.samples);
        let samples = measurement.samples + window.samples;
        if samples < FULL {
            self.measurement = Some(Measurement { sum_us, samples, ..measurement });
            return limit;
        }
        let measured_us = u64::try_from(sum_us / u128::from(samples.max(1))).unwrap_or(u64::MAX);
        let is_all_queue = percent(measured_us, self.recent_us, 100) < ALL_QUEUE;
        // A latency close to the former one is averaged with it. A different latency is a different state of the service, and is measured
        // again.
        let is_same = SAME.contains(&percent(measured_us, self.unloaded_us, 100));
        self.windows = if is_same && !is_all_queue { 0 } else { EVERY - SOON };
        self.unloaded_us = if is_same { towards(self.unloaded_us, measured_us, 3, 10) } else { measured_us };
        let after = self.target(measurement.before).min(measurement.before);
        self.recent_us = self.unloaded_us.max(measured_us);
        after
    }

    /// The limit at which latency would be as tolerated, plus the headroom.
    fn target(&self, limit: u64) -> u64 {
        let gradient = percent(self.unloaded_us, self.recent_us, TOLERATED).clamp(50, STEEPEST);
        limit * gradient / 100 + (limit * ONE).isqrt()
    }
}

/// `percent` of `part / whole`, up to a thousand.
fn percent(part: u64, whole: u64, percent: u64) -> u64 {
    let parts = u128::from(part) * u128::from(percent) / u128::from(whole.max(1));
    u64::try_from(parts).unwrap_or(u64::MAX).min(1_000)
}

/// The value after `share` of `whole` of the way to another.
fn towards(value: u64, other: u64, share: u64, whole: u64) -> u64 {
    let [old, new] =
        [(value, whole - share), (other, share)].map(|(us, part)| u128::from(us) * u128::from(part));
    u64::try_from((old + new) / u128::from(whole)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A service with this many workers, each busy with a request for this long.
    #[derive(Clone, Copy)]
    struct Service {
        workers: u64,
        takes_us: u64,
    }

    struct Loop {
        gradient: Gradient,
        limit: u64,
    }

    impl Loop {
        fn from(first: u64) -> Self {
            Self { gradient: Gradient::default(), limit: first * ONE }
        }

        /// The limits after this many windows with as many requests as the limit allows.
        fn run(&mut self, service: Service, windows: u32) -> Vec<u64> {
            let window = |limit: u64| SampleWindow {
                latency: Duration::from_micros(
                    service.takes_us * limit.max(service.workers) / service.workers,
                ),
                in_flight: limit,
                samples: 100,
                faults: 0,
            };
            let next = |_| {
                self.limit = self.gradient.next(self.limit, ONE, &window(self.limit / ONE));
                self.limit / ONE
            };
            (0..windows).map(next).collect()
        }
    }

    const SERVICE: Service = Service { workers: 40, takes_us: 20_000 };

    #[test]
    fn a_busy_service_has_a_fifth_and_the_headroom_beyond_its_workers_wherever_it_began() {
        for first in [1, 20, 52, 1_000] {
            let mut limits = Loop::from(first);
            limits.run(SERVICE, 400);
            let settled = limits.run(SERVICE, 200);
            let near = settled.iter().filter(|limit| (48..=60).contains(*limit)).count();
            assert!(near > 180, "from {first}: {settled:?}");
            // For two windows of a measurement it is half of that.
            assert!(settled.iter().all(|limit| (24..=60).contains(limit)), "from {first}: {settled:?}");
        }
    }

    #[test]
    fn a_service_that_gets_slower_with_the_same_room_keeps_its_number() {
        let mut limits = Loop::from(20);
        limits.run(SERVICE, 200);
        let slow = limits.run(Service { takes_us: 80_000, ..SERVICE }, 100);
        assert!(slow.iter().all(|limit| *limit >= 20), "{slow:?}");
        assert!((48..=60).contains(&slow[99]), "{slow:?}");
    }

    #[test]
    fn a_service_that_loses_half_of_its_workers_has_its_number_after_five_seconds_of_windows() {
        let mut limits = Loop::from(20);
        limits.run(SERVICE, 200);
        let half = limits.run(Service { workers: 20, ..SERVICE }, 50);
        assert!(half[49] <= 36, "{half:?}");
        let whole = limits.run(SERVICE, 50);
        assert!(whole[49] >= 44, "{whole:?}");
    }

    #[test]
    fn a_number_that_is_not_used_up_does_not_grow_and_learns_what_unloaded_is() {
        let mut gradient = Gradient::default();
        let mut window = |latency_us, in_flight| {
            let latency = Duration::from_micros(latency_us);
            gradient.next(100 * ONE, ONE, &SampleWindow { latency, in_flight, samples: 100, faults: 0 })
        };
        assert_eq!(window(20_000, 99), 100 * ONE);
        (0..40).for_each(|_| assert_eq!(window(10_000, 10), 100 * ONE));
        assert!(window(24_000, 100) < 100 * ONE, "a long latency for one that takes 10 ms unloaded");
    }

    #[test]
    fn a_tenth_goes_with_each_window_of_faults() {
        let mut gradient = Gradient::default();
        let latency = Duration::from_millis(1);
        let window = SampleWindow { latency, in_flight: 100, samples: 100, faults: 6 };
        assert_eq!(gradient.next(100 * ONE, ONE, &window), 90 * ONE);
        assert_eq!(gradient.next(90 * ONE, ONE, &window), 81 * ONE);
    }
}
