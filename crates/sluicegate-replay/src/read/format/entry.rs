//! The contents of a line: [`LogEntry`].
//!
//! Its texts are borrowed from the line wherever the line has them unescaped, which is nearly always: only escapes and JSON make texts of
//! their own.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderName;
use smallvec::SmallVec;

use super::time::Moment;

/// A request as a line has it.
#[derive(Debug, Default)]
pub(in crate::read) struct LogEntry<'a> {
    /// The moment as it was logged, of the beginning or of the end.
    pub(in crate::read) moment: Option<Moment>,
    /// The time that it took, in microseconds.
    pub(super) took_us: Option<u64>,
    /// Whether the moment is known to be the end of the request.
    pub(super) is_end: bool,
    /// Empty if the format has none.
    pub(in crate::read) method: Cow<'a, str>,
    /// The URL as the client has sent it, mostly a path with a query.
    pub(in crate::read) target: Cow<'a, str>,
    /// The query, if the target has none.
    pub(in crate::read) query: Option<Cow<'a, str>>,
    /// The address from which the connection came; `None` for a connection over a Unix socket.
    pub(in crate::read) peer: Option<IpAddr>,
    /// The status that the client was sent.
    pub(in crate::read) status: Option<u16>,
    /// The user agent, where no rule reads it and it is not among the header fields.
    pub(in crate::read) agent: Cow<'a, str>,
    /// Fields that the format has and that were not `-`; few, so they stand in the entry.
    pub(in crate::read) headers: SmallVec<[(HeaderName, Cow<'a, str>); 4]>,
}

/// The longest that a request may have taken, in microseconds; a line with a longer time must be wrong.
const LONGEST_US: u64 = 30 * 86_400 * 1_000_000;

impl<'a> LogEntry<'a> {
    /// Takes `GET /path HTTP/1.1` apart.
    pub(in crate::read) fn request(&mut self, text: Cow<'a, str>) -> Result<(), &'static str> {
        const WRONG: &str = "the request is not METHOD URL HTTP/VERSION";
        let split = |text: &str| {
            let method = memchr::memchr(b' ', text.as_bytes())?;
            let rest = &text[method + 1..];
            // HTTP/0.9 has no version; a URL has no space.
            let target = match memchr::memchr(b' ', rest.as_bytes()) {
                Some(target) if rest.as_bytes()[target + 1..].starts_with(b"HTTP/") => target,
                Some(_) => 0,
                None => rest.len(),
            };
            (method > 0 && target > 0).then_some((method, target))
        };
        let (method, target) = split(&text).ok_or(WRONG)?;
        let target = method + 1..method + 1 + target;
        (self.method, self.target) = match text {
            Cow::Borrowed(text) => (Cow::Borrowed(&text[..method]), Cow::Borrowed(&text[target])),
            Cow::Owned(text) => (Cow::Owned(text[..method].to_owned()), Cow::Owned(text[target].to_owned())),
        };
        Ok(())
    }

    /// Reads the address of the peer. A Unix socket has none.
    pub(in crate::read) fn peer(&mut self, text: &str) -> Result<(), &'static str> {
        self.peer = match text.parse() {
            Ok(address) => Some(address),
            Err(_) if text.starts_with("unix:") => None,
            Err(_) => {
                let bare = text.strip_prefix('[').and_then(|text| text.split(']').next()).unwrap_or(text);
                // Some logs add the port; a name was looked up, and is not an address.
                let address =
                    bare.parse().or_else(|_| text.parse().map(|address: std::net::SocketAddr| address.ip()));
                Some(address.map_err(|_| "the client is not an address")?)
            }
        };
        Ok(())
    }

    /// Reads a status up to 999; 499, which nginx invents for clients that hung up, is one.
    pub(in crate::read) fn status(&mut self, text: &str) -> Result<(), &'static str> {
        let status = text.parse().ok().filter(|status| (0..=999).contains(status));
        self.status = Some(status.ok_or("the status is not a number of three digits")?);
        Ok(())
    }

    /// Reads the time that the request took, in seconds with a fraction.
    pub(super) fn took(&mut self, text: &str) -> Result<(), &'static str> {
        let took = super::time::seconds(text).filter(|took| *took <= LONGEST_US);
        self.took_us = Some(took.ok_or("the time that it took is not one of 0 s to 30 days")?);
        Ok(())
    }

    /// Whether the beginning is known, from the end and the time that the request took.
    pub(in crate::read) fn knows_arrival(&self) -> bool {
        self.is_end && self.took_us.is_some()
    }

    /// The moment when the request came.
    ///
    /// # Errors
    /// When the line has no time, or the request took longer than the time since 1970.
    pub(in crate::read) fn arrival(&self) -> Result<Moment, &'static str> {
        let moment = self.moment.ok_or("it has no time")?;
        match self.took_us.filter(|_| self.is_end) {
            None => Ok(moment),
            Some(took) => {
                let us = moment.us.checked_sub(took).ok_or("it began before 1970")?;
                Ok(Moment { us, ..moment })
            }
        }
    }
}
