//! The default body of a refusal: [`ProblemJson`].

use std::fmt::{self, Write as _};

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::respond::accept::wants_text;
use crate::respond::headers::lines::{MOST, ceil_seconds};
use crate::respond::refusal::{Detail, Refusal, RefusalReason, Respond};

/// Problem details (RFC 9457), with the problem type that the rate limit draft defines and the numbers that the
/// header fields carry. For every body that can be made of [`Bytes`].
///
/// A client whose `Accept` likes text or HTML better than JSON, as a browser's does, gets one line of plain text.
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
        if wants_text(refusal.request()) {
            return text(refusal);
        }
        let mut body = String::with_capacity(384);
        // Writing to a string cannot fail.
        let _ = problem(&mut body, refusal);
        response(refusal, body, "application/problem+json")
    }
}

/// `Too many requests: try again in 7 s`
pub(crate) fn text<B: From<Bytes>>(refusal: &Refusal<'_>) -> Response<B> {
    let mut body = String::with_capacity(96);
    detail(&mut body, refusal.detail());
    if let Some(first) = body.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    body.push('\n');
    response(refusal, body, "text/plain; charset=utf-8")
}

/// A response with the status of the refusal.
pub(crate) fn response<B: From<Bytes>>(
    refusal: &Refusal<'_>,
    body: String,
    content_type: &'static str,
) -> Response<B> {
    // Bytes of exactly their length need no second allocation to be shared.
    let mut response = Response::new(B::from(Bytes::from(body.into_bytes().into_boxed_slice())));
    // Room for the rate limit fields and what servers add.
    response.headers_mut().reserve(10);
    *response.status_mut() = refusal.status();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn problem(body: &mut String, refusal: &Refusal<'_>) -> fmt::Result {
    if let RefusalReason::Exceeded(_) | RefusalReason::ConcurrencyExceeded(_) = refusal.reason() {
        // Without `fmt`, here and in the numbers, for floods are refused by the million.
        body.push_str(r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":""#);
        detail(body, refusal.detail());
        body.push_str(r#"","retry_after":"#);
        push_number(body, refusal.retry_after_seconds().unwrap_or(1));
    } else {
        let status = refusal.status();
        body.push_str(r#"{"type":"about:blank","title":"#);
        quoted(body, status.canonical_reason().unwrap_or("Refused"))?;
        write!(body, r#","status":{},"detail":"#, status.as_u16())?;
        match refusal.detail() {
            Detail::Text(text) => quoted(body, text)?,
            Detail::TryAgainIn(_) | Detail::AtOnce(_) => body.push_str(r#""""#),
        }
    }
    numbers(body, refusal);
    body.push('}');
    Ok(())
}

/// The numbers of the header fields, and which quotas refused.
fn numbers(body: &mut String, refusal: &Refusal<'_>) {
    if let Some(standing) = refusal.standing() {
        for (name, number) in [
            (r#","limit":"#, standing.capacity()),
            (r#","remaining":"#, standing.remaining()),
            (r#","reset":"#, ceil_seconds(standing.reset_after())),
        ] {
            body.push_str(name);
            push_number(body, number);
        }
    }
    match refusal.reason() {
        RefusalReason::Exceeded(_) | RefusalReason::Impossible(_) => {}
        RefusalReason::ConcurrencyExceeded(in_flight) => {
            body.push_str(r#","limit":"#);
            push_number(body, in_flight.permits());
            body.push_str(r#","remaining":0"#);
        }
        _ => return,
    }
    body.push_str(r#","violated-policies":["#);
    for (index, name) in refusal.violated().enumerate() {
        // Names of policies and quotas consist of characters that JSON takes as they are.
        body.push_str(if index == 0 { "\"" } else { ",\"" });
        body.push_str(name);
        body.push('"');
    }
    body.push(']');
}

/// The words, if they need no quoting.
pub(crate) fn detail(body: &mut String, detail: Detail<'_>) {
    match detail {
        Detail::Text(text) => body.push_str(text),
        Detail::TryAgainIn(seconds) => {
            body.push_str("too many requests: try again in ");
            push_number(body, seconds);
            body.push_str(" s");
        }
        Detail::AtOnce(permits) => {
            body.push_str("too many requests at once: at most ");
            push_number(body, permits);
            body.push_str(", so try again when one has ended");
        }
    }
}

pub(crate) fn push_number(body: &mut String, number: u64) {
    body.push_str(itoa::Buffer::new().format(number.min(MOST)));
}

/// A JSON string.
pub(crate) fn quoted(body: &mut String, text: &str) -> fmt::Result {
    body.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(body, "\\{c}")?,
            c if c < ' ' => write!(body, "\\u{:04x}", u32::from(c))?,
            c => body.write_char(c)?,
        }
    }
    body.write_char('"')
}
