//! Virtual time, and clocks that run beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_tests::time::START;
use tokio::time::Instant;

/// The time of tokio's paused clock, which turns by milliseconds, and within one of them as far as the load is.
#[derive(Clone)]
pub(crate) struct Time {
    begun: Instant,
    /// The last request's arrival: it is later than the beginning of its millisecond.
    arrived_us: Arc<AtomicU64>,
}

impl Time {
    /// A time that begins now.
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), arrived_us: Arc::default() }
    }

    /// Microseconds since the beginning.
    pub(crate) fn now_us(&self) -> u64 {
        let tick = u64::try_from(self.begun.elapsed().as_micros()).expect("a run is shorter than an age");
        // Relaxed: a run has one thread.
        tick.max(self.arrived_us.load(Ordering::Relaxed))
    }

    /// Waits until this moment since the beginning.
    pub(crate) async fn until(&self, at_us: u64) {
        let tick = self.begun + Duration::from_millis(at_us / 1_000);
        if tick > Instant::now() {
            tokio::time::sleep_until(tick).await;
        }
        self.arrived_us.store(at_us, Ordering::Relaxed);
    }
}

/// A clock that began at some other time, and runs too fast or too slow.
#[derive(Clone)]
pub(crate) struct Skewed {
    time: Time,
    ahead_us: u64,
    millionths: i64,
}

impl Skewed {
    /// A clock that is ahead by this time, and runs too fast by this many millionths.
    pub(crate) fn new(time: &Time, ahead_us: u64, millionths: i64) -> Self {
        Self { time: time.clone(), ahead_us, millionths }
    }
}

impl Clock for Skewed {
    fn now_us(&self) -> u64 {
        let passed = i64::try_from(self.time.now_us()).expect("a run is shorter than an age");
        let passed = passed + passed * self.millionths / 1_000_000;
        let passed = u64::try_from(passed).expect("no clock runs backwards");
        u64::try_from(START.as_micros()).expect("it is not long ago") + self.ahead_us + passed
    }
}
