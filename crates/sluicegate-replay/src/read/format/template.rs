//! Lines of fields between fixed texts, in the words of nginx's `log_format`: [`Template`].
//!
//! # How a line is taken apart
//! A field ends at the first place where the text behind it in the format begins. A format without a text between two fields would
//! therefore be ambiguous, and is refused. In quotes a client's text may hold anything but a quote: servers escape quotes, nginx as `\x22`
//! and Apache as `\"`, and both are undone when the value is used. A line that has all fields and something more is not understood, because
//! it may be of another format that begins alike.

use std::borrow::Cow;

use http::HeaderName;
use http::header::USER_AGENT;

use crate::read::format::field::{Field, LogEntry};
use crate::read::format::time::TimeReader;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::format::known::TEMPLATES;

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
