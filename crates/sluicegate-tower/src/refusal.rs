//! The answer to a request that is refused: [`Refusal`] says why, [`Respond`] makes the response.

use std::fmt;
use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use sluicegate_core::{Decision, Outcome, StoreError};

use crate::headers::{MOST, ceil_seconds, retry_after, violated};
use crate::key::MissingKey;

/// A request that is not let through, and why.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    pub(crate) reason: Reason<'a>,
    pub(crate) parts: &'a Parts,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Reason<'a> {
    /// It exceeds a quota: 429, with the wait in `Retry-After`.
    Exceeded(&'a Decision),
    /// Its cost is above what a quota ever lets pass at once: 403, and no wait helps.
    Impossible(&'a Decision),
    /// It has no key, and the limit rejects such requests with this status.
    MissingKey(&'a MissingKey, StatusCode),
    /// The store could not be reached, and a policy refuses then
    /// ([`OnOutage::Deny`](sluicegate_core::OnOutage::Deny)): 503. With the error, if the store has handed it on.
    Outage(Option<&'a StoreError>),
}

impl<'a> Refusal<'a> {
    /// Why.
    pub fn reason(&self) -> Reason<'a> {
        self.reason
    }

    /// The request that is refused, without its body.
    pub fn request(&self) -> &'a Parts {
        self.parts
    }

    /// What the limiter decided, if it came to that.
    pub fn decision(&self) -> Option<&'a Decision> {
        match self.reason {
            Reason::Exceeded(decision) | Reason::Impossible(decision) => Some(decision),
            Reason::MissingKey(..) | Reason::Outage(_) => None,
        }
    }

    /// The status that fits the reason.
    pub fn status(&self) -> StatusCode {
        match self.reason {
            Reason::Exceeded(_) => StatusCode::TOO_MANY_REQUESTS,
            Reason::Impossible(_) => StatusCode::FORBIDDEN,
            Reason::MissingKey(_, status) => status,
            Reason::Outage(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whole seconds after which the same request could pass; the same number as in `Retry-After`.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        match self.reason {
            Reason::Exceeded(decision) | Reason::Impossible(decision) => retry_after(decision),
            // An outage has no known end; a second keeps clients from hammering.
            Reason::Outage(_) => Some(1),
            Reason::MissingKey(..) => None,
        }
    }

    pub(crate) fn of(decision: &'a Decision, parts: &'a Parts) -> Self {
        let reason = match decision.outcome() {
            Outcome::Impossible => Reason::Impossible(decision),
            _ => Reason::Exceeded(decision),
        };
        Self { reason, parts }
    }
}

/// Makes the response to a refused request. The layer adds the rate limit fields and `Retry-After` to it.
///
/// Implemented by closures: `|refusal: &Refusal<'_>| Response::new(..)`.
pub trait Respond<B>: Send + Sync + 'static {
    /// The response.
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B>;
}

impl<F, B> Respond<B> for F
where
    F: Fn(&Refusal<'_>) -> Response<B> + Send + Sync + 'static,
{
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        self(refusal)
    }
}

/// Problem details (RFC 9457), with the problem type that the rate limit draft defines and the numbers that the
/// header fields carry. For every body that can be made of [`Bytes`].
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
        let mut body = String::with_capacity(384);
        // Writing to a string cannot fail.
        let _ = problem(&mut body, refusal);
        // Bytes of exactly their length need no second allocation to be shared.
        let mut response = Response::new(B::from(Bytes::from(body.into_bytes().into_boxed_slice())));
        // Room for the rate limit fields and what servers add.
        response.headers_mut().reserve(10);
        *response.status_mut() = refusal.status();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

fn problem(body: &mut String, refusal: &Refusal<'_>) -> fmt::Result {
    let status = refusal.status().as_u16();
    match refusal.reason {
        Reason::Exceeded(decision) => {
            let mut digits = itoa::Buffer::new();
            let wait = digits.format(refusal.retry_after_seconds().unwrap_or(1));
            body.push_str(r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"too many requests: try again in "#);
            body.push_str(wait);
            body.push_str(r#" s","retry_after":"#);
            body.push_str(wait);
            body.push(',');
            numbers(body, decision);
            Ok(())
        }
        Reason::Impossible(decision) => {
            write!(
                body,
                r#"{{"type":"about:blank","title":"Forbidden","status":{status},"detail":"this request costs more than the limit ever lets pass at once: no wait will help","#
            )?;
            numbers(body, decision);
            Ok(())
        }
        Reason::MissingKey(missing, code) => {
            write!(body, r#"{{"type":"about:blank","title":"#)?;
            quoted(body, code.canonical_reason().unwrap_or("Refused"))?;
            write!(body, r#","status":{status},"detail":"#)?;
            quoted(body, missing.reason())?;
            body.write_char('}')
        }
        Reason::Outage(_) => write!(
            body,
            r#"{{"type":"about:blank","title":"Service Unavailable","status":{status},"detail":"the rate limiter gave no answer"}}"#
        ),
    }
}

/// The numbers of the header fields, and which quotas refused. Without `fmt`, for floods are refused by the million.
fn numbers(body: &mut String, decision: &Decision) {
    let mut digits = itoa::Buffer::new();
    let reset = ceil_seconds(decision.reset_after());
    for (name, number) in [
        (r#""limit":"#, decision.limit()),
        (r#","remaining":"#, decision.remaining()),
        (r#","reset":"#, reset),
    ] {
        body.push_str(name);
        body.push_str(digits.format(number.min(MOST)));
    }
    body.push_str(r#","violated-policies":["#);
    for (index, name) in violated(decision).enumerate() {
        // Names of policies and quotas consist of characters that JSON takes as they are.
        body.push_str(if index == 0 { "\"" } else { ",\"" });
        body.push_str(name);
        body.push('"');
    }
    body.push_str("]}");
}

/// A JSON string.
fn quoted(body: &mut String, text: &str) -> fmt::Result {
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
