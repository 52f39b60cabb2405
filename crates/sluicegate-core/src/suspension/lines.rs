//! The log lines of suspensions by refusals, which are bounded: [`SuspensionLines`].

use std::time::{Duration, Instant};

/// The most suspensions that are logged one by one in a minute.
const MOST: u64 = 60;

const MINUTE: Duration = Duration::from_secs(60);

/// Counts the suspensions of a minute, from its first one on.
///
/// A client has itself suspended as often as it has addresses, so that a line for each of them would grow the log with a flood.
#[derive(Debug, Default)]
pub(crate) struct SuspensionLines {
    since: Option<Instant>,
    suspended: u64,
}

/// The lines that a suspension causes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DueLines {
    /// The number of suspensions without a line in the last minute that had any; told if not 0.
    pub(super) left_out: u64,
    /// Whether the suspension has a line of its own.
    pub(super) is_told: bool,
    /// Whether it is the first one of its minute without.
    pub(super) is_first_without: bool,
}

impl SuspensionLines {
    pub(super) fn next(&mut self, now: Instant) -> DueLines {
        let mut left_out = 0;
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= MINUTE) {
            left_out = self.suspended.saturating_sub(MOST);
            *self = Self { since: Some(now), suspended: 0 };
        }
        self.suspended += 1;
        DueLines { left_out, is_told: self.suspended <= MOST, is_first_without: self.suspended == MOST + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_suspensions_of_a_minute_have_lines_and_the_others_are_counted_in_the_next() {
        let mut lines = SuspensionLines::default();
        let start = Instant::now();
        let mut told = |second: u64, times: u64| {
            let due = (0..times).map(|_| lines.next(start + Duration::from_secs(second)));
            due.fold((0, Vec::new(), 0), |(told, mut left_out, first), due| {
                left_out.extend(Some(due.left_out).filter(|left_out| *left_out > 0));
                (told + u64::from(due.is_told), left_out, first + u64::from(due.is_first_without))
            })
        };
        assert_eq!(told(0, 50), (50, vec![], 0));
        assert_eq!(told(59, 500), (10, vec![], 1));
        assert_eq!(told(60, 1), (1, vec![490], 0));
        assert_eq!(told(61, 59), (59, vec![], 0), "the minute has just begun");
        assert_eq!(told(3_600, 61), (60, vec![], 1));
    }
}
