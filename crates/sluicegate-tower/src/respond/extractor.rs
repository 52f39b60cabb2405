//! [`Decided`] as an extractor of axum.

use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use sluicegate_core::support::Seldom;

use crate::respond::decided::Decided;

/// The rejection of a handler that takes [`Decided`] when no limit applied to the request, or its layer does not tell handlers the
/// [decision](crate::RateLimitLayer::decided): 500. The log says how to mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotLimited;

impl fmt::Display for NotLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no rate limit applied to this request, or its layer keeps no decision for handlers: put \
             `.rate_limit(RateLimitLayer::new(limit).decided())` on the route, behind its methods, or take an \
             `Option<Decided>`",
        )
    }
}

impl std::error::Error for NotLimited {}

impl IntoResponse for NotLimited {
    fn into_response(self) -> Response {
        static SELDOM: Seldom = Seldom::new();
        if SELDOM.is_due() {
            tracing::error!("a request is answered with 500: {self}");
        }
        let told = "this server cannot tell which limits apply";
        (StatusCode::INTERNAL_SERVER_ERROR, told).into_response()
    }
}

/// Handlers that may run without a limit take `Option<Decided>`.
impl<S: Sync> FromRequestParts<S> for Decided {
    type Rejection = NotLimited;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, NotLimited> {
        parts.extensions.get().cloned().ok_or(NotLimited)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decided {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}
