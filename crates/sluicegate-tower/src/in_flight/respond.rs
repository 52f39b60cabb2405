//! What a request is told that would be one too many: [`InFlightProblem`].

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use crate::respond::ProblemJson;
use crate::respond::refusal::{Refusal, RefusalReason, Respond};

/// Problem details (RFC 9457) for requests that exceed what a key may have in flight; for other reasons, those of
/// [`ProblemJson`]. For every body that can be made of [`Bytes`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct InFlightProblem;

impl InFlightProblem {
    /// The default responder.
    pub const fn new() -> Self {
        Self
    }
}

impl<B: From<Bytes>> Respond<B> for InFlightProblem {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        let RefusalReason::Exceeded(decision) = refusal.reason() else {
            return ProblemJson::new().respond(refusal);
        };
        let name = decision.policy().map(|policy| policy.name()).unwrap_or_default();
        let (limit, wait) = (decision.limit(), refusal.retry_after_seconds().unwrap_or(1));
        // The name consists of characters that JSON takes as they are.
        let body = format!(
            r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"too many requests at once: at most {limit}, so try again when one has ended","retry_after":{wait},"limit":{limit},"remaining":0,"violated-policies":["{name}"]}}"#
        );
        let mut response = Response::new(B::from(Bytes::from(body)));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}
