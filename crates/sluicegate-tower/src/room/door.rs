//! The door of a room: how requests come to one whose line and secrets are known elsewhere.

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

/// Makes the doors of rooms by their terms: a program gives one to rules, which know the terms and no secrets.
///
/// `Rooms` of `sluicegate-overflow` is one.
pub trait RoomMaker: Send + Sync + 'static {
    /// A door to the room of this name, which is a new one unless such a room is open. Nothing changes for those who wait until
    /// [`Door::put_in_force`].
    ///
    /// # Errors
    /// For terms that the room cannot keep; the error names the value.
    fn door(&self, terms: &RoomTerms) -> Result<Arc<dyn Door>, ConfigError>;
}

/// A door to a room. The room is open for as long as it has a door.
pub trait Door: Room {
    /// The way of one request: in with its pass or its turn, or back with its place in line.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, a place may have been taken or a turn given; a visitor that shows its ticket has the same again.
    fn admit(&self, request: RequestView<'_>) -> Admission;

    /// From now on the terms of this door hold for all who wait, and all keep their places; the rate only `with_rate`, so that one
    /// that an operator has set is kept where the terms have the same as before. It does not wait: where the line is behind a network, the
    /// change is tried until it is made.
    fn put_in_force(&self, with_rate: bool);
}

/// The terms of a room.
#[derive(Clone)]
#[non_exhaustive]
pub struct RoomTerms {
    /// The name, as in its tickets: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// How many visitors enter in which time; a burst in it says nothing.
    pub rate: Quota,
    /// When the room opens, if not at once.
    pub opens_at: Option<SystemTime>,
    /// How many passes are good at once, if that is bounded.
    pub most_active: Option<u64>,
    /// How long a pass lasts; none as the room has it.
    pub pass_lasts: Option<Duration>,
    /// How many may wait; none as the room has it.
    pub longest_line: Option<u64>,
    /// How many of those that wait may be one client's, by this key, and how a request without one is treated.
    pub places_per_client: Option<(u64, Arc<dyn KeyExtractor>, Option<OnMissingKey>)>,
}

impl RoomTerms {
    /// A room of this name with this rate, and nothing else said.
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

/// The answer of a door that has to be waited for.
pub type PendingAdmission = Pin<Box<dyn Future<Output = Admitted> + Send>>;

/// The answer of a door, known or to be waited for.
#[must_use = "a request does not enter by itself"]
pub struct Admission(Result<Admitted, PendingAdmission>);

impl Admission {
    /// An answer that is known.
    pub fn known(answer: Admitted) -> Self {
        Self(Ok(answer))
    }

    /// An answer that has to be waited for: the line is behind a network, or the turn comes within seconds.
    pub fn pending(answer: impl Future<Output = Admitted> + Send + 'static) -> Self {
        Self(Err(Box::pin(answer)))
    }

    /// The answer if it is known.
    ///
    /// # Errors
    /// The future to wait for, if it is not.
    pub fn now(self) -> Result<Admitted, PendingAdmission> {
        self.0
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_ok() { "Admission(known)" } else { "Admission(pending)" })
    }
}

/// A request that may enter, until its response.
pub trait Visit: Send + Sync {
    /// The request goes on to the service with these extensions.
    fn enter(&self, extensions: &mut Extensions);

    /// The response has these header fields.
    fn leave(self: Box<Self>, fields: &mut HeaderMap);
}
