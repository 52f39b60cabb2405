//! Lines of fields between fixed texts, in the words of nginx's `log_format`: [`Template`].
//!
//! # How a line is taken apart
//! A field ends at the first place where the text behind it in the format begins. A format without a text between two fields would
//! therefore be ambiguous, and is refused. In quotes a client's text may hold anything but a quote: servers escape quotes, nginx as `\x22`
//! and Apache as `\"`, and both are undone when the value is used. A line that has all fields and something more is not understood, because
//! it may be of another format that begins alike.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use http::header::{HOST, USER_AGENT};
use smallvec::SmallVec;

use crate::read::format::time::{self, Moment, TimeReader};

/// `$name` between fixed texts.
#[derive(Clone, Debug)]
pub(in crate::read) struct Template {
    /// The text before the first field, mostly none.
    before: String,
    /// Each field with the text behind it.
    fields: Vec<(TemplateField, String)>,
}

#[derive(Clone, Debug)]
struct TemplateField {
    what: Field,
    /// Whether the field stands in quotes, where quotes of its own are escaped.
    is_quoted: bool,
    /// Whether it is a list if nginx has tried several servers: `a, b : c`.
    is_list: bool,
}

impl Template {
    /// Reads a `log_format`.
    pub(in crate::read) fn read(text: &str) -> Result<Self, String> {
        let mut parts = text.split('$');
        let before = parts.next().unwrap_or_default().to_owned();
        let mut fields: Vec<(TemplateField, String)> = Vec::new();
        for part in parts {
            let (name, after) = match part.strip_prefix('{').and_then(|part| part.split_once('}')) {
                Some(braced) => braced,
                None => part.split_at(
                    part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len()),
                ),
            };
            if name.is_empty() {
                return Err(format!("a $ in the format {text:?} has no name behind it"));
            }
            let ahead = fields.last().map_or(&*before, |(_, after)| after);
            if ahead.is_empty() && !fields.is_empty() {
                return Err(format!(
                    "nothing stands before ${name} in the format, so its beginning cannot be found"
                ));
            }
            let is_quoted = ahead.ends_with('"') && after.starts_with('"');
            let is_list = name.starts_with("upstream_") && after.starts_with(' ');
            fields.push((TemplateField { what: Field::named(name)?, is_quoted, is_list }, after.to_owned()));
        }
        let template = Self { before, fields };
        Field::check(template.fields.iter().map(|(field, _)| &field.what))?;
        Ok(template)
    }

    /// Returns the template without fields that clients write about themselves and nothing reads.
    pub(in crate::read) fn without(mut self, unread: &[HeaderName]) -> Self {
        for (field, _) in &mut self.fields {
            if matches!(&field.what, Field::Header(name) if unread.contains(name)) {
                let is_agent = field.what == Field::Header(USER_AGENT);
                field.what = if is_agent { Field::Agent } else { Field::Unread };
            }
        }
        self
    }

    /// Whether its lines say when a request began, or its end and the time that it took.
    pub(in crate::read) fn knows_arrival(&self) -> bool {
        self.fields.iter().any(|(field, _)| matches!(field.what, Field::Begin | Field::Took(_)))
    }

    /// Takes a line apart, into a new entry.
    pub(in crate::read) fn fill<'a>(
        &self,
        entry: &mut LogEntry<'a>,
        line: &'a str,
        clock: &mut TimeReader,
    ) -> Result<(), &'static str> {
        const SHORT: &str = "it does not have the fields of the format";
        let mut rest = line.strip_prefix(&*self.before).ok_or(SHORT)?;
        for (field, after) in &self.fields {
            let end = match (after.is_empty(), field.is_quoted) {
                // The last field ends with the line; only texts of clients have spaces.
                (true, _) if field.what.is_text() => Some(rest.len()),
                (true, _) => Some(memchr::memchr(b' ', rest.as_bytes()).unwrap_or(rest.len())),
                (false, true) => quote(rest, after, field.what == Field::Request),
                (false, false) if field.is_list => end_of_list(rest, after),
                (false, false) => end(rest, after),
            };
            let (value, behind) = rest.split_at(end.ok_or(SHORT)?);
            rest = &behind[after.len()..];
            match &field.what {
                Field::Unused | Field::Unread | Field::Rest => {}
                what => what.read(plain(value), entry, clock)?,
            }
        }
        if !rest.is_empty() {
            return Err("it has more than the fields of the format");
        }
        Ok(())
    }
}

/// The place where the text behind a field begins.
fn end(rest: &str, after: &str) -> Option<usize> {
    let (first, rest) = (*after.as_bytes().first()?, rest.as_bytes());
    memchr::memchr_iter(first, rest).find(|place| begins(&rest[*place..], after.as_bytes()))
}

/// Whether a text begins with another one of a few bytes, which a call would take longer to compare.
#[inline]
fn begins(text: &[u8], with: &[u8]) -> bool {
    text.len() >= with.len() && text.iter().zip(with).all(|(one, other)| one == other)
}

/// The place behind which a list of the servers that nginx has tried ends: `a, b : c`.
fn end_of_list(rest: &str, after: &str) -> Option<usize> {
    let mut place = end(rest, after)?;
    while rest[..place].ends_with([',', ':']) && rest[..place].len() > 1 || rest[place..].starts_with(" : ") {
        place += 1 + end(&rest[place + 1..], after)?;
    }
    Some(place)
}

/// The place of the quote that ends a field: the first one that is not escaped and has this text behind it. Some servers escape no quotes,
/// so a request ends at the first such quote behind its version, if it has one.
fn quote(text: &str, after: &str, is_request: bool) -> Option<usize> {
    let (bytes, mut from, mut first) = (text.as_bytes(), 0, None);
    while let Some(found) = bytes.get(from..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        let place = from + found;
        let is_end = bytes[place] == b'"' && begins(&bytes[place..], after.as_bytes());
        let version = memchr::memrchr(b' ', &bytes[..place]).map_or(place, |space| space + 1);
        if is_end && (!is_request || bytes[version..].starts_with(b"HTTP/")) {
            return Some(place);
        }
        if is_end {
            first = first.or(Some(place));
        }
        from = place + if bytes[place] == b'\\' { 2 } else { 1 };
    }
    first
}

/// Removes the escapes that nginx (`\x22`) and Apache (`\"`, `\\`, `\t`) write.
fn plain(value: &str) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', value.as_bytes()) else { return Cow::Borrowed(value) };
    let mut bytes = value.as_bytes()[..first].to_vec();
    let mut rest = &value.as_bytes()[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match rest.split_first() {
            Some((b'x', digits)) if digits.len() >= 2 && hex(&digits[..2]).is_some() => {
                bytes.extend(hex(&digits[..2]));
                rest = &digits[2..];
            }
            Some((escaped, after)) => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                rest = after;
            }
            None => bytes.push(b'\\'),
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

// The fields of a line, whatever its format: [`Field`], and the entry that they fill: [`LogEntry`].
//
// The texts of an entry are borrowed from the line wherever the line has them unescaped, which is nearly always: only escapes and JSON make
// texts of their own.

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
    fn is_text(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::format::TEMPLATES;

    fn known(name: &str) -> Template {
        let (_, texts) = TEMPLATES.iter().find(|(known, _)| *known == name).unwrap();
        Template::read(texts[0]).unwrap()
    }

    impl Template {
        fn parse<'a>(&self, line: &'a str, clock: &mut TimeReader) -> Result<LogEntry<'a>, &'static str> {
            let mut entry = LogEntry::default();
            self.fill(&mut entry, line, clock).map(|()| entry)
        }
    }

    const LINE: &str =
        r#"2001:db8::7 - ada [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 17 "-" "say \"hi\" \\" "#;

    #[test]
    fn quotes_inside_of_quotes_are_escaped_as_nginx_and_apache_do() {
        let combined = known("combined");
        let entry = combined.parse(LINE.trim_end(), &mut TimeReader::default()).unwrap();
        assert_eq!((&*entry.method, &*entry.target, entry.status), ("GET", "/a?b=c", Some(200)));
        assert_eq!(entry.peer, Some("2001:db8::7".parse().unwrap()));
        assert_eq!(entry.headers[..], [(http::header::USER_AGENT, Cow::Borrowed(r#"say "hi" \"#))]);
        assert_eq!(plain(r"\x22\x5C\xe2\x82\xac \xZZ"), "\"\\\u{20ac} xZZ");
        assert_eq!(plain("\\"), "\\");
    }

    #[test]
    fn a_line_has_all_fields_and_nothing_more() {
        let combined = known("combined");
        for line in
            ["", "-", LINE, &LINE[..60], "::1 - - [17/May/2015:10:05:03 +0000] \"\" 400 0 \"-\" \"-\""]
        {
            assert!(combined.parse(line, &mut TimeReader::default()).is_err(), "{line:?}");
        }
        assert!(known("common").parse(LINE.trim_end(), &mut TimeReader::default()).is_err());
    }

    #[test]
    fn nginx_logs_the_end_of_a_request_so_its_time_is_taken_off() {
        let format =
            r#"$msec $request_time $remote_addr $request_method "$request_uri" $http_x_api_key $args"#;
        let template = Template::read(format).unwrap();
        assert!(template.knows_arrival());
        let entry = template
            .parse(r#"1431857103.250 1.500 192.0.2.7 POST "/login" k1 a=b"#, &mut TimeReader::default())
            .unwrap();
        assert_eq!(entry.arrival().unwrap().us, 1_431_857_101_750_000);
        assert_eq!((&*entry.method, &*entry.target, &*entry.headers[0].1), ("POST", "/login", "k1"));
        for took in ["-1.5", "1e3", "2592000.1", "99999999999999999999"] {
            let line = format!(r#"1431857103.250 {took} 192.0.2.7 POST "/login" k1 a=b"#);
            assert_eq!(
                template.parse(&line, &mut TimeReader::default()).unwrap_err(),
                "the time that it took is not one of 0 s to 30 days"
            );
        }
        assert!(
            template
                .parse(r#"100.250 101.0 192.0.2.7 POST "/login" k1 a=b"#, &mut TimeReader::default())
                .unwrap()
                .arrival()
                .is_err()
        );
    }

    #[test]
    fn formats_that_say_too_little_are_refused_with_what_they_need() {
        for (format, needs) in [
            ("$request", "no time"),
            ("$msec $status", "no URL"),
            ("$msec$request", "nothing stands before"),
            ("$msec $", "no name"),
        ] {
            let error = Template::read(format).unwrap_err();
            assert!(error.contains(needs), "{error}");
        }
    }
}
