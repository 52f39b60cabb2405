//! Limits frequent log lines to one a second, or one a minute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A log line that is written at most once a second, or once a minute.
///
/// It is for lines that each request of a flood would write, so that an attacker cannot fill the
/// disk.
#[derive(Debug)]
pub(crate) struct Seldom {
    started: Instant,
    /// In seconds.
    every: u64,
    /// The second or minute after the start in which the line was last written.
    said: AtomicU64,
}

/// Once a second.
impl Default for Seldom {
    fn default() -> Self {
        Self::once_in(1)
    }
}

impl Seldom {
    pub(crate) fn once_a_minute() -> Self {
        Self::once_in(60)
    }

    fn once_in(every: u64) -> Self {
        Self { started: Instant::now(), every, said: AtomicU64::new(0) }
    }

    pub(crate) fn is_due(&self) -> bool {
        let span = self.started.elapsed().as_secs() / self.every + 1;
        // Relaxed: at worst two threads log it in the same second.
        self.said.swap(span, Ordering::Relaxed) != span
    }
}
