//! The interface of a waiting room without its line and its secrets: [`Room`], and its [`Door`].
//!
//! The room itself is in `sluicegate-overflow`. The status page shows any [`Room`], and rules let requests in by any [`Door`],
//! so that these crates do not depend on each other.

mod door;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use sluicegate_core::{ConfigError, Quota, StoreError};

pub use self::door::{Admitted, Door, PendingAdmission, RoomAdmission, RoomMaker, RoomTerms, Visit};

/// A room in which visitors wait for their turns: its numbers, and a way to change them while visitors wait.
///
/// A status page asks for the numbers at each load, from any thread.
pub trait Room: Send + Sync + 'static {
    /// The name, as in its tickets: letters, digits, `.`, `_` and `-`.
    fn name(&self) -> &str;

    /// The current numbers, as far as this instance knows them. It must not block.
    fn numbers(&self) -> RoomNumbers;

    /// Changes the rate, as `500/s`, the mode, as in [`RoomNumbers::mode`], or both. All visitors keep their places. A text that cannot
    /// be read, or a rate that the room does not support, changes nothing.
    ///
    /// # Errors
    /// [`RoomError::Config`] for such a text or rate, and [`RoomError::Store`] when the line does not answer.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, the room may have been changed or not.
    fn change<'a>(&'a self, rate: Option<&'a str>, mode: Option<&'a str>) -> RoomChange<'a>;
}

/// The pending result of a change of a room.
pub type RoomChange<'a> = Pin<Box<dyn Future<Output = Result<(), RoomError>> + Send + 'a>>;

/// The numbers of a room at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoomNumbers {
    /// `metered`: visitors enter at the rate. `paused`: no visitor enters. `open`: all visitors enter.
    pub mode: &'static str,
    /// The rate in force; its burst is ignored.
    pub rate: Quota,
    /// Visitors that wait.
    pub waiting: u64,
    /// Visitors that are inside, if their number is bounded.
    pub active: Option<u64>,
    /// Visitors that were let in since the room began.
    pub admitted: u64,
    /// Places that were passed over since the room began.
    pub passed_over: u64,
    /// The estimated wait of a visitor that comes now, the longest of all; `None` while the room is paused.
    pub wait: Option<Duration>,
}

impl RoomNumbers {
    /// The numbers of a room without visitors so far.
    pub const fn new(mode: &'static str, rate: Quota) -> Self {
        Self { mode, rate, waiting: 0, active: None, admitted: 0, passed_over: 0, wait: None }
    }
}

/// The reason why a room was not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RoomError {
    /// The text is not a rate or a mode, or the room does not support it.
    Config(ConfigError),
    /// The line of the room did not answer; the room may have been changed or not.
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
