//! Lines that would be logged often are logged once a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Something that is said at most once a second.
///
/// For log lines that each request of a flood would write: an attacker must not fill the disk as
/// well.
#[derive(Debug)]
pub(crate) struct OnceASecond {
    started: Instant,
    /// The second after the start in which it was last said.
    said: AtomicU64,
}

impl Default for OnceASecond {
    fn default() -> Self {
        Self { started: Instant::now(), said: AtomicU64::new(0) }
    }
}

impl OnceASecond {
    pub(crate) fn is_due(&self) -> bool {
        let second = self.started.elapsed().as_secs() + 1;
        // Relaxed: at worst two threads say it in the same second.
        self.said.swap(second, Ordering::Relaxed) != second
    }
}
