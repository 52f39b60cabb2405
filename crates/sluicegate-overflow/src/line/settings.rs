//! The settings of a line, its changes, its numbers, and its time, which advances evenly whatever the clock does: [`LineTime`].

use std::time::Duration;

use sluicegate_core::Quota;

/// The checked settings of a line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LineSettings {
    /// The name of the room: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The rate at which visitors enter. Its burst is 1: turns are spaced.
    pub rate: Quota,
    /// The moment when the room opens, in microseconds since the Unix epoch; 0 if it is open from the start.
    pub opens_at_us: u64,
    /// The most passes that are valid at once.
    pub most_active: Option<u64>,
    /// The length of a pass.
    pub pass_lasts: Duration,
    /// The most visitors that may wait.
    pub longest_line: u64,
    /// The most places that one client may have.
    pub places_per_client: Option<u64>,
}

/// A change of a line while visitors wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineChange {
    /// Another rate.
    Rate(Quota),
    /// Another mode.
    Mode(LineMode),
}

/// Whether visitors enter at the rate, not at all, or at once.
///
/// | from | to | effect |
/// |---|---|---|
/// | `Metered` | `Paused` | visitors keep their places, wait for an unknown time, and ask once a minute |
/// | `Paused` | `Metered` | visitors enter in their order, when they ask next |
/// | any | `Open` | each visitor enters when it asks next; sleeping visitors keep their places |
/// | `Open` | `Metered` | visitors that entered meanwhile keep their passes, and earlier places are called again |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineMode {
    /// Visitors enter at the rate.
    #[default]
    Metered,
    /// No visitor enters; passes stay valid, and places are kept.
    Paused,
    /// All visitors enter at once, even before the room opens and above the bound on active visitors.
    Open,
}

/// The numbers of a line at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineStatus {
    /// Whether visitors enter.
    pub mode: LineMode,
    /// The rate in force.
    pub rate: Quota,
    /// Visitors that wait and were not passed over.
    pub waiting: u64,
    /// Valid passes, if their number is bounded; of passes that were given while the room was open to all, only those within the bound.
    pub active: Option<u64>,
    /// Turns that were given since the line began.
    pub admitted: u64,
    /// Places that were passed over since the line began.
    pub passed_over: u64,
    /// The longest wait of a visitor that comes now; not known while the room is paused.
    pub wait: Option<Duration>,
}

impl LineStatus {
    /// The numbers of a line that no visitor has entered yet.
    pub const fn new(mode: LineMode, rate: Quota) -> Self {
        Self { mode, rate, waiting: 0, active: None, admitted: 0, passed_over: 0, wait: None }
    }
}

/// The longest step beyond its last appointment that a line accepts from the clock. It is longer than the patience for a missing visitor.
const LONGEST_STEP_US: u64 = 120_000_000;

/// The longest time without polls that counts against absent visitors. It is shorter than the time for which a passed-over place is kept, so
/// that no outage and no step of the clock alone forgets a place.
const LONGEST_PATIENCE_US: u64 = 600_000_000;

/// The time of a line.
///
/// When the clock is set back, the line's time stands still for one poll. When it is set forward by hours, visitors must not all be late: with a
/// correct clock, visitors ask by their appointments, so the line's time goes at most two minutes beyond the last appointment.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineTime {
    now_us: u64,
    clock_us: u64,
    last_appointment_us: u64,
    /// The time by which visitors count as missing: it advances only while others ask.
    patience_us: u64,
    /// The patience at the moment of the last poll.
    asked_us: u64,
}

impl LineTime {
    pub(super) fn new(clock_us: u64) -> Self {
        // Starts at 1, because 0 is before all times.
        Self { now_us: 1, clock_us, last_appointment_us: 1, patience_us: 1, asked_us: 1 }
    }

    pub(super) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The time of the clock at the last poll.
    pub(super) fn clock_us(&self) -> u64 {
        self.clock_us
    }

    /// Takes over the time of the clock.
    pub(super) fn advance(&mut self, clock_us: u64) {
        let believed = self.last_appointment_us.saturating_sub(self.now_us).saturating_add(LONGEST_STEP_US);
        let step = clock_us.saturating_sub(self.clock_us).min(believed);
        self.clock_us = clock_us;
        self.now_us = self.now_us.saturating_add(step);
        let longest_us = self.asked_us.saturating_add(LONGEST_PATIENCE_US);
        self.patience_us = self.patience_us.saturating_add(step).min(longest_us);
    }

    /// The time by which visitors count as missing.
    pub(super) fn patience_us(&self) -> u64 {
        self.patience_us
    }

    /// Notes that a visitor has asked.
    pub(super) fn asked(&mut self) {
        self.asked_us = self.patience_us;
    }

    /// Notes that a visitor is told to come then.
    pub(super) fn appoint(&mut self, at_us: u64) {
        self.last_appointment_us = self.last_appointment_us.max(at_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_clock_is_no_step_of_the_line() {
        let mut time = LineTime::new(5_000_000_000);
        let mut step_us = |clock_us: u64, appointed_us: u64| {
            let before_us = time.now_us();
            time.appoint(before_us + appointed_us);
            time.advance(clock_us);
            time.now_us() - before_us
        };
        assert_eq!(step_us(5_001_000_000, 0), 1_000_000);
        assert_eq!(step_us(1_000_000_000, 0), 0);
        assert_eq!(step_us(1_002_000_000, 0), 2_000_000);
        assert_eq!(step_us(1_302_000_000, 300_000_000), 300_000_000);
        assert_eq!(step_us(9_000_000_000, 0), LONGEST_STEP_US);
    }

    #[test]
    fn nobody_is_missed_while_nobody_asks() {
        let mut time = LineTime::new(0);
        time.appoint(86_400_000_000);
        time.advance(3_600_000_000);
        time.advance(7_200_000_000);
        assert_eq!((time.now_us(), time.patience_us()), (7_200_000_001, 600_000_001));
        time.asked();
        time.advance(7_260_000_000);
        assert_eq!((time.now_us(), time.patience_us()), (7_260_000_001, 660_000_001));
    }
}
