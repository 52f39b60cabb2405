//! The answer to a visitor that may not enter: [`Reply`], as JSON and as header fields.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, VARY};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;
use sluicegate_core::support::ceil_seconds;

use crate::line::{LineStanding, NoPlace};
use crate::ticket::TicketFault;

/// The answer to a visitor that may not enter.
///
/// ```
/// use sluicegate_overflow::line::MemoryLine;
/// use sluicegate_overflow::{Reply, WaitingRoom};
///
/// /// A page of the shop's own: it has to refresh itself.
/// fn page(reply: &Reply<'_>) -> String {
///     let (seconds, position) = (reply.refresh_seconds(), reply.position().unwrap_or_default());
///     format!("<!DOCTYPE html><meta http-equiv=refresh content={seconds}><p>You are number {position}.")
/// }
///
/// let room = WaitingRoom::builder("sale", "1000/s").page(page).build(MemoryLine::new())?;
/// # _ = room;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    pub(crate) room: &'a str,
    pub(crate) reason: Reason,
    pub(crate) standing: Option<LineStanding>,
    /// The time since the visitor's ticket for its place was issued, if it has shown one.
    pub(crate) waited: Option<Duration>,
    /// The reason why the visitor's ticket is invalid.
    pub(crate) fault: Option<LostPlace>,
}

/// The reason why a visitor has another place than its ticket says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostPlace {
    Ticket(TicketFault),
    /// The line does not know the place: it was used, given up, or the line began anew.
    Place,
}

/// The reason why a visitor may not enter.
///
/// | reason | the visitor keeps a place | the visitor asks again |
/// |---|---|---|
/// | `Waiting`, `NotOpen`, `Paused` | yes, by its ticket | when the line says |
/// | `Full`, `TooMany` | no | after a minute, or when another visitor of this client has entered |
/// | `EnterFirst` | only a place that it already has | by a GET |
/// | `Away` | yes: the line is polled again | after five seconds |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The visitor's turn has not come yet.
    Waiting,
    /// The room is not open yet.
    NotOpen,
    /// The room is paused.
    Paused,
    /// The line is full.
    Full,
    /// The client has as many places as it may have.
    TooMany,
    /// Only a GET takes a place, and this was another method without a pass.
    EnterFirst,
    /// The line does not answer; places are kept.
    Away,
}

impl Reason {
    /// The word for the reason in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::NotOpen => "not-open",
            Self::Paused => "paused",
            Self::Full => "full",
            Self::TooMany => "too-many-places",
            Self::EnterFirst => "enter-first",
            Self::Away => "away",
        }
    }

    /// One sentence for the visitor.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Waiting => "Visitors are let in one by one, in the order of their places.",
            Self::NotOpen => "It has not begun yet. Your place is drawn by lot when it begins.",
            Self::Paused => "Nobody is let in at the moment. You keep your place.",
            Self::Full => "The waiting room is full. Please come back later.",
            Self::TooMany => "Your network or your account has as many places in line as it may have.",
            Self::EnterFirst => "Open the page first: it leads to a place in line.",
            Self::Away => "The waiting room does not answer at the moment. Places that were given are kept.",
        }
    }
}

impl From<NoPlace> for Reason {
    fn from(none: NoPlace) -> Self {
        match none {
            NoPlace::Full => Self::Full,
            NoPlace::TooMany => Self::TooMany,
        }
    }
}

impl<'a> Reply<'a> {
    pub(crate) fn new(room: &'a str, reason: Reason) -> Self {
        Self { room, reason, standing: None, waited: None, fault: None }
    }

    /// The reply to a visitor that has to wait.
    pub(crate) fn waiting(room: &'a str, standing: LineStanding, fault: Option<LostPlace>) -> Self {
        let reason = match standing {
            LineStanding { wait: None, .. } => Reason::Paused,
            LineStanding { opens_after: Some(_), .. } => Reason::NotOpen,
            _ => Reason::Waiting,
        };
        Self { room, reason, standing: Some(standing), waited: None, fault }
    }

    /// The reply to a visitor whose ticket was issued this long ago.
    pub(crate) fn after(self, waited: Option<Duration>) -> Self {
        Self { waited, ..self }
    }

    /// The name of the room.
    pub fn room(&self) -> &'a str {
        self.room
    }

    /// The reason why the visitor may not enter.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The most visitors that will enter up to and including this one: 1 is the next. Not known before the lots are drawn.
    pub fn position(&self) -> Option<u64> {
        self.standing?.position
    }

    /// The longest wait until the visitor's turn.
    pub fn wait(&self) -> Option<Duration> {
        self.standing?.wait
    }

    /// The time until the room opens, if it is not open yet.
    pub fn opens_after(&self) -> Option<Duration> {
        self.standing?.opens_after
    }

    /// The time after which to ask again, in whole seconds, as in `Retry-After`.
    pub fn retry_after_seconds(&self) -> u64 {
        match (self.standing, self.reason) {
            (Some(standing), _) => whole_seconds(standing.ask_after),
            (None, Reason::Away) => 5,
            (None, _) => 60,
        }
    }

    /// The time after which the page has to refresh itself, in whole seconds: as [`retry_after_seconds`](Self::retry_after_seconds).
    pub fn refresh_seconds(&self) -> u64 {
        self.retry_after_seconds()
    }

    /// The reason why the visitor lost its former place, in one sentence.
    pub fn lost(&self) -> Option<String> {
        Some(match self.fault? {
            LostPlace::Place => "Your former place was given up, and this is a new one.".to_owned(),
            LostPlace::Ticket(fault) => format!("This is a new place: {fault}."),
        })
    }

    /// A response with this page, or with the reply as JSON.
    pub(crate) fn response<B: From<Bytes>>(&self, page: Option<String>, ticket: Option<&str>) -> Response<B> {
        let is_page = page.is_some();
        let body = page.unwrap_or_else(|| self.json(ticket));
        let mut response = Response::new(B::from(Bytes::from(body)));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let fields = response.headers_mut();
        let kind = if is_page { "text/html; charset=utf-8" } else { "application/problem+json" };
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields
            .insert(VARY, HeaderValue::from_static("cookie, accept, sec-fetch-mode, x-waiting-room-ticket"));
        fields.insert(RETRY_AFTER, self.retry_after_seconds().into());
        if is_page {
            fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(NOTHING_BUT_STYLE));
        }
        response
    }

    /// Writes problem details (RFC 9457), with the visitor's standing.
    fn json(&self, ticket: Option<&str>) -> String {
        let mut body = json!({
            "type": "about:blank",
            "title": "Waiting Room",
            "status": 503,
            "detail": self.reason.sentence(),
            "room": self.room,
            "reason": self.reason.word(),
        });
        if let Some(standing) = self.standing {
            body["ask_after_ms"] = millis(standing.ask_after).into();
            body["position"] = standing.position.into();
            body["wait_ms"] = standing.wait.map(millis).into();
            body["opens_after_ms"] = standing.opens_after.map(millis).into();
        }
        if let Some(ticket) = ticket {
            body["ticket"] = ticket.into();
        }
        if let Some(lost) = self.lost() {
            body["lost"] = lost.into();
        }
        body.to_string()
    }
}

/// The page needs no scripts, and loads nothing.
const NOTHING_BUT_STYLE: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Whole seconds, rounded up to at least one: a visitor that came early would have to come again.
fn whole_seconds(span: Duration) -> u64 {
    ceil_seconds(span).max(1)
}
