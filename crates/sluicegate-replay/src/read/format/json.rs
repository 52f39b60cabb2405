//! Lines that are objects of JSON, with the names that nginx, Caddy, Traefik and others give.
//!
//! # Names
//! There is no standard for such logs, so each part is searched under the names that servers are known to give it, the more exact one
//! first: `msec` has milliseconds where `time_local` has seconds. Each line is read by itself; a log may change its names in the middle.
//!
//! # Cost
//! A line is read into a map before its parts are taken out, which takes several times as long as a line of fields.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::entry::LogEntry;
use super::time::{self, Moment};

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
pub(in crate::read) fn parse(line: &str) -> Result<LogEntry<'_>, &'static str> {
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
