//! A waiting room as those see it who know neither its line nor its secrets: [`Room`], and its [`Door`].
//!
//! The room itself is in `sluicegate-overflow`. The status page shows any room that is one of these, and rules let requests in by any door,
//! so that none of them knows the other.

mod door;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use sluicegate_core::{ConfigError, Quota, StoreError};

pub use self::door::{Admission, Admitted, Door, PendingAdmission, RoomMaker, RoomTerms, Visit};

/// A room in which visitors wait for their turns: its numbers, and a way to change them while visitors wait.
///
/// A status page asks for the numbers at each load, from any thread.
pub trait Room: Send + Sync + 'static {
    /// The name, as in its tickets: letters, digits, `.`, `_` and `-`.
    fn name(&self) -> &str;

    /// The numbers of now, as far as they are known here. It may not block.
    fn numbers(&self) -> RoomNumbers;

    /// Another rate, as `500/s`, another mode, as [`RoomNumbers::mode`] has it, or both. All visitors keep their places. Nothing is
    /// changed by a text that cannot be read or a rate that cannot be kept.
    ///
    /// # Errors
    /// [`RoomError::Config`] for such a text or rate, and [`RoomError::Store`] when the line does not answer.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the room may have been changed or not.
    fn change<'a>(&'a self, rate: Option<&'a str>, mode: Option<&'a str>) -> RoomChange<'a>;
}

/// A change of a room: done, or why it was not.
pub type RoomChange<'a> = Pin<Box<dyn Future<Output = Result<(), RoomError>> + Send + 'a>>;

/// The numbers of a room at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoomNumbers {
    /// `metered`: visitors enter at the rate. `paused`: nobody enters. `open`: everybody does.
    pub mode: &'static str,
    /// The rate in force; its burst says nothing.
    pub rate: Quota,
    /// Visitors that wait.
    pub waiting: u64,
    /// Visitors that are inside, where their number is bounded.
    pub active: Option<u64>,
    /// Visitors that were let in since the room began.
    pub admitted: u64,
    /// Places that were passed over since then.
    pub passed_over: u64,
    /// The estimated wait of a visitor that comes now, the longest of all; not known while the room is paused.
    pub wait: Option<Duration>,
}

impl RoomNumbers {
    /// The numbers of a room in which nobody has been yet.
    pub const fn new(mode: &'static str, rate: Quota) -> Self {
        Self { mode, rate, waiting: 0, active: None, admitted: 0, passed_over: 0, wait: None }
    }
}

/// Why a room was not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RoomError {
    /// It is no rate, or no mode, or none that the room can keep.
    Config(ConfigError),
    /// The line of the room did not answer; it may have been changed or not.
    Store(StoreError),
}

impl fmt::Display for RoomError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl Error for RoomError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(error) => error.source(),
            Self::Store(error) => error.source(),
        }
    }
}

impl From<ConfigError> for RoomError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<StoreError> for RoomError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
