//! The layer: [`WaitingRoomLayer`].

mod gate;
mod shown;

use std::fmt;

use sluicegate_tower::guard::{Guarded, Waits};
use sluicegate_tower::key::{OnMissingKey, WhenMissing};
use tower_layer::Layer;

pub(crate) use self::gate::AdmittedVisitor;
use crate::room::WaitingRoom;

/// Puts a [`WaitingRoom`] in front of a service: a request without a pass waits.
///
/// | request | answer |
/// |---|---|
/// | with a pass | proceeds to the service, with the [`Pass`](crate::Pass) in its extensions; the line is not asked |
/// | a GET whose turn has come | proceeds, after being held for up to two seconds until its turn, and its response carries the pass |
/// | a GET of a browser that opens a page | 503 with a page that refreshes itself |
/// | any other GET | 503 with the reply as JSON, at once; images and fetches by scripts, recognized by `Sec-Fetch-Mode`, take no place, but may ask about the one they have |
/// | any other method | 503 as JSON; it neither takes a place nor asks for one |
///
/// A request opens a page if its `Sec-Fetch-Mode` is `navigate`; without this field, `Accept` has to name HTML.
///
/// Tickets and passes are one cookie, `__Host-room-` and the name of the room: `Secure`, `HttpOnly`, `SameSite=Lax`. Clients without
/// cookies send the `ticket` of the JSON, and later that of the response, in the header `x-waiting-room-ticket`.
///
/// ```
/// use sluicegate_overflow::line::MemoryLine;
/// use sluicegate_overflow::{WaitingRoom, WaitingRoomLayer};
///
/// let room = WaitingRoom::builder("sale", "1000/s").build(MemoryLine::new())?;
/// let layer = WaitingRoomLayer::new(room.clone());
/// # _ = layer;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// # The JSON of a 503
/// It is `application/problem+json` (RFC 9457), with `Retry-After` in whole seconds and `Cache-Control: no-store`:
///
/// | member | says |
/// |---|---|
/// | `type`, `title`, `status`, `detail` | problem details; `detail` is a sentence for the reason |
/// | `room` | the name of the room |
/// | `reason` | [the word](crate::Reason::word) of the reason: `waiting`, `not-open`, `paused`, `full`, `too-many-places`, `enter-first`, `away` |
/// | `position` | the number of visitors up to and including this one; null before the lots are drawn |
/// | `wait_ms` | the estimated wait; null while the room is paused |
/// | `opens_after_ms` | the time until the room opens; null once it is open |
/// | `ask_after_ms` | the time until the next poll. A client that asks at this time, or after `Retry-After`, finds its turn and is held for it |
/// | `ticket` | the place, for the header `x-waiting-room-ticket`; present only if it is new |
/// | `lost` | the reason why the visitor has another place than its ticket says; absent otherwise |
///
/// Position and times are present only for a visitor that has a place. A client that loses the answer asks again without a ticket
/// and gets another place; a client that loses the answer with its pass gets the same turn again for a minute.
///
/// # Where to put it
/// Put it around everything that it protects, and inside a rate limit by address. Files that the page of a shop loads need the pass as
/// well: leave files that cost nothing outside.
///
/// # Cancel safety
/// A visitor that hangs up while it is held keeps its turn for a minute.
#[derive(Clone)]
pub struct WaitingRoomLayer {
    room: WaitingRoom,
    waits: Waits,
    when_missing: WhenMissing,
}

impl WaitingRoomLayer {
    /// A layer in front of the service that the room protects.
    pub fn new(room: WaitingRoom) -> Self {
        Self { room, waits: Waits::default(), when_missing: WhenMissing::default() }
    }

    /// Sets the treatment of requests whose places cannot be counted.
    pub(crate) fn on_missing_key(mut self, action: Option<OnMissingKey>) -> Self {
        self.when_missing.chosen = action;
        self
    }

    pub(crate) fn room(&self) -> &WaitingRoom {
        &self.room
    }
}

impl<S> Layer<S> for WaitingRoomLayer {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.clone())
    }
}

impl fmt::Debug for WaitingRoomLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingRoomLayer").field("room", &self.room).finish_non_exhaustive()
    }
}
