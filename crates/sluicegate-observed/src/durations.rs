//! The recent durations of answers: [`Durations`].

use std::array;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use metrics::{Histogram, Key};
use sluicegate_core::clock::Clock;
use sluicegate_core::store::Store;

use crate::metrics::{histogram, recorder};

const MINUTE_US: u64 = 60_000_000;

/// The number of buckets per power of two.
const EACH: usize = 8;

/// Buckets from 8 ns, which includes everything faster, up to two minutes.
const BUCKETS: usize = 35 * EACH;

/// The durations of the last one to two minutes, in buckets that are an eighth wide at most.
///
/// Two minutes are kept: when a new minute begins, the older one is cleared. Threads that record at that moment may
/// lose a few counts in thousands, so that no request waits for another one.
pub(super) struct Durations {
    /// The number of the current minute.
    minute: AtomicU64,
    minutes: [[AtomicU32; BUCKETS]; 2],
}

impl Durations {
    pub(super) fn new() -> Self {
        Self { minute: AtomicU64::new(0), minutes: array::from_fn(|_| array::from_fn(|_| AtomicU32::new(0))) }
    }

    /// Counts an answer by its duration.
    pub(super) fn record(&self, lasted: Duration, now_us: u64) {
        let minute = self.turn_to(now_us);
        // Relaxed, here and below: the counts order nothing else.
        minute[bucket(lasted)].fetch_add(1, Ordering::Relaxed);
    }

    /// The shortest time within which `part` of a hundred answers came.
    pub(super) fn percentile(&self, part: u64, now_us: u64) -> Option<Duration> {
        self.turn_to(now_us);
        let count = |bucket: usize| {
            self.minutes.iter().map(|minute| u64::from(minute[bucket].load(Ordering::Relaxed))).sum::<u64>()
        };
        let counts: [u64; BUCKETS] = array::from_fn(count);
        let total: u64 = counts.iter().sum();
        let enough = (total * part).div_ceil(100);
        let mut sum = 0;
        let last = counts.iter().position(|count| {
            sum += count;
            sum >= enough
        });
        last.filter(|_| total > 0).map(end)
    }

    /// The counts of the current minute.
    fn turn_to(&self, now_us: u64) -> &[AtomicU32; BUCKETS] {
        let minute = now_us / MINUTE_US;
        let before = self.minute.load(Ordering::Relaxed);
        let [even, odd] = &self.minutes;
        let (now, other) = if minute.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        if minute + 1 == before {
            // Another thread has turned since this one looked at the clock.
            return now;
        }
        // Only one of the threads that see the new minute clears.
        if minute != before && self.minute.swap(minute, Ordering::Relaxed) != minute {
            clear(now);
            if minute != before + 1 {
                clear(other);
            }
        }
        now
    }
}

fn clear(counts: &[AtomicU32; BUCKETS]) {
    counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
}

/// The bucket of a duration: its power of two, and the three bits below it.
fn bucket(lasted: Duration) -> usize {
    let ns = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX).max(EACH as u64);
    let power = ns.ilog2() - EACH.ilog2();
    let eighths = u64::from(power) * EACH as u64 + (ns >> power) % EACH as u64;
    usize::try_from(eighths).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

/// The upper bound of a bucket.
fn end(bucket: usize) -> Duration {
    let (power, eighth) = (bucket / EACH, bucket % EACH);
    Duration::from_nanos((EACH as u64 + eighth as u64 + 1) << power)
}

// Durations that are exported at once: [`Timing`].

/// A histogram of durations.
pub(super) struct Timing {
    series: Key,
    bound: ArcSwapOption<BoundHistogram>,
}

/// The handle of the histogram, and its recorder.
struct BoundHistogram {
    recorder: usize,
    handle: Histogram,
}

impl Timing {
    pub(super) fn of(series: Key) -> Self {
        Self { series, bound: ArcSwapOption::empty() }
    }

    /// Records a duration `weight` times.
    pub(super) fn record(&self, lasted: Duration, weight: usize) {
        let recorder = recorder();
        let bound = self.bound.load();
        match &*bound {
            Some(bound) if bound.recorder == recorder => bound.handle.record_many(lasted, weight),
            _ => {
                let handle = histogram(&self.series);
                handle.record_many(lasted, weight);
                self.bound.store(Some(BoundHistogram { recorder, handle }.into()));
            }
        }
    }
}

// The clock that a store decides by: [`TimeOf`].

/// The time by the clock of a store. The reference is weak, because the store owns the listeners that ask for the time.
pub(super) struct TimeOf(Weak<dyn Store>);

impl TimeOf {
    pub(super) fn store(store: &Arc<dyn Store>) -> Arc<dyn Clock> {
        Arc::new(Self(Arc::downgrade(store)))
    }
}

impl Clock for TimeOf {
    fn now_us(&self) -> u64 {
        self.0.upgrade().map_or(0, |store| store.now_us())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_an_eighth_too_high() {
        for lasted in [1, 9, 100, 999, 123_456, 5_000_000, 99_999_999_999].map(Duration::from_nanos) {
            let durations = Durations::new();
            assert_eq!(durations.percentile(99, 7), None);
            durations.record(lasted, 7);
            let told = durations.percentile(99, 7).unwrap();
            let least = lasted.max(Duration::from_nanos(EACH as u64));
            assert!(
                told > least && told <= least + least / 8 + Duration::from_nanos(1),
                "{lasted:?}: {told:?}"
            );
        }
        let durations = Durations::new();
        for _ in 0..2 {
            durations.record(Duration::from_secs(1_000), 7);
        }
        assert!(
            durations.percentile(50, 7).unwrap() > Duration::from_secs(120),
            "the last bucket has all above it"
        );
    }

    #[test]
    fn one_slow_answer_of_a_hundred_is_not_the_99th() {
        let durations = Durations::new();
        for _ in 0..99 {
            durations.record(Duration::from_micros(100), 7);
        }
        durations.record(Duration::from_secs(1), 7);
        assert!(durations.percentile(99, 7).unwrap() < Duration::from_micros(113));
        durations.record(Duration::from_secs(1), 7);
        assert!(durations.percentile(99, 7).unwrap() > Duration::from_secs(1));
    }

    #[test]
    fn a_thread_that_is_late_at_a_border_of_minutes_wipes_nothing() {
        let durations = Durations::new();
        for now_us in [MINUTE_US, MINUTE_US - 1] {
            durations.record(Duration::from_secs(1), now_us);
        }
        assert!(durations.percentile(1, MINUTE_US).is_some());
        let counts = durations.minutes.iter().flatten().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts.sum::<u32>(), 2);
    }

    #[test]
    fn a_minute_and_the_one_before_it_are_remembered() {
        let durations = Durations::new();
        let (slow, fast) = (Duration::from_millis(8), Duration::from_micros(8));
        let told = |minute: u64| durations.percentile(99, minute * MINUTE_US);
        durations.record(slow, 10 * MINUTE_US);
        durations.record(fast, 11 * MINUTE_US);
        assert!(told(11).unwrap() > slow);
        assert!(told(12).unwrap() < slow, "the first is forgotten");
        assert_eq!(told(13), None);
        durations.record(slow, 13 * MINUTE_US);
        assert_eq!(told(20), None, "after a pause both are");
        durations.record(slow, 20 * MINUTE_US);
        durations.record(slow, 4 * MINUTE_US);
        assert!(told(4).is_some(), "a clock that is set back begins anew");
    }
}
