//! The door of a room: lets requests into a room whose line and secrets are known elsewhere.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Response};
use sluicegate_core::{ConfigError, Quota};

use crate::KeyExtractor;
use crate::key::{OnMissingKey, RequestView};
use crate::room::Room;

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

impl fmt::Debug for RoomTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomTerms")
            .field("name", &self.name)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

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
