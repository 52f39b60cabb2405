//! The interface of a waiting room without its line and its secrets: [`Room`], and its [`Door`].
//!
//! The room itself is in `sluicegate-overflow`. The status page shows any [`Room`], and rules let requests in by any [`Door`],
//! so that these crates do not depend on each other.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Response};
use sluicegate_core::{ConfigError, Quota, StoreError};

use super::KeyExtractor;
use super::key::{OnMissingKey, RequestView};

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
    /// The longest wait of a visitor that comes now; `None` while the room is paused.
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

/// Makes the doors of rooms from their terms. A program gives one to the rules, which know the terms but not the secrets.
///
/// `Rooms` of `sluicegate-overflow` implements it.
pub trait RoomMaker: Send + Sync + 'static {
    /// A door to the room of this name. Opens the room unless it is open. Nothing changes for waiting visitors until
    /// [`Door::put_in_force`].
    ///
    /// # Errors
    /// When the room does not support the terms; the error names the value.
    fn door(&self, terms: &RoomTerms) -> Result<Arc<dyn Door>, ConfigError>;
}

/// A door to a room. The room is open for as long as it has a door.
pub trait Door: Room {
    /// Decides on one request: it enters with its pass or its turn, or gets its place in line.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, a place may have been taken or a turn given; a visitor that shows its ticket gets the same place or turn again.
    fn admit(&self, request: RequestView<'_>) -> RoomAdmission;

    /// Puts the terms of this door in force for all waiting visitors, who keep their places. The rate changes only `with_rate`, so that
    /// a rate set by an operator stays if the rate of the terms is unchanged. It does not wait: if the line is behind a network, the
    /// change is retried until it is made.
    fn put_in_force(&self, with_rate: bool);
}

/// The terms of a room.
#[derive(Clone)]
#[non_exhaustive]
pub struct RoomTerms {
    /// The name, as in its tickets: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The rate at which visitors enter; its burst is ignored.
    pub rate: Quota,
    /// The time at which the room opens, if not at once.
    pub opens_at: Option<SystemTime>,
    /// The most passes that are valid at once, if they are bounded.
    pub most_active: Option<u64>,
    /// The lifetime of a pass; `None` for the room's default.
    pub pass_lasts: Option<Duration>,
    /// The most visitors that may wait; `None` for the room's default.
    pub longest_line: Option<u64>,
    /// The most places of one client in the line, by this key, and the treatment of a request without a key.
    pub places_per_client: Option<(u64, Arc<dyn KeyExtractor>, Option<OnMissingKey>)>,
}

impl RoomTerms {
    /// The terms of a room with this name and rate, and defaults for the rest.
    pub fn new(name: impl Into<String>, rate: Quota) -> Self {
        Self {
            name: name.into(),
            rate,
            opens_at: None,
            most_active: None,
            pass_lasts: None,
            longest_line: None,
            places_per_client: None,
        }
    }
}

sluicegate_core::debug_as!(RoomTerms { name, rate });

/// The answer of a door: the request may enter, or this is its response.
pub type Admitted = Result<Box<dyn Visit>, Box<Response<Bytes>>>;

/// The pending answer of a door.
pub type PendingAdmission = Pin<Box<dyn Future<Output = Admitted> + Send>>;

/// The answer of a door, known or to be waited for.
#[must_use = "a request does not enter by itself"]
pub struct RoomAdmission(Result<Admitted, PendingAdmission>);

impl RoomAdmission {
    /// A known answer.
    pub fn known(answer: Admitted) -> Self {
        Self(Ok(answer))
    }

    /// A pending answer: the line is behind a network, or the turn comes within seconds.
    pub fn pending(answer: impl Future<Output = Admitted> + Send + 'static) -> Self {
        Self(Err(Box::pin(answer)))
    }

    /// The answer if it is known.
    ///
    /// # Errors
    /// The future to wait for, if the answer is not known.
    pub fn now(self) -> Result<Admitted, PendingAdmission> {
        self.0
    }
}

impl fmt::Debug for RoomAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_ok() { "RoomAdmission(known)" } else { "RoomAdmission(pending)" })
    }
}

/// A request that may enter, until its response.
pub trait Visit: Send + Sync {
    /// Called when the request proceeds to the service with these extensions.
    fn enter(&self, extensions: &mut Extensions);

    /// Called with the header fields of the response.
    fn leave(self: Box<Self>, fields: &mut HeaderMap);
}
