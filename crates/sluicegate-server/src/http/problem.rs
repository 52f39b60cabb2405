//! Errors of the API: [`CallProblem`].

use axum::body::Body;
use axum::response::IntoResponse;
use http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::support::Seldom;

use crate::http::answer::json_response;
use crate::receipt::RedeemError;

/// A call was not performed (RFC 9457).
#[derive(Debug)]
pub(crate) struct CallProblem {
    pub(super) status: StatusCode,
    pub(super) detail: String,
    /// Whether the same call may succeed in a second.
    is_temporary: bool,
}

impl CallProblem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), is_temporary: false }
    }

    /// The call is malformed.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The call is above a bound.
    pub(super) fn too_much(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    }

    /// The call may succeed later.
    pub(crate) fn temporary(detail: impl Into<String>) -> Self {
        Self { is_temporary: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// The server shuts down while a request waits.
    pub(super) fn shutting_down() -> Self {
        Self::temporary("the server is shutting down: the turn was given back, and nothing was spent")
    }

    /// Seconds until the same call may succeed.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.is_temporary.then_some(1)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        })
    }
}

impl From<StoreError> for CallProblem {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::TooManyQuotas => Self::bad(error.to_string()),
            _ if error.may_succeed_later() => Self::temporary(error.to_string()),
            _ => {
                static FAILED: Seldom = Seldom::new();
                if FAILED.is_due() {
                    tracing::error!(%error, "a call failed; said once a second");
                }
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            }
        }
    }
}

impl From<RedeemError> for CallProblem {
    fn from(why: RedeemError) -> Self {
        match why {
            RedeemError::Forged => Self::bad(
                "the receipt has no valid signature: it was changed, or comes from a server with another secret",
            ),
            RedeemError::Expired => {
                Self::new(StatusCode::GONE, "the receipt has expired, or its policy is gone")
            }
            RedeemError::Changed => Self::new(
                StatusCode::GONE,
                "the policy of the receipt has another algorithm since: its units cannot be given back",
            ),
            RedeemError::Used => Self::new(StatusCode::CONFLICT, "the receipt was used before"),
            RedeemError::Elsewhere => Self::new(
                StatusCode::GONE,
                "only the instance that issued this receipt can settle it: it decided without the shared store",
            ),
            RedeemError::Outage => Self::temporary("the store does not answer"),
        }
    }
}

impl IntoResponse for CallProblem {
    fn into_response(self) -> Response<Body> {
        let mut response = json_response(self.status, "application/problem+json", &self.json());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
