//! Leads a request through a room: its pass, or its key, its place, and its turn.
//!
//! ```text
//! request -> key (if the room knows clients) -> a good pass of its own -> the service
//!                                            -> no pass -> one poll of the line -> turn: held, then the service
//!                                                                               -> no turn: 503
//! ```
//!
//! A request waits at three points: for its key, for a line over a network, and for a turn that is at most two seconds away. If it is
//! dropped at the first, it has taken nothing; at the second it may have taken a place; at the third it has its turn, which it gets again
//! for a minute.
#![expect(unnameable_types, reason = "they are parts of a future that has a name")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use sluicegate_core::{Key, StoreError};
use sluicegate_tower::guard::{Gate, Lookup, Next, Place as Waiting, Sealed, Step};
use sluicegate_tower::key::{Extraction, Keyed, MissingKey, RequestView};
use sluicegate_tower::room::{Admitted, RoomAdmission};
use tokio::time::Sleep;

use super::{ShownTickets, TICKET, cookie};
use crate::layer::WaitingRoomLayer;
use crate::line::{LineAnswer, LineAsk, LineFuture, LinePlace, LineTurn, NoPlace};
use crate::reply::{LostPlace, Reason, Reply};
use crate::room::Pass;
use crate::ticket::{RoomTicket, TicketUse};

/// The time for which the ticket of a place is good, beyond the opening of its room.
const TICKET_LASTS_US: u64 = 86_400_000_000;

/// The wait of a request, and the tickets that it has shown.
#[derive(Debug)]
pub struct EntryWait {
    shown: ShownTickets,
    on: EntryStage,
}

#[derive(Debug)]
enum EntryStage {
    Key(Lookup<Extraction>),
    Line(Lookup<LineFuture<LineAnswer>>),
    Turn(LineTurn, Pin<Box<Sleep>>),
}

/// A request that may enter.
#[derive(Debug)]
pub struct AdmittedVisitor {
    pub(crate) pass: Pass,
    room: String,
    /// The pass in text, its length in seconds, and whether the client wants it in the header. `None` for a request that has shown its pass.
    issued: Option<(String, u64, bool)>,
}

type EntryStep<B, E> = Step<AdmittedVisitor, Box<EntryWait>, Result<Response<B>, E>>;

impl WaitingRoomLayer {
    /// Continues with the key, if anything depends on it.
    fn begin_with<B: From<Bytes>, E>(&self, request: RequestView<'_>) -> EntryStep<B, E> {
        #[cfg(feature = "metrics")]
        self.room.measure_seldom();
        let room = &self.room.0;
        let shown = ShownTickets::of(request, room);
        match &room.client {
            Some(client) if shown.ticket.is_some() || shown.may_enter => {
                match client.extract(request).now() {
                    Ok(found) => self.keyed(shown, found),
                    Err(pending) => waiting(shown, EntryStage::Key(Lookup::new(pending))),
                }
            }
            _ => self.known(shown, None),
        }
    }

    /// Continues from the key to the pass. Requests without a key share the places of one client, unless another action was chosen.
    fn keyed<B: From<Bytes>, E>(
        &self,
        shown: ShownTickets,
        found: Result<Key, MissingKey>,
    ) -> EntryStep<B, E> {
        let key = match self.when_missing.read(found, || self.room.name().to_owned()) {
            Keyed::Key(key) => key,
            Keyed::Rejected(_, status) => return Step::Refuse(Ok(rejected(status))),
            // `skip` was chosen: such places are not counted, and their tickets belong to no other client.
            Keyed::Skipped(_) => return self.known(shown.of_client(&Key::shared(), &self.room.0), None),
            _ => Key::shared(),
        };
        let shown = shown.of_client(&key, &self.room.0);
        self.known(shown, Some(shown.client))
    }

    /// Continues from the pass to the line.
    fn known<B: From<Bytes>, E>(&self, shown: ShownTickets, client: Option<u64>) -> EntryStep<B, E> {
        let room = &self.room.0;
        if let Some(ticket) = shown.pass(room) {
            return Step::Go(self.entered(ticket.place, self.renewed(shown, ticket)));
        }
        if !shown.is_get || (!shown.may_enter && shown.ticket.is_none()) {
            return self.refuse(shown, Reply::new(&room.name, Reason::EnterFirst));
        }
        self.ask(shown, client)
    }

    /// Polls the line once.
    fn ask<B: From<Bytes>, E>(&self, shown: ShownTickets, client: Option<u64>) -> EntryStep<B, E> {
        let ask = LineAsk::new(shown.ticket.map(|ticket| ticket.place), self.room.draw());
        let ask = client.map_or(ask, |client| ask.of_client(client));
        match self.room.0.line.ask(ask).now() {
            Ok(answer) => self.answered(shown, answer),
            Err(pending) => waiting(shown, EntryStage::Line(Lookup::new(pending))),
        }
    }

    /// Continues from the line's answer to the service, to the wait for a turn, or to a 503.
    ///
    /// A ticket is sent only if the visitor has none for this place, or one that expires within half a day or is signed by the former
    /// secret.
    fn answered<B: From<Bytes>, E>(
        &self,
        shown: ShownTickets,
        answer: Result<LineAnswer, StoreError>,
    ) -> EntryStep<B, E> {
        let name = &self.room.0.name;
        match answer {
            Ok(LineAnswer::Turn(turn)) if turn.after.is_zero() => Step::Go(self.admitted(shown, turn)),
            Ok(LineAnswer::Turn(turn)) => {
                waiting(shown, EntryStage::Turn(turn, Box::pin(tokio::time::sleep(turn.after))))
            }
            Ok(LineAnswer::Waiting(standing)) => {
                let has = shown
                    .ticket
                    .filter(|ticket| ticket.place == standing.place && ticket.is == TicketUse::Place);
                let lost = match (has, shown.ticket, shown.fault) {
                    (Some(_), ..) | (None, None, None) => None,
                    (None, Some(_), _) => Some(LostPlace::Place),
                    (None, None, Some(fault)) => Some(LostPlace::Ticket(fault)),
                };
                let now_us = self.room.0.clock.now_us();
                let waited = has.map(|ticket| Duration::from_micros(now_us.saturating_sub(ticket.issued_us)));
                let reply = Reply::waiting(name, standing, lost).after(waited);
                let is_long =
                    |ticket: RoomTicket| ticket.expires_us > now_us.saturating_add(TICKET_LASTS_US / 2);
                if has.is_some_and(is_long) && !shown.is_of_former {
                    return self.refuse(shown, reply);
                }
                let opens_us = standing.opens_after.unwrap_or_default().as_micros();
                let lasts_us = u64::try_from(opens_us).unwrap_or(u64::MAX).saturating_add(TICKET_LASTS_US);
                let lasts = Duration::from_micros(lasts_us);
                self.refuse_with(
                    shown,
                    reply,
                    Some(self.sign(shown, TicketUse::Place, standing.place, lasts)),
                )
            }
            Ok(LineAnswer::NoPlace(none @ (NoPlace::Full | NoPlace::TooMany))) => {
                self.refuse(shown, Reply::new(name, none.into()))
            }
            Err(error) => {
                tracing::warn!(room = name, %error, "the line of a waiting room does not answer");
                self.refuse(shown, Reply::new(name, Reason::Away))
            }
        }
    }

    fn admitted(&self, shown: ShownTickets, turn: LineTurn) -> AdmittedVisitor {
        let (text, seconds) = self.sign(shown, TicketUse::Pass, turn.place, turn.lasts);
        self.entered(turn.place, Some((text, seconds, shown.by_header)))
    }

    /// The pass, signed anew with the current secret, because the former secret will be removed.
    fn renewed(&self, shown: ShownTickets, pass: RoomTicket) -> Option<(String, u64, bool)> {
        let lasts_us = pass.expires_us.saturating_sub(self.room.0.clock.now_us());
        let text = || self.room.0.secrets.sign(&RoomTicket { client: shown.client, ..pass });
        shown.is_of_former.then(|| (text(), (lasts_us / 1_000_000).max(1), shown.by_header))
    }

    fn entered(&self, place: LinePlace, issued: Option<(String, u64, bool)>) -> AdmittedVisitor {
        let room = &self.room.0;
        AdmittedVisitor { pass: Pass::new(place, room.line.clone()), room: room.name.clone(), issued }
    }

    /// A ticket in text, and the number of seconds for which it is good.
    fn sign(&self, shown: ShownTickets, is: TicketUse, place: LinePlace, lasts: Duration) -> (String, u64) {
        let issued_us = self.room.0.clock.now_us();
        let lasts_us = u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
        let expires_us = issued_us.saturating_add(lasts_us);
        let ticket = RoomTicket { is, place, issued_us, expires_us, client: shown.client };
        (self.room.0.secrets.sign(&ticket), lasts.as_secs())
    }

    fn refuse<B: From<Bytes>, E>(&self, shown: ShownTickets, reply: Reply<'_>) -> EntryStep<B, E> {
        self.refuse_with(shown, reply, None)
    }

    fn refuse_with<B: From<Bytes>, E>(
        &self,
        shown: ShownTickets,
        reply: Reply<'_>,
        new: Option<(String, u64)>,
    ) -> EntryStep<B, E> {
        let page = shown.wants_page.then(|| (self.room.0.page)(&reply));
        let mut response = reply.response(page, new.as_ref().map(|(text, _)| &**text));
        if let Some((text, seconds)) = new {
            keep(response.headers_mut(), &self.room.0.name, &text, seconds);
        }
        Step::Refuse(Ok(response))
    }
}

impl Sealed for WaitingRoomLayer {}

impl<B, ResB: From<Bytes>, E> Gate<Request<B>, Response<ResB>, E> for WaitingRoomLayer {
    type Response = Response<ResB>;
    type Error = E;
    type Wait = Box<EntryWait>;
    type Pass = AdmittedVisitor;

    fn begin(&self, request: &Request<B>, _: &mut Waiting) -> Next<Self, Request<B>, Response<ResB>, E> {
        self.begin_with(request.into())
    }

    fn poll(
        &self,
        wait: &mut Box<EntryWait>,
        _: &mut Request<B>,
        place: &mut Waiting,
        cx: &mut Context<'_>,
    ) -> Poll<Next<Self, Request<B>, Response<ResB>, E>> {
        self.poll_with(wait, place, cx)
    }

    fn enter(&self, entered: &mut AdmittedVisitor, request: &mut Request<B>) {
        request.extensions_mut().insert(entered.pass.clone());
    }

    fn after(entered: AdmittedVisitor, mut response: Response<ResB>) -> Self::Response {
        entered.told(response.headers_mut());
        response
    }

    fn failed(error: E) -> E {
        error
    }
}

impl AdmittedVisitor {
    /// Writes the header fields with the pass into the response.
    pub(crate) fn told(self, fields: &mut HeaderMap) {
        if self.pass.is_ended() {
            keep(fields, &self.room, "", 0);
        } else if let Some((text, seconds, by_header)) = self.issued {
            keep(fields, &self.room, &text, seconds);
            if by_header && let Ok(text) = HeaderValue::try_from(text) {
                fields.append(TICKET, text);
            }
        }
    }
}

impl WaitingRoomLayer {
    /// Admits a request for callers that know nothing of this layer.
    pub(crate) fn admit(&self, request: RequestView<'_>) -> RoomAdmission {
        match admitted(self.begin_with(request)) {
            Ok(known) => RoomAdmission::known(known),
            Err(mut wait) => {
                let (layer, mut place) = (self.clone(), Waiting::default());
                let poll = move |cx: &mut Context<'_>| {
                    loop {
                        match admitted(ready!(layer.poll_with(&mut wait, &mut place, cx))) {
                            Ok(known) => return Poll::Ready(known),
                            Err(next) => wait = next,
                        }
                    }
                };
                RoomAdmission::pending(std::future::poll_fn(poll))
            }
        }
    }

    /// Continues a waiting request.
    fn poll_with<B: From<Bytes>, E>(
        &self,
        wait: &mut Box<EntryWait>,
        place: &mut Waiting,
        cx: &mut Context<'_>,
    ) -> Poll<EntryStep<B, E>> {
        let EntryWait { shown, on } = &mut **wait;
        let step = match on {
            EntryStage::Key(lookup) => match ready!(lookup.poll(cx, &self.waits, place)) {
                Ok(found) => self.keyed(*shown, found),
                Err(_) => self.away(*shown),
            },
            EntryStage::Line(lookup) => match ready!(lookup.poll(cx, &self.waits, place)) {
                Ok(answer) => self.answered(*shown, answer),
                Err(_) => self.away(*shown),
            },
            EntryStage::Turn(turn, sleep) => {
                ready!(sleep.as_mut().poll(cx));
                Step::Go(self.admitted(*shown, *turn))
            }
        };
        Poll::Ready(step)
    }

    /// Refuses a request whose key or line has not answered in time.
    fn away<B: From<Bytes>, E>(&self, shown: ShownTickets) -> EntryStep<B, E> {
        self.refuse(shown, Reply::new(&self.room.0.name, Reason::Away))
    }
}

/// Boxes the wait: few requests wait inside the server, so all others carry only a pointer.
fn waiting<B, E>(shown: ShownTickets, on: EntryStage) -> EntryStep<B, E> {
    Step::Wait(Box::new(EntryWait { shown, on }))
}

/// The answer to a request, or its wait.
fn admitted(step: EntryStep<Bytes, Infallible>) -> Result<Admitted, Box<EntryWait>> {
    match step {
        Step::Go(entered) => Ok(Ok(Box::new(entered))),
        Step::Wait(wait) => Err(wait),
        Step::Refuse(Ok(response)) => Ok(Err(Box::new(response))),
        _ => unreachable!("there are three steps, and no error"),
    }
}

/// Makes the client keep this ticket in place of the one that it has.
fn keep(fields: &mut HeaderMap, room: &str, text: &str, seconds: u64) {
    if let Some(cookie) = cookie(room, text, seconds) {
        fields.append(SET_COOKIE, cookie);
    }
    // Overrides the service's field: a cache that kept the page would give one ticket to all visitors.
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Rejects a request whose key is missing or malformed, with an empty response.
fn rejected<B: From<Bytes>>(status: StatusCode) -> Response<B> {
    let mut response = Response::new(B::from(Bytes::new()));
    *response.status_mut() = status;
    response
}
