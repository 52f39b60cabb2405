//! The decision, for handlers.

use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use sluicegate_core::Decision;

/// What the innermost limit in front of a handler decided about its request.
///
/// As `Option<Decided>` it serves handlers that may run without a limit.
///
/// ```
/// use sluicegate_axum::Decided;
///
/// async fn handler(Decided(decision): Decided) -> String {
///     format!("{} of {} left", decision.remaining(), decision.limit())
/// }
/// ```
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "handlers take it apart")]
pub struct Decided(pub Decision);

/// A handler asks for its [`Decided`], and no limit applied to the request: 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotLimited;

impl fmt::Display for NotLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no rate limit applied to this request: put `.rate_limit(..)` on the route, or take an `Option<Decided>`",
        )
    }
}

impl std::error::Error for NotLimited {}

impl IntoResponse for NotLimited {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Decided {
    type Rejection = NotLimited;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, NotLimited> {
        parts.extensions.get().cloned().map(Self).ok_or(NotLimited)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decided {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned().map(Self))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::extract::connect_info::MockConnectInfo;
    use axum::http::Request;
    use axum::routing::get;
    use sluicegate_core::{MemoryStore, Policy};
    use tower::ServiceExt;

    use super::*;
    use crate::RateLimitExt;

    async fn body_of(app: Router) -> (StatusCode, String) {
        let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_handler_sees_its_decision_or_is_told_what_is_missing() {
        async fn strict(Decided(decision): Decided) -> String {
            decision.remaining().to_string()
        }
        async fn lenient(decided: Option<Decided>) -> String {
            decided.is_some().to_string()
        }
        let limiter = Policy::gcra("search", "5/min").on(MemoryStore::new()).unwrap();
        let peer = MockConnectInfo(SocketAddr::from(([192, 0, 2, 7], 1)));
        let limited = Router::new().route("/", get(strict).rate_limit(limiter)).layer(peer);
        assert_eq!(body_of(limited).await, (StatusCode::OK, "4".into()));
        assert_eq!(body_of(Router::new().route("/", get(lenient))).await, (StatusCode::OK, "false".into()));
        let (status, body) = body_of(Router::new().route("/", get(strict))).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(body.contains("`.rate_limit(..)`"), "{body}");
    }
}
