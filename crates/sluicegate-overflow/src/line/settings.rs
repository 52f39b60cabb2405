//! The settings of a line, its changes, and its numbers.

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
/// | `Metered` | `Paused` | visitors keep their places, wait for an unknown time, and ask once or twice a minute |
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
    /// The estimated wait of a visitor that comes now; not known while the room is paused.
    pub wait: Option<Duration>,
}

impl LineStatus {
    /// The numbers of a line that no visitor has entered yet.
    pub const fn new(mode: LineMode, rate: Quota) -> Self {
        Self { mode, rate, waiting: 0, active: None, admitted: 0, passed_over: 0, wait: None }
    }
}
