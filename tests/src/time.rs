//! Clocks that a test turns, and clocks that tokio turns.

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
