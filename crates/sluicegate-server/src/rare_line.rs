//! Limits frequent log lines to one a second: [`RareLine`].

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A log line that is written at most once a second.
///
/// It is for lines that each request of a flood would write, so that a client cannot fill the disk.
#[derive(Debug)]
pub(crate) struct RareLine(Mutex<Option<Instant>>);

impl RareLine {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn is_due(&self) -> bool {
        self.is_due_at(Instant::now())
    }

    fn is_due_at(&self, now: Instant) -> bool {
        // Another thread that writes it now writes it for this one, too.
        let Ok(mut written) = self.0.try_lock() else { return false };
        let is_due = written.is_none_or(|at| now.saturating_duration_since(at) >= Duration::from_secs(1));
        if is_due {
            *written = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_at_once_and_then_once_a_second() {
        let (line, began) = (RareLine::new(), Instant::now());
        let due = [0, 1, 999, 1_000, 1_001, 1_999, 2_000, 9_000]
            .map(|millis| line.is_due_at(began + Duration::from_millis(millis)));
        assert_eq!(due, [true, false, false, true, false, false, true, true]);
    }
}
