//! The responses that clients see.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use sluicegate_core::StoreError;

use crate::deferred::queue::JobState;

/// The seconds after which a client that waits for a job should ask again.
const AGAIN: HeaderValue = HeaderValue::from_static("1");

/// The seconds after which a client should retry a queue that did not answer.
const AWAY: HeaderValue = HeaderValue::from_static("5");

/// 202, with the path at which the client asks for the job.
pub(super) fn accepted(jobs_at: &str, id: &str) -> Response<Bytes> {
    let mut response = of(StatusCode::ACCEPTED, JSON, &json!({ "id": id, "state": "waiting" }));
    if let Ok(place) = HeaderValue::try_from(format!("{jobs_at}/{id}")) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

/// 200, with the state of a job and its result.
pub(super) fn standing(id: &str, state: &JobState, result: Option<&[u8]>) -> Response<Bytes> {
    let body = match (state, result) {
        (JobState::Done(_), Some(result)) => {
            json!({ "id": id, "state": "done", "result": String::from_utf8_lossy(result) })
        }
        (JobState::Parked, _) => json!({ "id": id, "state": "parked" }),
        _ => json!({ "id": id, "state": "waiting" }),
    };
    let mut response = of(StatusCode::OK, JSON, &body);
    if *state == JobState::Waiting {
        response.headers_mut().insert(RETRY_AFTER, AGAIN);
    }
    response
}

/// One answer for a missing owner, an unknown job, a job of another owner, and a forgotten job.
pub(super) fn unknown() -> Response<Bytes> {
    problem(StatusCode::NOT_FOUND, "there is no such job")
}

/// The queue did not answer a push.
pub(super) fn not_kept(error: &StoreError, may_be_repeated: bool) -> Response<Bytes> {
    problem_later(match (error.may_have_spent(), may_be_repeated) {
        (false, _) => "the request was not accepted: try again later",
        (true, true) => "repeat the request with the same Idempotency-Key: it may have been accepted",
        (true, false) => {
            "the request may have been accepted or not: with an Idempotency-Key it could be repeated"
        }
    })
}

/// The queue did not answer a question.
pub(super) fn away() -> Response<Bytes> {
    problem_later("the queue of jobs gives no answer: try again later")
}

fn problem_later(detail: &str) -> Response<Bytes> {
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, detail);
    response.headers_mut().insert(RETRY_AFTER, AWAY);
    response
}

/// A refusal, as problem details (RFC 9457).
pub(super) fn problem(status: StatusCode, detail: &str) -> Response<Bytes> {
    let title = status.canonical_reason().unwrap_or("Refused");
    let body = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    of(status, HeaderValue::from_static("application/problem+json"), &body)
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn of(status: StatusCode, content_type: HeaderValue, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
