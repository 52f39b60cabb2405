//! What a client is told: the header fields of every response, and the response to a request that is refused.

pub(crate) mod accept;
pub(crate) mod decided;
#[cfg(feature = "grpc")]
pub(crate) mod grpc;
pub(crate) mod headers;
pub(crate) mod problem;
pub(crate) mod refusal;
pub(crate) mod shown;
pub(crate) mod spread;

#[cfg(feature = "grpc")]
#[cfg_attr(docsrs, doc(cfg(feature = "grpc")))]
pub use self::grpc::{GrpcOr, GrpcStatus};
pub use self::headers::{HeaderFields, LegacyReset};
pub use self::problem::ProblemJson;
pub use self::refusal::{Refusal, RefusalReason, Respond};
