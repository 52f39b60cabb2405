//! Counts of each of the last 10 seconds and 60 minutes: [`Rates`].
//!
//! They need no second counter. When a second ends, the totals of that moment are kept; the count of a second
//! is the difference of two totals. The first request after seconds without requests catches up: all
//! counts since then belong to the second that was current.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::support::lock;

use crate::counts::Sums;
use crate::snapshot::Totals;

const SECOND_US: u64 = 1_000_000;
/// The number of seconds over which a rate is the mean.
const SECONDS: usize = 10;
const MINUTES: usize = 60;

/// The totals at the beginning of each of the last seconds and minutes.
pub(super) struct Rates {
    /// The end of the current second; before that there is nothing to do.
    ends_us: AtomicU64,
    past: Mutex<RateHistory>,
}

struct RateHistory {
    /// The current second.
    second: u64,
    /// The youngest last.
    seconds: VecDeque<Tally>,
    minutes: VecDeque<Tally>,
}

/// The counts of a policy at one moment, or within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) totals: Totals,
    pub(super) near: u64,
}

/// The counts of the last whole seconds and minutes.
pub(super) struct Recent {
    /// The counts of 10 seconds.
    pub(super) seconds: Tally,
    /// The counts of each minute with its beginning, in seconds of the clock; the oldest first.
    pub(super) minutes: Vec<(u64, Tally)>,
    /// The counts of the current minute with its beginning.
    pub(super) minute: (u64, Tally),
}

impl Rates {
    pub(super) fn new(now_us: u64) -> Self {
        let second = now_us / SECOND_US;
        let past = RateHistory {
            second,
            seconds: std::iter::repeat_n(Tally::default(), SECONDS + 1).collect(),
            minutes: std::iter::repeat_n(Tally::default(), MINUTES + 1).collect(),
        };
        Self { ends_us: AtomicU64::new((second + 1) * SECOND_US), past: Mutex::new(past) }
    }

    /// Whether a second has ended at this time of some clock, so that [`turn`](Self::turn) is due before anything is counted.
    #[inline]
    pub(super) fn are_due(&self, now_us: u64) -> bool {
        // Relaxed: the lock guards the data.
        now_us >= self.ends_us.load(Ordering::Relaxed)
    }

    /// The end of the current second as of the last look at the clock: a cheap time with a precision of a second.
    #[inline]
    pub(super) fn now_us(&self) -> u64 {
        self.ends_us.load(Ordering::Relaxed)
    }

    /// Keeps the totals for each second that has ended; nothing was counted after the first of them.
    pub(super) fn turn(&self, now_us: u64, tally: impl FnOnce() -> Tally) {
        // The thread with the lock does the same.
        if let Ok(mut past) = self.past.try_lock() {
            past.turn(now_us, tally);
            self.ends_us.store((past.second + 1).saturating_mul(SECOND_US), Ordering::Relaxed);
        }
    }

    /// The recent counts, given the current totals.
    pub(super) fn recent(&self, now_us: u64, tally: Tally) -> Recent {
        let mut past = lock(&self.past);
        past.turn(now_us, || tally);
        self.ends_us.store((past.second + 1).saturating_mul(SECOND_US), Ordering::Relaxed);
        past.recent(&tally)
    }
}

impl Tally {
    pub(super) fn of(sums: &Sums) -> Self {
        Self { totals: sums.totals(), near: sums.near() }
    }

    fn since(&self, then: &Self) -> Self {
        Self { totals: self.totals.since(&then.totals), near: self.near.saturating_sub(then.near) }
    }
}

impl RateHistory {
    fn turn(&mut self, now_us: u64, tally: impl FnOnce() -> Tally) {
        let second = now_us / SECOND_US;
        let (seconds, minutes) =
            (second.saturating_sub(self.second), (second / 60).saturating_sub(self.second / 60));
        if seconds == 0 {
            return;
        }
        self.second = second;
        let tally = tally();
        for (past, new) in [(&mut self.seconds, seconds), (&mut self.minutes, minutes)] {
            let new = usize::try_from(new).map_or(past.len(), |new| new.min(past.len()));
            past.drain(..new);
            past.extend(std::iter::repeat_n(tally, new));
        }
    }

    fn recent(&self, now: &Tally) -> Recent {
        let minute = self.second / 60;
        let minutes = self.minutes.iter().zip(self.minutes.iter().skip(1));
        let first = minute.saturating_sub(MINUTES as u64);
        let minutes = (first..).zip(minutes).map(|(at, (began, ended))| (at * 60, ended.since(began)));
        let began = self.seconds.front().copied().unwrap_or_default();
        let ended = self.seconds.back().copied().unwrap_or_default();
        let minute = (minute * 60, now.since(&self.minutes.back().copied().unwrap_or_default()));
        Recent { seconds: ended.since(&began), minutes: minutes.collect(), minute }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(allowed: u64) -> Tally {
        Tally { totals: Totals { allowed, ..Totals::default() }, near: allowed / 2 }
    }

    #[test]
    fn a_rate_is_of_ten_seconds_that_are_over_and_minutes_are_whole() {
        let at = |seconds: u64| seconds * SECOND_US;
        let rates = Rates::new(at(60_000) + 7);
        let recent = |seconds, total| rates.recent(at(seconds), allowed(total));
        assert_eq!(recent(60_000, 5).seconds.totals.allowed, 0, "the second has not ended");
        assert_eq!(recent(60_001, 5).seconds.totals.allowed, 5);
        assert_eq!(recent(60_010, 8).seconds.totals.allowed, 8);
        assert_eq!(recent(60_010, 9).minute, (60_000, allowed(9)), "up to now, whatever second it is");
        assert_eq!(recent(60_011, 8).seconds.totals.allowed, 3, "the first second is out of it");
        let after = recent(60_060, 10);
        assert_eq!(after.minutes.len(), 60);
        assert_eq!(after.minutes[59], (60_000, allowed(10)));
        assert_eq!(after.minutes[58], (59_940, allowed(0)));
        assert_eq!((after.minute, recent(60_061, 12).minute), ((60_060, allowed(0)), (60_060, allowed(2))));
        let hours_later = recent(70_000, 10);
        assert_eq!((hours_later.seconds.totals.allowed, hours_later.minutes[59].1.totals.allowed), (0, 0));
        assert_eq!(
            recent(60_000, 12).seconds.totals.allowed,
            0,
            "a clock that was set back waits for itself"
        );
    }

    #[test]
    fn nothing_is_due_within_a_second() {
        let rates = Rates::new(1_500_000);
        assert!(!rates.are_due(1_999_999) && rates.are_due(2_000_000));
        rates.turn(2_000_000, || allowed(1));
        assert!(!rates.are_due(2_999_999));
    }
}
