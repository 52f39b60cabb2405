//! The default body of a refusal: [`ProblemJson`].
//!
//! The body is JSON unless the client prefers text (RFC 9110, section 12.5.1): a browser then shows a sentence instead of a download.

use std::fmt;
use std::fmt::Write as _;

use bytes::Bytes;
use http::Response;
use http::header::{ACCEPT, HeaderValue};

use crate::key::RequestView;
use crate::respond::decided::ceil_seconds;
use crate::respond::headers::style::BodyForm;
use crate::respond::open_ai;
use crate::respond::refusal::{Refusal, RefusalReason, Respond, write_number};

/// Problem details (RFC 9457), with the problem types that the rate limit draft defines, `quota-exceeded` and, for keys that are
/// suspended, `abnormal-usage-detected`, and the numbers of the header fields; an overloaded service has a type of
/// its own. It supports every body that can be made from [`Bytes`].
///
/// With the header fields of [OpenAI's API](crate::respond::HeaderFields::OpenAi) the body has that API's format, as `application/json`.
///
/// A client whose `Accept` prefers text or HTML to JSON, as a browser's does, gets one line of plain text.
///
/// ```
/// use std::convert::Infallible;
///
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::key::HeaderKey;
/// use sluicegate_tower::{Limit, RateLimitLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Limit::new(Policy::gcra("api", "1/min").on(&MemoryStore::new())?).key(HeaderKey::new("x-api-key")?);
/// let layer = RateLimitLayer::new(limit);
/// let hello = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello")))) });
///
/// let ask = |accept: &str| {
///     let request = Request::get("/").header("x-api-key", "k1").header("accept", accept).body(());
///     request.map(|request| layer.layer(hello).oneshot(request))
/// };
/// assert_eq!(ask("*/*")?.await?.status(), 200);
///
/// let refused = ask("*/*")?.await?;
/// assert_eq!(refused.headers()["content-type"], "application/problem+json");
/// let body = refused.into_body().collect().await?.to_bytes();
/// let body = str::from_utf8(&body)?;
/// assert!(body.contains(r#""title":"Quota Exceeded","status":429"#), "{body}");
/// assert!(body.contains(r#""retry_after":60"#), "{body}");
///
/// let in_a_browser = ask("text/html, */*;q=0.8")?.await?;
/// assert_eq!(in_a_browser.headers()["content-type"], "text/plain; charset=utf-8");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ProblemJson;

impl ProblemJson {
    /// The default responder.
    pub const fn new() -> Self {
        Self
    }
}

impl<B: From<Bytes>> Respond<B> for ProblemJson {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        refusal.response(content(refusal))
    }

    fn content(&self, refusal: &Refusal<'_>) -> Option<(B, HeaderValue)> {
        Some(content(refusal))
    }
}

/// The body and its type.
fn content<B: From<Bytes>>(refusal: &Refusal<'_>) -> (B, HeaderValue) {
    let (body, content_type) = match refusal.body {
        BodyForm::OpenAi => {
            let mut body = String::with_capacity(256);
            // Writing to a string cannot fail, here and below.
            let _ = open_ai::write(&mut body, refusal);
            (body, PLAIN_JSON)
        }
        BodyForm::Problem if wants_text(refusal.request()) => (text(refusal), PLAIN_TEXT),
        BodyForm::Problem => {
            let mut body = String::with_capacity(384);
            let _ = problem(&mut body, refusal);
            (body, JSON)
        }
    };
    // Not shrunk: shrinking the buffer takes longer than writing the body.
    (B::from(Bytes::from(body)), content_type)
}

/// `Too many requests: try again in 7 s`
fn text(refusal: &Refusal<'_>) -> String {
    let mut body = String::with_capacity(96);
    let _ = refusal.say(&mut body);
    if let Some(first) = body.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    body.push('\n');
    body
}

const JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const PLAIN_JSON: HeaderValue = HeaderValue::from_static("application/json");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

const QUOTA_EXCEEDED: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":"#;

fn problem(body: &mut String, refusal: &Refusal<'_>) -> fmt::Result {
    let head = match refusal.reason() {
        RefusalReason::Exceeded(_) => Some(QUOTA_EXCEEDED),
        _ if refusal.at_once().is_some() => Some(QUOTA_EXCEEDED),
        RefusalReason::Suspended(_) => Some(
            r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":"#,
        ),
        #[cfg(feature = "in-flight")]
        RefusalReason::Overloaded(..) => Some(
            r#"{"type":"https://docs.rs/sluicegate/latest/sluicegate/docs/waiting/index.html#the-service-is-the-limit","title":"Service Overloaded","status":"#,
        ),
        _ => None,
    };
    if let Some(head) = head {
        body.push_str(head);
        body.push_str(refusal.status().as_str());
        body.push_str(r#","detail":""#);
        // The text needs no escapes: its words and numbers are our own.
        refusal.say(body)?;
        body.push_str(r#"","retry_after":"#);
        write_number(body, refusal.retry_after_seconds().unwrap_or(1))?;
    } else {
        let status = refusal.status();
        body.push_str(r#"{"type":"about:blank","title":""#);
        body.write_str(status.canonical_reason().unwrap_or("Refused"))?;
        write!(body, r#"","status":{},"detail":""#, status.as_u16())?;
        refusal.say(&mut Escaped(body))?;
        body.push('"');
    }
    numbers(body, refusal)?;
    body.write_char('}')
}

/// The numbers of the header fields, and the quotas that refused.
fn numbers(body: &mut String, refusal: &Refusal<'_>) -> fmt::Result {
    if let Some(standing) = refusal.standing() {
        for (name, number) in [
            (r#","limit":"#, standing.capacity()),
            (r#","remaining":"#, standing.remaining()),
            (r#","reset":"#, ceil_seconds(standing.reset_after())),
        ] {
            body.push_str(name);
            write_number(body, number)?;
        }
    }
    if let Some((_, permits)) = refusal.at_once() {
        body.push_str(r#","limit":"#);
        write_number(body, permits)?;
        body.push_str(r#","remaining":0"#);
    } else if refusal.shown.is_none() {
        return Ok(());
    }
    body.push_str(r#","violated-policies":["#);
    // Not in a `for`, which would ask each part of a chain for each name.
    refusal.violated().enumerate().for_each(|(index, name)| {
        // Names of policies and quotas consist of characters that JSON does not escape.
        body.push_str(if index == 0 { "\"" } else { ",\"" });
        body.push_str(name);
        body.push('"');
    });
    body.write_char(']')
}

/// Escapes the inside of a JSON string, because a reason from the application's extractor may be any text.
pub(super) struct Escaped<'a>(pub(super) &'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '"' | '\\' => write!(self.0, "\\{c}")?,
                c if c < ' ' => write!(self.0, "\\u{:04x}", u32::from(c))?,
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// The most ranges of a request that are read: clients send up to ten.
const MOST_RANGES: usize = 64;

/// Whether the client prefers text, plain or HTML, to JSON. A browser names HTML
/// with a higher weight than everything else. A client without a preference gets JSON.
pub(super) fn wants_text(request: RequestView<'_>) -> bool {
    let mut lines = request.headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok()).peekable();
    if lines.peek().is_none() {
        return false;
    }
    let [mut json, mut plain, mut html] = [Best::default(); 3];
    for range in lines.flat_map(|line| line.split(',')).take(MOST_RANGES) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let is = |other: &str| media.eq_ignore_ascii_case(other);
        let mut names = parts.filter_map(|parameter| parameter.split_once('='));
        let weight = names.find(|(name, _)| name.eq_ignore_ascii_case("q")).map(|(_, weight)| weight);
        let weight = weight.map_or(1_000, thousandths);
        if is("application/problem+json") || is("application/json") {
            json.hears(2, weight);
        } else if is("application/*") {
            json.hears(1, weight);
        } else if is("text/plain") {
            plain.hears(2, weight);
        } else if is("text/html") {
            html.hears(2, weight);
        } else if is("text/*") {
            plain.hears(1, weight);
            html.hears(1, weight);
        } else if is("*/*") {
            for kind in [&mut json, &mut plain, &mut html] {
                kind.hears(0, weight);
            }
        }
    }
    plain.weight.max(html.weight) > json.weight
}

/// A weight in thousandths: `0.8` is 800. An unreadable weight is 0.
fn thousandths(weight: &str) -> u16 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let is_number = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "1" if is_number => 1_000,
        "0" if is_number => {
            let digits = fraction.bytes().chain([b'0'; 3]).take(3);
            digits.fold(0, |weight, digit| weight * 10 + u16::from(digit - b'0'))
        }
        _ => 0,
    }
}

/// The weight of a kind: the weight of the most specific range; of several equally specific ranges, the highest
/// weight.
#[derive(Clone, Copy, Default)]
struct Best {
    specific: u8,
    weight: u16,
    heard: bool,
}

impl Best {
    fn hears(&mut self, specific: u8, weight: u16) {
        if !self.heard || specific > self.specific {
            *self = Self { specific, weight, heard: true };
        } else if specific == self.specific {
            self.weight = self.weight.max(weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn text_is_for_those_who_like_it_better_than_json() {
        for (accept, text) in [
            ("text/html;q=1, */*;q=0", true),
            ("text/html", true),
            ("text/plain", true),
            ("text/*;q=0.3", true),
            ("TEXT/HTML, application/json;q=0", true),
            ("*/*, application/*;q=0", true),
            ("*/*", false),
            // Firefox, Chrome and Safari, requesting a page.
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,\
                 application/signed-exchange;v=b3;q=0.7",
                true,
            ),
            ("text/html, application/json;q=0.999", true),
            // axios, and scripts of a page.
            ("application/json, text/plain, */*", false),
            ("application/json, text/javascript, */*; q=0.01", false),
            ("text/html, application/json", false),
            ("text/html;q=0.7, application/json;q=0.71", false),
            ("text/html;q=0.5, */*", false),
            ("text/html;q=0.5, */*;q=0.4, application/json;q=0.05", true),
            ("text/html;q=2, */*;q=0.001", false),
            ("text/html;q=0.0001, */*;q=0", false),
            ("application/problem+json", false),
            ("image/png", false),
            ("", false),
            ("text/html;q=0", false),
            ("text/html;q=none", false),
            ("text/html;q=NaN", false),
            (";;;,,,q=1", false),
        ] {
            let request = Request::get("/").header("accept", accept).body(()).unwrap();
            assert_eq!(wants_text((&request).into()), text, "{accept}");
        }
        assert!(!wants_text((&Request::new(())).into()));
    }

    #[test]
    fn of_more_ranges_than_any_client_sends_the_first_are_read() {
        for (before, text) in [(0, true), (63, true), (64, false)] {
            let accept = "image/png, ".repeat(before) + "text/html";
            let request = Request::get("/").header("accept", accept).body(()).unwrap();
            assert_eq!(wants_text((&request).into()), text, "{before}");
        }
    }
}
