//! The format of the lines of a log: [`Format`].

mod template;
pub(crate) mod time;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::HeaderName;
use serde_json::{Map, Value};
use smallvec::SmallVec;

use crate::read::format::template::{COMBINED, COMMON, Template};
use crate::read::format::time::{Moment, TimeReader};

/// The format of the lines of a log. It is read from `combined`, `common`, `json`, or an nginx `log_format`.
///
/// ```
/// use sluicegate_replay::Format;
///
/// let format: Format = r#"$msec $request_time $remote_addr "$request" $http_x_api_key"#.parse()?;
/// assert!(format.knows_arrival());
/// assert!("$request".parse::<Format>().is_err()); // no line would have a time
/// # Ok::<(), String>(())
/// ```
///
/// | in a `log_format` | is |
/// |---|---|
/// | `$remote_addr`, `$realip_remote_addr` | the address of the peer, with or without a port; `unix:` is none |
/// | `$msec`, `$time_iso8601`, `$time_local` | the time; the finest one present counts |
/// | `$request_time` | the duration in seconds, which is subtracted from `$msec` |
/// | `$request` | method, URL and version |
/// | `$request_method`, `$request_uri`, `$uri`, `$document_uri` | the parts of `$request` |
/// | `$args`, `$query_string` | the query, if the URL has none |
/// | `$status` | the status of the response |
/// | `$host`, `$http_NAME` | a header field, `-` if it was missing |
/// | any other | is ignored |
///
/// There must be some text between two variables; a variable in quotes ends at the first quote that is not escaped.
///
/// Lines of `json` are objects with the names that nginx, Caddy, Traefik and others give to these parts: `msec`, `ts`, `time`,
/// `@timestamp`; `remote_addr`, `remote_ip`, `client_ip`; `request`, or `method` and `uri`; `status`; `http_NAME`, or an object of
/// `headers`. Names of an inner object `request` count if the outer one has none.
#[derive(Clone, Debug)]
pub struct Format(FormatKind);

#[derive(Clone, Debug)]
enum FormatKind {
    Template(&'static str, Template),
    Json,
}

impl Format {
    /// The format that fits most of these lines, if any fits.
    pub(crate) fn guess<'a>(lines: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let known = ["common", "combined", "json"].iter().filter_map(|name| name.parse::<Self>().ok());
        let mut clock = TimeReader::default();
        let counted = known.map(|format| {
            (lines.clone().filter(|line| format.parse(line, &mut clock).is_ok()).count(), format)
        });
        let (count, format) = counted.max_by_key(|(count, _)| *count)?;
        (count > 0).then_some(format)
    }

    /// Returns the format without a look at header fields of these names.
    pub(crate) fn without(self, unread: &[HeaderName]) -> Self {
        Self(match self.0 {
            FormatKind::Template(name, template) => FormatKind::Template(name, template.without(unread)),
            FormatKind::Json => FormatKind::Json,
        })
    }

    /// Takes a line apart, or says why it cannot.
    pub(super) fn parse<'a>(
        &self,
        line: &'a str,
        clock: &mut TimeReader,
    ) -> Result<LogEntry<'a>, &'static str> {
        let mut entry = LogEntry::default();
        self.fill(&mut entry, line, clock).map(|()| entry)
    }

    /// Takes a line apart into a new entry in place: an entry is large, and returning it copied it twice for each line.
    #[inline]
    pub(super) fn fill<'a>(
        &self,
        entry: &mut LogEntry<'a>,
        line: &'a str,
        clock: &mut TimeReader,
    ) -> Result<(), &'static str> {
        match &self.0 {
            FormatKind::Template(_, template) => template.fill(entry, line, clock),
            FormatKind::Json => parse(line).map(|read| *entry = read),
        }
    }

    /// The moment when the request of a line came, in microseconds; `None` for a line that is not understood.
    pub(crate) fn when(&self, line: &[u8]) -> Option<u64> {
        let entry = self.parse(std::str::from_utf8(line).ok()?, &mut TimeReader::default()).ok()?;
        entry.arrival().ok().map(|moment| moment.us)
    }

    /// Whether the beginning of a request is known, from the time of its end and the time that it took. Otherwise it is replayed at the
    /// logged time, which is the end for nginx and the beginning for Apache. With `json` this differs by line, and the outcome says whether
    /// all lines have known beginnings.
    pub fn knows_arrival(&self) -> bool {
        match &self.0 {
            FormatKind::Template(_, template) => template.knows_arrival(),
            FormatKind::Json => false,
        }
    }
}

impl FromStr for Format {
    type Err = String;

    /// # Errors
    /// When a `log_format` has no time or no URL.
    fn from_str(text: &str) -> Result<Self, String> {
        let template = |name, text: &str| {
            Template::read(text).map(|template| Self(FormatKind::Template(name, template)))
        };
        match text {
            "combined" => template("combined", COMBINED),
            "common" => template("common", COMMON),
            "json" => Ok(Self(FormatKind::Json)),
            text if text.contains('$') => template("log_format", text),
            other => Err(format!(
                "{other:?} is not a format: use combined, common, json, or nginx's log_format, such as '$remote_addr [$time_local] \"$request\"'"
            )),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            FormatKind::Template(name, _) => name,
            FormatKind::Json => "json",
        })
    }
}

// The contents of a line: [`LogEntry`].
//
// Its texts are borrowed from the line wherever the line has them unescaped, which is nearly always: only escapes and JSON make texts of
// their own.

/// A request as a line has it.
#[derive(Debug, Default)]
pub(super) struct LogEntry<'a> {
    /// The moment as it was logged, of the beginning or of the end.
    pub(super) moment: Option<Moment>,
    /// The time that it took, in microseconds.
    took_us: Option<u64>,
    /// Whether the moment is known to be the end of the request.
    is_end: bool,
    /// Empty if the format has none.
    pub(super) method: Cow<'a, str>,
    /// The URL as the client has sent it, mostly a path with a query.
    pub(super) target: Cow<'a, str>,
    /// The query, if the target has none.
    pub(super) query: Option<Cow<'a, str>>,
    /// The address from which the connection came; `None` for a connection over a Unix socket.
    pub(super) peer: Option<IpAddr>,
    /// The status that the client was sent.
    pub(super) status: Option<u16>,
    /// The user agent, where no rule reads it and it is not among the header fields.
    pub(super) agent: Cow<'a, str>,
    /// Fields that the format has and that were not `-`; few, so they stand in the entry.
    pub(super) headers: SmallVec<[(HeaderName, Cow<'a, str>); 4]>,
}

/// The longest that a request may have taken, in microseconds; a line with a longer time must be wrong.
const LONGEST_US: u64 = 30 * 86_400 * 1_000_000;

impl<'a> LogEntry<'a> {
    /// Takes `GET /path HTTP/1.1` apart.
    pub(super) fn request(&mut self, text: Cow<'a, str>) -> Result<(), &'static str> {
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
    pub(super) fn peer(&mut self, text: &str) -> Result<(), &'static str> {
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
    pub(super) fn status(&mut self, text: &str) -> Result<(), &'static str> {
        let status = text.parse().ok().filter(|status| (0..=999).contains(status));
        self.status = Some(status.ok_or("the status is not a number of three digits")?);
        Ok(())
    }

    /// Reads the time that the request took, in seconds with a fraction.
    fn took(&mut self, text: &str) -> Result<(), &'static str> {
        let took = crate::read::format::time::seconds(text).filter(|took| *took <= LONGEST_US);
        self.took_us = Some(took.ok_or("the time that it took is not one of 0 s to 30 days")?);
        Ok(())
    }

    /// Whether the beginning is known, from the end and the time that the request took.
    pub(super) fn knows_arrival(&self) -> bool {
        self.is_end && self.took_us.is_some()
    }

    /// The moment when the request came.
    ///
    /// # Errors
    /// When the line has no time, or the request took longer than the time since 1970.
    pub(super) fn arrival(&self) -> Result<Moment, &'static str> {
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

// Lines that are objects of JSON, with the names that nginx, Caddy, Traefik and others give.
//
// # Names
// There is no standard for such logs, so each part is searched under the names that servers are known to give it, the more exact one
// first: `msec` has milliseconds where `time_local` has seconds. Each line is read by itself; a log may change its names in the middle.
//
// # Cost
// A line is read into a map before its parts are taken out, which takes several times as long as a line of fields.

const TIMES: [&str; 9] =
    ["msec", "time_iso8601", "time_local", "@timestamp", "timestamp", "ts", "time", "StartUTC", "start_time"];
const PEERS: [&str; 7] = ["remote_addr", "remote_ip", "client_ip", "clientip", "ClientHost", "ip", "client"];
const METHODS: [&str; 4] = ["request_method", "method", "RequestMethod", "verb"];
const TARGETS: [&str; 6] = ["request_uri", "uri", "url", "RequestPath", "path", "target"];
const STATUSES: [&str; 5] = ["status", "status_code", "DownstreamStatus", "response_code", "response"];

/// Takes a line apart.
///
/// # Errors
/// The first part that is missing or cannot be read: the time, the method, the URL, the client's address, the status.
pub(super) fn parse(line: &str) -> Result<LogEntry<'_>, &'static str> {
    let object: Map<String, Value> = serde_json::from_str(line).map_err(|_| "it is not an object of JSON")?;
    // Caddy has most parts in an object of their own.
    let inner = object.get("request").and_then(Value::as_object);
    let find = |names: &[&str]| {
        let of = |object: &Map<String, Value>| names.iter().find_map(|name| object.get(*name).cloned());
        of(&object).or_else(|| inner.and_then(of)).map(text)
    };
    let moment = find(&TIMES).as_deref().and_then(moment).ok_or("its time cannot be read")?;
    let mut entry = LogEntry { moment: Some(moment), ..LogEntry::default() };
    if let (true, Some(took)) = (object.contains_key("msec"), find(&["request_time"])) {
        entry.is_end = true;
        entry.took(&took)?;
    }
    if let Some(peer) = find(&PEERS) {
        entry.peer(&peer)?;
    }
    if let Some(status) = find(&STATUSES) {
        entry.status(&status)?;
    }
    match object.get("request") {
        Some(Value::String(request)) => entry.request(Cow::Owned(request.clone()))?,
        _ => {
            entry.method = find(&METHODS).map(Cow::Owned).ok_or("it has no method")?;
            entry.target = find(&TARGETS).map(Cow::Owned).ok_or("it has no URL")?;
        }
    }
    headers(&object, &mut entry);
    if let Some(inner) = inner {
        headers(inner, &mut entry);
    }
    Ok(entry)
}

/// Reads header fields: `http_user_agent`, `host`, and an object of `headers`, each a text or a list.
fn headers(object: &Map<String, Value>, entry: &mut LogEntry<'_>) {
    let named = object.iter().filter_map(|(name, value)| match &**name {
        "host" => Some(("host".to_owned(), value)),
        "user_agent" | "referer" => Some((name.replace('_', "-"), value)),
        name => Some((name.strip_prefix("http_")?.replace('_', "-"), value)),
    });
    let listed = object.get("headers").and_then(Value::as_object).into_iter().flatten();
    for (name, value) in named.chain(listed.map(|(name, value)| (name.clone(), value))) {
        let value = value.as_array().and_then(|values| values.first()).unwrap_or(value);
        if let (Ok(name), Value::String(value)) = (name.parse(), value)
            && value != "-"
            && !value.is_empty()
        {
            entry.headers.push((name, Cow::Owned(value.clone())));
        }
    }
}

/// Reads a number as it is written, because servers differ about quotes.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Reads a time in any of the three forms.
fn moment(text: &str) -> Option<Moment> {
    time::unix(text).or_else(|| time::iso(text)).or_else(|| time::local(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_nginx_caddy_and_traefik_say_the_same() {
        let nginx = r#"{"msec":"1431857104.500","request_time":"1.250","remote_addr":"192.0.2.7","request":"GET /a?b HTTP/2.0","status":"200","http_x_api_key":"k1"}"#;
        let caddy = r#"{"ts":1431857103.25,"request":{"remote_ip":"192.0.2.7","method":"GET","uri":"/a?b","headers":{"X-Api-Key":["k1"]}},"status":200}"#;
        let traefik = r#"{"StartUTC":"2015-05-17T10:05:03.25Z","ClientHost":"192.0.2.7","RequestMethod":"GET","RequestPath":"/a?b","DownstreamStatus":200,"http_x_api_key":"k1"}"#;
        for line in [nginx, caddy, traefik] {
            let entry = parse(line).unwrap();
            assert_eq!(entry.arrival(), Ok(Moment { us: 1_431_857_103_250_000, is_whole: false }), "{line}");
            assert_eq!((&*entry.method, &*entry.target, entry.status), ("GET", "/a?b", Some(200)));
            assert_eq!(entry.peer, Some("192.0.2.7".parse().unwrap()));
            assert_eq!((entry.headers[0].0.as_str(), &*entry.headers[0].1), ("x-api-key", "k1"));
        }
        for line in ["", "[]", "{}", r#"{"ts":1}"#, r#"{"ts":-1,"method":"GET","uri":"/"}"#] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
