//! The fields of a line, whatever its format: [`Field`], and the entry that they fill: [`LogEntry`].
//!
//! The texts of an entry are borrowed from the line wherever the line has them unescaped, which is nearly always: only escapes and JSON make
//! texts of their own.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use http::header::HOST;
use smallvec::SmallVec;

use crate::read::format::time::{self, Moment, TimeReader};

/// A request as a line has it.
#[derive(Debug, Default)]
pub(in crate::read) struct LogEntry<'a> {
    /// The moment as it was logged: the end, if the line also says how long the request took.
    moment: Option<Moment>,
    /// The moment when the request came, if the line says it.
    begin: Option<Moment>,
    /// The time that it took, in microseconds.
    took_us: Option<u64>,
    /// The day of a line that has the time of day in another field.
    day: Cow<'a, str>,
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

const NO_TIME: &str = "its time cannot be read";

/// The meaning of a field. Unknown names are skipped, because a format may have more than a replay needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Time,
    Begin,
    /// The day, and the time of day in UTC.
    Day,
    Clock,
    /// The time from the first byte of the request to the last of its response, in this unit.
    Took(&'static str),
    Peer,
    /// The peer with its port, which HAProxy writes behind IPv6 addresses too.
    PeerAndPort,
    /// `X-Forwarded-For`, whose last address is the peer if the format has no other.
    Forwarded,
    Request,
    Method,
    Target,
    Query,
    Status,
    Header(HeaderName),
    /// All header fields, as an object of JSON.
    Headers,
    /// The user agent, which no rule reads.
    Agent,
    /// A header field that nothing reads.
    Unread,
    /// All that follows.
    Rest,
    Unused,
}

impl Field {
    /// The field that a word names, in a `log_format` or for JSON.
    ///
    /// # Errors
    /// For `http_` with a name that no header field can have.
    pub(super) fn named(word: &str) -> Result<Self, String> {
        Ok(match word {
            "time" | "time_local" | "time_iso8601" | "msec" => Self::Time,
            "begin" => Self::Begin,
            "day" => Self::Day,
            "clock" => Self::Clock,
            "took" | "request_time" => Self::Took("s"),
            "took_ms" => Self::Took("ms"),
            "took_us" => Self::Took("us"),
            "took_ns" => Self::Took("ns"),
            "client" | "remote_addr" | "realip_remote_addr" => Self::Peer,
            "client_and_port" => Self::PeerAndPort,
            "forwarded" => Self::Forwarded,
            "request" => Self::Request,
            "method" | "request_method" => Self::Method,
            "url" | "request_uri" | "uri" | "document_uri" => Self::Target,
            "query" | "args" | "query_string" => Self::Query,
            "status" => Self::Status,
            "host" => Self::Header(HOST),
            "headers" => Self::Headers,
            "rest" => Self::Rest,
            _ => match word.strip_prefix("http_") {
                Some(header) => {
                    let name = header.replace('_', "-");
                    Self::Header(name.parse().map_err(|_| format!("{word} is not a header field"))?)
                }
                None => Self::Unused,
            },
        })
    }

    /// Checks that a format has what each request needs.
    ///
    /// # Errors
    /// When none of its fields is a time, or none is a URL.
    pub(super) fn check<'a>(fields: impl Iterator<Item = &'a Self> + Clone) -> Result<(), String> {
        let has = |wanted: &[Self]| fields.clone().any(|field| wanted.contains(field));
        if !has(&[Self::Time, Self::Begin, Self::Clock]) {
            return Err(
                "the format has no time: it needs $msec, $time_iso8601, $time_local or $begin".to_owned()
            );
        }
        if !has(&[Self::Request, Self::Target]) {
            return Err(
                "the format has no URL: it needs $request, or $request_method and $request_uri".to_owned()
            );
        }
        Ok(())
    }

    /// Whether a client writes it, with spaces.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Agent | Self::Unread | Self::Rest | Self::Forwarded)
    }

    /// Reads the value of this field into an entry.
    ///
    /// # Errors
    /// The reason why the value is none of this field.
    pub(super) fn read<'a>(
        &self,
        value: Cow<'a, str>,
        entry: &mut LogEntry<'a>,
        clock: &mut TimeReader,
    ) -> Result<(), &'static str> {
        match self {
            Self::Time if entry.moment.is_none_or(|known| known.is_whole) => {
                let moment = clock.read(&value).ok_or(NO_TIME)?;
                if entry.moment.is_none() || !moment.is_whole {
                    entry.moment = Some(moment);
                }
            }
            Self::Begin if *value != *"-" => entry.begin = Some(clock.read(&value).ok_or(NO_TIME)?),
            Self::Day => entry.day = value,
            Self::Clock => {
                let moment = clock.read(&format!("{} {value}Z", entry.day));
                entry.moment = Some(moment.ok_or(NO_TIME)?);
            }
            Self::Took(unit) if *value != *"-" => {
                let took = time::lasting(&value, unit).filter(|took| *took <= LONGEST_US);
                entry.took_us = Some(took.ok_or("the time that it took is not one of 0 s to 30 days")?);
            }
            // A name has no spaces, and the lines of another program may begin alike.
            Self::Peer | Self::PeerAndPort if value.contains(' ') && !value.contains(',') => {
                return Err("the client has spaces");
            }
            Self::Peer => entry.peer = address(&value).or(entry.peer),
            Self::PeerAndPort => {
                entry.peer = value.rsplit_once(':').and_then(|(client, _)| address(client));
            }
            Self::Forwarded if *value != *"-" && !value.is_empty() => {
                entry.peer = entry.peer.or_else(|| address(value.rsplit(',').next()?.trim()));
                entry.headers.push((HeaderName::from_static("x-forwarded-for"), value));
            }
            Self::Request => entry.request(value)?,
            Self::Method => entry.method = value,
            Self::Target => entry.target = value,
            Self::Query if *value != *"-" && !value.is_empty() => {
                entry.query = Some(match value.strip_prefix('?') {
                    Some(query) => Cow::Owned(query.to_owned()),
                    None => value,
                });
            }
            // 499, which nginx invents for clients that hung up, is a status.
            Self::Status if *value != *"-" => {
                let status = value.parse().ok().filter(|status| (0..=999).contains(status));
                entry.status = Some(status.ok_or("the status is not a number of three digits")?);
            }
            Self::Agent => entry.agent = value,
            Self::Header(name) if *value != *"-" && !value.is_empty() => {
                entry.headers.push((name.clone(), value))
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads the address of a peer, with or without a port or a zone. A Unix socket has none, and a name that was looked up is none.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.split(']').next()).unwrap_or(text);
    let bare = bare.split('%').next()?;
    let address: Option<IpAddr> =
        bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    address.map(|address| address.to_canonical())
}

impl LogEntry<'_> {
    /// Whether the beginning is known, from the line or from the end and the time that the request took.
    pub(in crate::read) fn knows_arrival(&self) -> bool {
        self.begin.is_some() || self.took_us.is_some()
    }

    /// The moment when the request came. An end of a whole second is taken in the middle of it, and so is a beginning that follows from it.
    ///
    /// # Errors
    /// When the line has no time, or the request took longer than the time since 1970.
    pub(in crate::read) fn arrival(&self) -> Result<Moment, &'static str> {
        const SECOND_US: u64 = 1_000_000;
        let (Some(end), None) = (self.moment, self.begin) else { return self.begin.ok_or("it has no time") };
        let Some(took_us) = self.took_us else { return Ok(end) };
        let end_us = if end.is_whole { end.us + SECOND_US / 2 } else { end.us };
        let us = end_us.checked_sub(took_us).ok_or("it began before 1970")?;
        Ok(Moment { us: if end.is_whole { us - us % SECOND_US } else { us }, ..end })
    }
}

impl<'a> LogEntry<'a> {
    /// Takes `GET /path HTTP/1.1` apart. HTTP/0.9 has no version, and only such a URL has no spaces.
    fn request(&mut self, text: Cow<'a, str>) -> Result<(), &'static str> {
        let split = |text: &str| {
            let method = memchr::memchr(b' ', text.as_bytes())?;
            let rest = &text.as_bytes()[method + 1..];
            let target = match memchr::memrchr(b' ', rest) {
                Some(target) => rest[target + 1..].starts_with(b"HTTP/").then_some(target)?,
                None => rest.len(),
            };
            (method > 0 && target > 0).then_some((method, target))
        };
        let (method, target) = split(&text).ok_or("the request is not METHOD URL HTTP/VERSION")?;
        let target = method + 1..method + 1 + target;
        (self.method, self.target) = match text {
            Cow::Borrowed(text) => (Cow::Borrowed(&text[..method]), Cow::Borrowed(&text[target])),
            Cow::Owned(text) => (Cow::Owned(text[..method].to_owned()), Cow::Owned(text[target].to_owned())),
        };
        Ok(())
    }
}
