//! Lines of fields between fixed texts, in the words of nginx's `log_format`: [`Template`].
//!
//! # How a line is taken apart
//! A field ends at the first place where the text behind it in the format begins. A format without a text between two fields would
//! therefore be ambiguous, and is refused. In quotes a client's text may hold anything but a quote: servers escape quotes, nginx as `\x22`
//! and Apache as `\"`, and both are undone when the value is used. A line that has all fields and something more is not understood, because
//! it may be of another format that begins alike.

use std::borrow::Cow;

use http::HeaderName;

use crate::read::format::time::TimeReader;
use crate::read::format::{LogEntry, time};

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
    what: FieldMeaning,
    /// Whether the field stands in quotes, where quotes of its own are escaped.
    is_quoted: bool,
}

/// The meaning of a field. Unknown names are skipped, because a format may have more than a replay needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldMeaning {
    Peer,
    LocalTime,
    IsoTime,
    UnixTime,
    /// Seconds from the first byte of the request to the last of its response.
    Took,
    Request,
    Method,
    Target,
    Query,
    Status,
    Header(HeaderName),
    /// The user agent, which no rule reads.
    Agent,
    /// A header field that nothing reads.
    Unread,
    Unused,
}

pub(in crate::read) const COMMON: &str =
    r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent"#;
pub(in crate::read) const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;

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
            fields.push((TemplateField { what: FieldMeaning::named(name)?, is_quoted }, after.to_owned()));
        }
        let template = Self { before, fields };
        let has =
            |wanted: &[FieldMeaning]| template.fields.iter().any(|(field, _)| wanted.contains(&field.what));
        if !has(&[FieldMeaning::LocalTime, FieldMeaning::IsoTime, FieldMeaning::UnixTime]) {
            return Err("the format has no time: it needs $msec, $time_iso8601 or $time_local".to_owned());
        }
        if !has(&[FieldMeaning::Request, FieldMeaning::Target]) {
            return Err(
                "the format has no URL: it needs $request, or $request_method and $request_uri".to_owned()
            );
        }
        Ok(template)
    }

    /// Returns the template without fields that clients write about themselves and nothing reads.
    pub(in crate::read) fn without(mut self, unread: &[HeaderName]) -> Self {
        for (field, _) in &mut self.fields {
            if matches!(&field.what, FieldMeaning::Header(name) if unread.contains(name)) {
                field.what = match &field.what {
                    FieldMeaning::Header(name) if *name == http::header::USER_AGENT => FieldMeaning::Agent,
                    _ => FieldMeaning::Unread,
                };
            }
        }
        self
    }

    /// Whether the moment and the time that a request took are both there, so that its beginning is known.
    pub(in crate::read) fn knows_arrival(&self) -> bool {
        let has = |what: &FieldMeaning| self.fields.iter().any(|(field, _)| field.what == *what);
        has(&FieldMeaning::UnixTime) && has(&FieldMeaning::Took)
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
                (false, true) => quote(rest),
                (false, false) => end(rest, after),
            };
            let (value, behind) = rest.split_at(end.ok_or(SHORT)?);
            // If the text after a field was searched, it is there.
            if field.is_quoted && !begins(behind.as_bytes(), after.as_bytes()) {
                return Err(SHORT);
            }
            rest = &behind[after.len()..];
            field.read(value, entry, clock)?;
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

/// The place of the quote that ends a field: the first one that is not escaped.
fn quote(text: &str) -> Option<usize> {
    let (bytes, mut from) = (text.as_bytes(), 0);
    loop {
        let place = from + memchr::memchr2(b'"', b'\\', bytes.get(from..)?)?;
        if bytes[place] == b'"' {
            return Some(place);
        }
        from = place + 2;
    }
}

impl FieldMeaning {
    /// Whether a client writes it, with spaces.
    fn is_text(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Agent | Self::Unread)
    }

    /// # Errors
    /// For `$http_` with a name that no header field can have.
    fn named(name: &str) -> Result<Self, String> {
        Ok(match name {
            "remote_addr" | "realip_remote_addr" => Self::Peer,
            "time_local" => Self::LocalTime,
            "time_iso8601" => Self::IsoTime,
            "msec" => Self::UnixTime,
            "request_time" => Self::Took,
            "request" => Self::Request,
            "request_method" => Self::Method,
            "request_uri" | "uri" | "document_uri" => Self::Target,
            "args" | "query_string" => Self::Query,
            "status" => Self::Status,
            "host" => Self::Header(http::header::HOST),
            _ => match name.strip_prefix("http_") {
                Some(header) => {
                    let name = header.replace('_', "-");
                    Self::Header(name.parse().map_err(|_| format!("${name} is not a header field"))?)
                }
                None => Self::Unused,
            },
        })
    }
}

impl TemplateField {
    fn read<'a>(
        &self,
        value: &'a str,
        entry: &mut LogEntry<'a>,
        clock: &mut TimeReader,
    ) -> Result<(), &'static str> {
        const NO_TIME: &str = "its time cannot be read";
        match &self.what {
            FieldMeaning::Unused | FieldMeaning::Unread => return Ok(()),
            FieldMeaning::LocalTime if entry.moment.is_none_or(|known| known.is_whole) => {
                entry.moment = Some(clock.local(value).ok_or(NO_TIME)?);
            }
            FieldMeaning::IsoTime if entry.moment.is_none_or(|known| known.is_whole) => {
                entry.moment = Some(time::iso(value).ok_or(NO_TIME)?);
            }
            FieldMeaning::LocalTime | FieldMeaning::IsoTime => {}
            FieldMeaning::UnixTime => {
                entry.moment = Some(time::unix(value).ok_or(NO_TIME)?);
                entry.is_end = true;
            }
            FieldMeaning::Took => return entry.took(value),
            FieldMeaning::Peer => return entry.peer(value),
            FieldMeaning::Status => return entry.status(value),
            FieldMeaning::Request => return entry.request(plain(value)),
            FieldMeaning::Method => entry.method = plain(value),
            FieldMeaning::Target => entry.target = plain(value),
            FieldMeaning::Query if value != "-" && !value.is_empty() => entry.query = Some(plain(value)),
            FieldMeaning::Query => {}
            FieldMeaning::Agent => entry.agent = plain(value),
            FieldMeaning::Header(name) if value != "-" => entry.headers.push((name.clone(), plain(value))),
            FieldMeaning::Header(_) => {}
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let combined = Template::read(COMBINED).unwrap();
        let entry = combined.parse(LINE.trim_end(), &mut TimeReader::default()).unwrap();
        assert_eq!((&*entry.method, &*entry.target, entry.status), ("GET", "/a?b=c", Some(200)));
        assert_eq!(entry.peer, Some("2001:db8::7".parse().unwrap()));
        assert_eq!(entry.headers[..], [(http::header::USER_AGENT, Cow::Borrowed(r#"say "hi" \"#))]);
        assert_eq!(plain(r"\x22\x5C\xe2\x82\xac \xZZ"), "\"\\\u{20ac} xZZ");
        assert_eq!(plain("\\"), "\\");
    }

    #[test]
    fn a_line_has_all_fields_and_nothing_more() {
        let combined = Template::read(COMBINED).unwrap();
        for line in
            ["", "-", LINE, &LINE[..60], "::1 - - [17/May/2015:10:05:03 +0000] \"\" 400 0 \"-\" \"-\""]
        {
            assert!(combined.parse(line, &mut TimeReader::default()).is_err(), "{line:?}");
        }
        assert!(Template::read(COMMON).unwrap().parse(LINE.trim_end(), &mut TimeReader::default()).is_err());
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
