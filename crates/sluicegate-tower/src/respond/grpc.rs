//! Refusals for gRPC clients: [`GrpcStatus`], and [`GrpcOr`] for servers that speak both.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use sluicegate_core::support::ceil_millis;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, QuotaViolation, StatusExt};

use crate::key::RequestView;
use crate::respond::ProblemJson;
use crate::respond::refusal::{Refusal, RefusalReason, Respond};

/// The field with the wait for gRPC clients with automatic retries; negative for no retry (gRFC A6).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Answers refused requests with a gRPC status: HTTP 200 without a body, and the status in the header fields.
///
/// | refused | status | details |
/// |---|---|---|
/// | exceeds a quota, or too many at once, or the key is suspended | `RESOURCE_EXHAUSTED` | `RetryInfo`, `QuotaFailure`, `grpc-retry-pushback-ms` |
/// | costs more than the limit ever passes at once | `RESOURCE_EXHAUSTED` | `QuotaFailure`, and a pushback of -1: no retry helps |
/// | no key | by its HTTP status: 401 is `UNAUTHENTICATED`, 403 `PERMISSION_DENIED` | a pushback of -1 |
/// | others, such as an overloaded service, or no answer from the store | by their HTTP status: 503 is `UNAVAILABLE` | as the first, if a wait helps |
///
/// Waits are rounded up to whole milliseconds. A stream is one request, decided when it begins. To limit the messages of
/// a long stream, ask a limiter in the handler, or limit the open streams with an
/// `InFlightLayer`.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::{Limit, RateLimitLayer};
/// use sluicegate_tower::key::HeaderKey;
/// use sluicegate_tower::respond::GrpcStatus;
///
/// let per_client = Policy::gcra("client", "100/s").on(&MemoryStore::new())?;
/// let layer = RateLimitLayer::builder(Limit::new(per_client).key(HeaderKey::new("x-client")?))
///     .responder(GrpcStatus::new())
///     .build()?;
/// // tonic::transport::Server::builder().layer(layer)
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct GrpcStatus;

/// Answers gRPC and gRPC-Web requests with [`GrpcStatus`], and all other requests with `R`.
///
/// A request is one of gRPC if its `Content-Type` says so: `application/grpc` and `application/grpc-web`, with any suffix
/// such as `+proto`; not `application/grpcfoo`.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::RateLimitLayer;
/// use sluicegate_tower::respond::{GrpcOr, ProblemJson};
///
/// let api = Policy::gcra("api", "100/s").on(&MemoryStore::new())?;
/// let layer = RateLimitLayer::builder(api).responder(GrpcOr::new(ProblemJson::new())).build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GrpcOr<R = ProblemJson> {
    other: R,
}

impl GrpcStatus {
    /// The responder.
    pub const fn new() -> Self {
        Self
    }
}

impl<R> GrpcOr<R> {
    /// The responder, with `other` for requests that are not gRPC.
    pub const fn new(other: R) -> Self {
        Self { other }
    }
}

impl<B: Default> Respond<B> for GrpcStatus {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        let kind = GrpcKind::of(refusal.request()).unwrap_or(GrpcKind::Grpc);
        let (code, message) = status(refusal);
        let mut details = ErrorDetails::new();
        let quotas: Vec<_> =
            refusal.violated().map(|quota| QuotaViolation::new(quota, message.as_str())).collect();
        if !quotas.is_empty() {
            details.set_quota_failure(quotas);
        }
        let wait_ms = wait_ms(refusal);
        if let Some(wait_ms) = wait_ms {
            details.set_retry_info(Some(Duration::from_millis(wait_ms)));
        }
        let status = if details.has_quota_failure_violations() || wait_ms.is_some() {
            Status::with_error_details(code, message, details)
        } else {
            Status::new(code, message)
        };
        let mut response = status.into_http();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind.content_type()));
        let pushback = match wait_ms {
            Some(wait_ms) => HeaderValue::from(wait_ms),
            None => HeaderValue::from_static("-1"),
        };
        response.headers_mut().insert(PUSHBACK, pushback);
        response
    }
}

impl<R: Respond<B>, B: Default> Respond<B> for GrpcOr<R> {
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        match GrpcKind::of(refusal.request()) {
            Some(_) => GrpcStatus.respond(refusal),
            None => self.other.respond(refusal),
        }
    }
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrpcKind {
    Grpc,
    Web,
    WebText,
}

impl GrpcKind {
    fn of(request: RequestView<'_>) -> Option<Self> {
        let value = request.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let essence = value.split([';', '+']).next()?.trim();
        let kinds = [
            ("application/grpc", Self::Grpc),
            ("application/grpc-web", Self::Web),
            ("application/grpc-web-text", Self::WebText),
        ];
        kinds.into_iter().find(|(name, _)| essence.eq_ignore_ascii_case(name)).map(|(_, kind)| kind)
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Grpc => "application/grpc",
            Self::Web => "application/grpc-web+proto",
            Self::WebText => "application/grpc-web-text+proto",
        }
    }
}

/// The status and its message, which repeats no part of the request.
fn status(refusal: &Refusal<'_>) -> (Code, String) {
    let code = match refusal.reason() {
        RefusalReason::Exceeded(_) | RefusalReason::Suspended(_) | RefusalReason::Impossible(_) => {
            Code::ResourceExhausted
        }
        _ => code_of(refusal.status()),
    };
    (code, refusal.to_string())
}

/// Whole milliseconds after which the same request could pass: at least 1.
fn wait_ms(refusal: &Refusal<'_>) -> Option<u64> {
    let seconds = refusal.retry_after_seconds()?;
    let whole = seconds.saturating_mul(1_000);
    let exact = refusal.shown.and_then(|shown| {
        let exact = ceil_millis(shown.decided.retry_after()?);
        // The seconds that were added for this client.
        let later = seconds.saturating_sub(shown.wait?).saturating_mul(1_000);
        Some(exact.saturating_add(later))
    });
    // The field in seconds is the same wait rounded up, unless the refusal was made with another one.
    Some(exact.filter(|exact| *exact <= whole).unwrap_or(whole).max(1))
}

/// Maps the status like gRPC's mapping of HTTP statuses, and more precisely if the reason is known here.
fn code_of(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST => Code::InvalidArgument,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Code::Unavailable
        }
        status if status.is_client_error() => Code::FailedPrecondition,
        status if status.is_server_error() => Code::Internal,
        _ => Code::Unknown,
    }
}
