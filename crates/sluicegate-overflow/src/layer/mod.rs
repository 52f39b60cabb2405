//! The layer: [`WaitingRoomLayer`].

mod gate;
mod shown;

use std::fmt;

use sluicegate_tower::guard::{Guarded, Waits};
use sluicegate_tower::key::{OnMissingKey, WhenMissing};
use tower_layer::Layer;

pub(crate) use self::gate::Entered;
use crate::room::WaitingRoom;

/// Puts a [`WaitingRoom`] in front of a service: a request without a pass waits.
///
/// | request | answer |
/// |---|---|
/// | with a pass | goes on to the service, with the [`Pass`](crate::Pass) in its extensions; the line is not asked |
/// | a GET whose turn has come | goes on, held for up to two seconds until its turn, and its response carries the pass |
/// | a GET of a browser that opens a page | 503 with a page that refreshes itself |
/// | any other GET | 503 with the same as JSON, at once; pictures and fetches of scripts, by `Sec-Fetch-Mode`, take no place, and may ask for the one that they have |
/// | any other method | 503 as JSON; it neither takes a place nor asks for one |
///
/// A browser opens a page where `Sec-Fetch-Mode` is `navigate`; where it says nothing, `Accept` has to name HTML.
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
/// # Where to put it
/// Around everything that it protects, and inside of a rate limit by address. Files that the page of a shop loads need the pass as
/// well: leave files that cost nothing outside of it.
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
    /// A layer in front of whatever the room protects.
    pub fn new(room: WaitingRoom) -> Self {
        Self { room, waits: Waits::default(), when_missing: WhenMissing::default() }
    }

    /// How a request is treated whose places cannot be counted.
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
