//! Request bodies: JSON within the bounds.

use axum::body::Body;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::problem::CallProblem;
use crate::bounds::Bounds;

/// A body may take one of this many parts of the time for a request.
const PART: u32 = 3;

/// Reads and parses a body.
pub(super) async fn read<T: DeserializeOwned>(
    bounds: &Bounds,
    request: Request<Body>,
) -> Result<T, CallProblem> {
    let (head, body) = request.into_parts();
    // A web page of another origin can send text without a preflight request, but not JSON.
    if !is_json(&head.headers) {
        return Err(CallProblem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body has to be JSON, sent with Content-Type: application/json",
        ));
    }
    let too_long = || {
        CallProblem::too_much(format!(
            "the body is longer than {} bytes, the most that this server reads",
            bounds.body
        ))
    };
    let announced =
        head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > bounds.body) {
        return Err(too_long());
    }
    let longest = bounds.request / PART;
    let read =
        tokio::time::timeout(longest, Limited::new(body, bounds.body).collect()).await.map_err(|_| {
            CallProblem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {longest:?}"),
            )
        })?;
    let bytes = match read {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_long()),
        Err(_) => return Err(CallProblem::bad("the body ended early")),
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| CallProblem::bad(format!("the body cannot be read: {error}")))
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json") || media.to_ascii_lowercase().ends_with("+json")
}
