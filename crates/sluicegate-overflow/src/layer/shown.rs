//! A request as the room sees it: its ticket, and whether it wants a page.
//!
//! The ticket is read from the header `x-waiting-room-ticket`, then from cookies of this room, and the first valid one counts. This costs one
//! keyed hash for each secret and text of the right length, for at most four texts, whatever a client sends.

use http::header::{ACCEPT, COOKIE, HeaderName};
use http::{HeaderValue, Method};
use sluicegate_core::Key;
use sluicegate_tower::key::RequestView;

use crate::room::RoomParts;
use crate::ticket::{RoomTicket, TicketFault, TicketUse};

/// Carries tickets of clients without cookies.
pub(super) const TICKET: HeaderName = HeaderName::from_static("x-waiting-room-ticket");

/// The most cookies of one name that are read. Browsers send no more.
const MOST: usize = 4;

/// A pass that was issued further in the future dates from before the clock was set back: then the line decides.
const AHEAD_US: u64 = 60_000_000;

/// The tickets that a request shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownTickets {
    pub(super) ticket: Option<RoomTicket>,
    /// Whether the former secret has signed it.
    pub(super) is_of_former: bool,
    /// The client to which its tickets are issued, as in [`RoomTicket::client`].
    pub(super) client: u64,
    /// The fault of the ticket that it shows, if none is valid.
    pub(super) fault: Option<TicketFault>,
    /// Whether the ticket came in the header, so that the answer has to carry it there, too.
    pub(super) by_header: bool,
    pub(super) wants_page: bool,
    /// Whether it may poll with its ticket.
    pub(super) is_get: bool,
    /// Whether it may take a place.
    pub(super) may_enter: bool,
}

impl ShownTickets {
    pub(super) fn of(request: RequestView<'_>, room: &RoomParts) -> Self {
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
    pub(super) fn of_client(self, key: &Key, room: &RoomParts) -> Self {
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
    pub(super) fn pass(&self, room: &RoomParts) -> Option<RoomTicket> {
        let is_from_now =
            |ticket: &RoomTicket| ticket.issued_us <= room.clock.now_us().saturating_add(AHEAD_US);
        let pass = self.ticket.filter(|ticket| ticket.is == TicketUse::Pass).filter(is_from_now)?;
        (!room.line.has_ended(pass.place)).then_some(pass)
    }
}

/// The cookie that keeps a ticket, for this host only and not readable by scripts. `SameSite=Lax` lets a link from another site find its
/// place.
pub(super) fn cookie(room: &str, text: &str, seconds: u64) -> Option<HeaderValue> {
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
