//! The header fields of all responses, and the responses to refused requests.
//!
//! | type | purpose | default |
//! |---|---|---|
//! | [`HeaderFields`] | the families of fields in responses | `X-RateLimit-*`, and all on refusals |
//! | [`Respond`] | makes the response to a refused request | [`ProblemJson`], problem details of RFC 9457, or OpenAI's format with its fields |
//! | [`Refusal`] | has the reason for a responder, and the numbers that the client may see | |
//!
//! Fields, body and decision show the same numbers, computed once: waits in whole seconds, rounded
//! up, and never a `Retry-After` of 0.

pub(crate) mod decided;
#[cfg(feature = "axum")]
pub(crate) mod extractor;
#[cfg(feature = "grpc")]
pub(crate) mod grpc;
pub(crate) mod headers;
mod open_ai;
pub(crate) mod problem;
pub(crate) mod refusal;
pub(crate) mod stop;

#[cfg(feature = "grpc")]
#[cfg_attr(docsrs, doc(cfg(feature = "grpc")))]
pub use self::grpc::{GrpcOr, GrpcStatus};
pub use self::headers::{HeaderFields, LegacyReset};
pub use self::problem::ProblemJson;
pub use self::refusal::{IntoRefusalResponse, Refusal, RefusalReason, Respond};
pub use self::stop::RespondLater;
