//! The layer ([`WaitingRoomLayer`]), and a request as the room sees it: its ticket, and whether it wants a page.
//!
//! The ticket is read from the header `x-waiting-room-ticket`, then from cookies of this room, and the first valid one counts. This costs one
//! keyed hash for each secret and text of the right length, for at most four texts, whatever a client sends.

mod gate;

use std::fmt;

use http::header::{ACCEPT, COOKIE, HeaderName};
use http::{HeaderValue, Method};
use sluicegate_core::Key;
use sluicegate_tower::guard::{Guarded, Waits};
use sluicegate_tower::key::{OnMissingKey, RequestView, WhenMissing};
use tower_layer::Layer;

pub(crate) use self::gate::AdmittedVisitor;
use super::room::RoomParts;
use super::ticket::{RoomTicket, TicketFault, TicketUse};
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
/// | `position` | the most visitors that enter up to and including this one; null before the lots are drawn |
/// | `wait_ms` | the longest wait; null while the room is paused |
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

/// Carries tickets of clients without cookies.
const TICKET: HeaderName = HeaderName::from_static("x-waiting-room-ticket");

/// The most cookies of one name that are read. Browsers send no more.
const MOST: usize = 4;

/// A pass that was issued further in the future dates from before the clock was set back: then the line decides.
const AHEAD_US: u64 = 60_000_000;

/// The tickets that a request shows.
#[derive(Clone, Copy, Debug)]
struct ShownTickets {
    ticket: Option<RoomTicket>,
    /// Whether the former secret has signed it.
    is_of_former: bool,
    /// The client to which its tickets are issued, as in [`RoomTicket::client`].
    client: u64,
    /// The fault of the ticket that it shows, if none is valid.
    fault: Option<TicketFault>,
    /// Whether the ticket came in the header, so that the answer has to carry it there, too.
    by_header: bool,
    wants_page: bool,
    /// Whether it may poll with its ticket.
    is_get: bool,
    /// Whether it may take a place.
    may_enter: bool,
}

impl ShownTickets {
    fn of(request: RequestView<'_>, room: &RoomParts) -> Self {
        let by_header = request.headers.contains_key(TICKET);
        let is_get = *request.method == Method::GET;
        let wants_page = is_get && !by_header && is_navigation(request);
        // An image that another site embeds sends no cookie: it would take a place and a turn.
        let may_enter = is_get && (wants_page || !request.headers.contains_key("sec-fetch-mode"));
        let mut shown = Self {
            ticket: None,
            is_of_former: false,
            client: 0,
            fault: None,
            by_header,
            wants_page,
            is_get,
            may_enter,
        };
        let now_us = room.clock.now_us();
        for text in texts(request, &room.name).take(MOST) {
            match room.secrets.read(text, now_us) {
                Ok((ticket, is_of_former)) => {
                    (shown.ticket, shown.is_of_former) = (Some(ticket), is_of_former);
                    shown.fault = None;
                    break;
                }
                Err(fault) => shown.fault = shown.fault.or(Some(fault)),
            }
        }
        shown
    }

    /// Binds it to the client with this key: the ticket of another client is invalid. A ticket that was signed before the room counted
    /// clients is valid for any client that shows it.
    fn of_client(self, key: &Key, room: &RoomParts) -> Self {
        let client = room.secrets.client(key.as_bytes());
        let own = [0, room.secrets.client_in(self.is_of_former, key.as_bytes())];
        match self.ticket {
            Some(ticket) if !own.contains(&ticket.client) => Self {
                ticket: None,
                is_of_former: false,
                client,
                fault: Some(TicketFault::OtherClient),
                ..self
            },
            _ => Self { client, ..self },
        }
    }

    /// The pass that it shows, if it is valid.
    fn pass(&self, room: &RoomParts) -> Option<RoomTicket> {
        let is_from_now =
            |ticket: &RoomTicket| ticket.issued_us <= room.clock.now_us().saturating_add(AHEAD_US);
        let pass = self.ticket.filter(|ticket| ticket.is == TicketUse::Pass).filter(is_from_now)?;
        (!room.line.has_ended(pass.place)).then_some(pass)
    }
}

/// The cookie that keeps a ticket, for this host only and not readable by scripts. `SameSite=Lax` lets a link from another site find its
/// place.
fn cookie(room: &str, text: &str, seconds: u64) -> Option<HeaderValue> {
    let cookie =
        format!("__Host-room-{room}={text}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax");
    HeaderValue::try_from(cookie).ok()
}

/// The tickets in the header, or in cookies of this room.
fn texts<'a>(request: RequestView<'a>, room: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let header = request.headers.get_all(TICKET).iter().map(|line| line.as_bytes().trim_ascii());
    let lines = request.headers.get_all(COOKIE).iter();
    let cookies = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
    header.chain(cookies.filter_map(move |cookie| {
        cookie.trim_ascii().strip_prefix(b"__Host-room-")?.strip_prefix(room.as_bytes())?.strip_prefix(b"=")
    }))
}

/// Whether a browser opens a page: scripts, pictures and programs must not get HTML for their data.
fn is_navigation(request: RequestView<'_>) -> bool {
    match request.headers.get("sec-fetch-mode") {
        Some(mode) => mode == "navigate",
        None => request.headers.get_all(ACCEPT).iter().any(|line| {
            let line = line.as_bytes().to_ascii_lowercase();
            line.split(|&byte| byte == b',').any(|range| range.trim_ascii().starts_with(b"text/html"))
        }),
    }
}
