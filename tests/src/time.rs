//! Clocks that a test turns, clocks that tokio turns, and how late this machine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_core::clock::{Clock, ManualClock};
use tokio::time::Instant;

/// Where the clocks of tests start: a whole hour, the 14th of November 2023 at 22:00, so that aligned windows of up to an
/// hour begin there.
pub const START: Duration = Duration::from_secs(1_700_000_000 - 800);

/// A clock that stands still at [`START`] until a test turns it.
#[must_use]
pub fn on_the_hour() -> ManualClock {
    let clock = ManualClock::new();
    clock.set(START);
    clock
}

/// The time that tokio's paused clock shows: [`START`] at this instant.
#[derive(Clone, Copy, Debug)]
pub struct Paused(pub Instant);

impl Paused {
    /// A clock that shows [`START`] now.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Paused {
    fn now_us(&self) -> u64 {
        u64::try_from((START + self.0.elapsed()).as_micros()).expect("tests do not last that long")
    }
}

/// How late this machine wakes a thread while a test runs in real time: what such a test adds to its bounds.
pub struct Lateness(Arc<AtomicU64>);

impl Lateness {
    /// Watches from now on, for as long as this lives.
    #[must_use]
    pub fn watch() -> Self {
        const TICK: Duration = Duration::from_millis(5);
        let longest_us = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&longest_us);
        std::thread::spawn(move || {
            while let Some(longest_us) = watched.upgrade() {
                let asleep = std::time::Instant::now();
                std::thread::sleep(TICK);
                let late_us = asleep.elapsed().saturating_sub(TICK).as_micros();
                // Relaxed: it is a number by itself.
                longest_us.fetch_max(u64::try_from(late_us).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self(longest_us)
    }

    /// The longest so far.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}
