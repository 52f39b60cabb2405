//! Lines that are objects of JSON: [`JsonShape`].
//!
//! Each line is read by itself, and a log may have lines of several shapes. A line is read into a map before its parts are taken out, which
//! takes several times as long as a line of fields.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::read::format::NO_REQUEST;
use crate::read::format::field::{Field, LogEntry};
use crate::read::format::known::JSON;
use crate::read::format::time::TimeReader;

/// Where lines of one kind have their fields.
#[derive(Clone, Debug)]
pub(super) struct JsonShape {
    /// The paths that such lines have, and the beginnings of the texts that are there.
    only: Vec<(Paths, String)>,
    /// Each field, at the first of its paths that a line has. Without fields, lines are of no request.
    fields: Vec<(Field, Paths)>,
}

/// Paths such as `req.headers`, the first of which counts that a line has.
type Paths = Vec<String>;

impl JsonShape {
    /// The shapes that are known.
    pub(super) fn known() -> Vec<Self> {
        JSON.iter().filter_map(|(only, fields)| Self::read(only, fields).ok()).collect()
    }

    /// Reads paths with the texts that are there, as `msg=incoming`, and fields with their paths, as `client=req.ip|ip`.
    ///
    /// # Errors
    /// When a field has no path, and when there are fields, but no time or URL.
    pub(super) fn read(only: &str, fields: &str) -> Result<Self, String> {
        let paths =
            |text: &str| text.split('|').map(|path| path.trim_start_matches('.').to_owned()).collect();
        let only = only.split_ascii_whitespace().map(|mark| mark.split_once('=').unwrap_or((mark, "")));
        let only = only.map(|(path, text)| (paths(path), text.to_owned())).collect();
        let fields = fields.split_ascii_whitespace().map(|field| {
            let (word, path) = field
                .split_once('=')
                .ok_or_else(|| format!("{field:?} is no field: write client=.req.ip"))?;
            match Field::named(word)? {
                Field::Unused => Err(format!("{word:?} is no field: use {WORDS}")),
                known => Ok((known, paths(path))),
            }
        });
        let shape = Self { only, fields: fields.collect::<Result<_, String>>()? };
        if !shape.fields.is_empty() {
            Field::check(shape.fields.iter().map(|(field, _)| field))?;
        }
        Ok(shape)
    }

    fn is_of(&self, object: &Map<String, Value>) -> bool {
        self.only.iter().all(|(paths, text)| {
            find(object, paths).is_some_and(|value| value.as_str().unwrap_or_default().starts_with(&**text))
        })
    }
}

const WORDS: &str = "time, begin, took, took_ms, took_us, took_ns, client, forwarded, request, method, url, query, host, headers, http_NAME, status";

/// Takes a line apart, by the first shape that it has.
///
/// # Errors
/// The first part that is missing or cannot be read.
pub(super) fn fill(
    shapes: &[JsonShape],
    entry: &mut LogEntry<'_>,
    line: &str,
    clock: &mut TimeReader,
) -> Result<(), &'static str> {
    let object: Map<String, Value> = serde_json::from_str(line).map_err(|_| "it is not an object of JSON")?;
    let shape = shapes.iter().find(|shape| shape.is_of(&object)).ok_or("it has no URL")?;
    if shape.fields.is_empty() {
        return Err(NO_REQUEST);
    }
    for (field, paths) in &shape.fields {
        match (field, find(&object, paths)) {
            (_, None | Some(Value::Null)) => {}
            (Field::Headers, Some(Value::Object(headers))) => {
                headers.iter().for_each(|(name, value)| header(name, value, entry));
            }
            // An object of this name has the parts of the request.
            (Field::Request, Some(Value::Object(_))) => {}
            (Field::Request, Some(_)) if !entry.target.is_empty() => {}
            (_, Some(value)) => field.read(Cow::Owned(text(value)), entry, clock)?,
        }
    }
    for (name, value) in &object {
        // So do nginx and Traefik name header fields.
        let named = name.strip_prefix("http_").or_else(|| {
            name.strip_prefix("request_").filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
        });
        named.into_iter().for_each(|name| header(&name.replace('_', "-"), value, entry));
    }
    if entry.target.is_empty() {
        return Err("it has no URL");
    }
    if entry.method.is_empty() {
        return Err("it has no method");
    }
    Ok(())
}

/// The value at the first of these paths that an object has. A name may have dots of its own.
fn find<'a>(object: &'a Map<String, Value>, paths: &[String]) -> Option<&'a Value> {
    let at = |path: &String| path.split_once('.').and_then(|(name, rest)| within(object.get(name)?, rest));
    paths.iter().find_map(|path| object.get(path).or_else(|| at(path)))
}

fn within<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let object = value.as_object()?;
    object.get(path).or_else(|| path.split_once('.').and_then(|(name, rest)| within(object.get(name)?, rest)))
}

/// Adds a header field, whose value is a text or a list.
fn header(name: &str, value: &Value, entry: &mut LogEntry<'_>) {
    let value = value.as_array().and_then(|values| values.first()).unwrap_or(value);
    if let (Ok(name), Value::String(value)) = (name.parse(), value)
        && value != "-"
        && !value.is_empty()
        && !entry.headers.iter().any(|(known, _)| *known == name)
    {
        entry.headers.push((name, Cow::Owned(value.clone())));
    }
}

/// A value as text, because servers differ about quotes. A number has no exponent.
fn text(value: &Value) -> String {
    match (value, value.as_f64().filter(|_| value.is_f64())) {
        (Value::String(text), _) => text.clone(),
        (_, Some(number)) => number.to_string(),
        (other, None) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_nginx_caddy_and_traefik_say_the_same() {
        let nginx = r#"{"msec":"1431857104.500","request_time":"1.250","remote_addr":"192.0.2.7","request":"GET /a?b HTTP/2.0","status":"200","http_x_api_key":"k1"}"#;
        let caddy = r#"{"ts":1431857103.25,"duration":0.00000001,"request":{"remote_ip":"192.0.2.7","method":"GET","uri":"/a?b","headers":{"X-Api-Key":["k1"]}},"status":200}"#;
        let traefik = r#"{"StartUTC":"2015-05-17T10:05:03.25Z","ClientHost":"192.0.2.7","RequestMethod":"GET","RequestPath":"/a?b","DownstreamStatus":200,"request_X-Api-Key":"k1"}"#;
        let shapes = JsonShape::known();
        assert_eq!(shapes.len(), JSON.len(), "each row can be read");
        for line in [nginx, caddy, traefik] {
            let (mut entry, mut clock) = (LogEntry::default(), TimeReader::default());
            fill(&shapes, &mut entry, line, &mut clock).unwrap();
            assert_eq!(entry.arrival().unwrap().us, 1_431_857_103_250_000, "{line}");
            assert_eq!((&*entry.method, &*entry.target, entry.status), ("GET", "/a?b", Some(200)));
            assert_eq!(entry.peer, Some("192.0.2.7".parse().unwrap()));
            assert_eq!((entry.headers[0].0.as_str(), &*entry.headers[0].1), ("x-api-key", "k1"));
        }
        for line in ["", "[]", "{}", r#"{"ts":1}"#, r#"{"ts":-1,"method":"GET","uri":"/"}"#] {
            let (mut entry, mut clock) = (LogEntry::default(), TimeReader::default());
            assert!(fill(&shapes, &mut entry, line, &mut clock).is_err(), "{line}");
        }
    }
}
