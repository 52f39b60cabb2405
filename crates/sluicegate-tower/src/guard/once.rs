//! Limits frequent log lines to one a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A log line that is written at most once a second.
///
/// It is for lines that each request of a flood would write, so that an attacker cannot fill the
/// disk.
#[derive(Debug)]
pub(crate) struct Seldom {
    started: Instant,
    /// The second after the start in which the line was last written.
    written_second: AtomicU64,
}

impl Default for Seldom {
    fn default() -> Self {
        Self { started: Instant::now(), written_second: AtomicU64::new(0) }
    }
}

impl Seldom {
    pub(crate) fn is_due(&self) -> bool {
        let second = self.started.elapsed().as_secs() + 1;
        // Relaxed: at worst two threads log it in the same second.
        self.written_second.swap(second, Ordering::Relaxed) != second
    }
}
