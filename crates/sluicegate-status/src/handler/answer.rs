//! Responses, and the header fields that all of them carry.
//!
//! The policy allows the page only what it needs: its own style sheet, its own forms, and nothing else. If some text were ever drawn
//! unescaped, the browser would still run no script and load nothing.

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use serde::Serialize;

/// It allows no script, no foreign style, no form to another site, no other base address, and no frame around the page.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The header in which clients that send JSON find the token that they send back.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-status-token");

const FIELDS: [(HeaderName, &str); 4] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// A response of the page.
pub(super) fn answer(status: StatusCode, kind: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let fields = FIELDS.into_iter().chain([(CONTENT_TYPE, kind)]);
    response.headers_mut().extend(fields.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

pub(super) fn html(status: StatusCode, body: String) -> Response<String> {
    answer(status, "text/html; charset=utf-8", body)
}

pub(super) fn css(body: String) -> Response<String> {
    answer(StatusCode::OK, "text/css; charset=utf-8", body)
}

/// Redirects to another address, by a GET.
pub(super) fn led_to(address: &str) -> Response<String> {
    let mut response = text(StatusCode::SEE_OTHER, "the result is on the page");
    response.headers_mut().extend(HeaderValue::try_from(address).ok().map(|address| (LOCATION, address)));
    response
}

/// A sentence for a client that was not let in, or sent something else.
pub(super) fn text(status: StatusCode, sentence: &str) -> Response<String> {
    answer(status, "text/plain; charset=utf-8", format!("{sentence}\n"))
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<String> {
    // The body holds only numbers and text under names, all of which JSON can write.
    answer(status, "application/json", serde_json::to_string(body).unwrap_or_default())
}

pub(super) fn not_allowed(methods: &'static str) -> Response<String> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, &format!("use {methods} here"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}
