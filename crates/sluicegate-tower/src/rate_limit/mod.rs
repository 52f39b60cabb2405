//! Limits in front of a service: [`RateLimitLayer`].
//!
//! The layer is a caller of [`Limits`](crate::limits::Limits): it decides by them, makes a response
//! of a refusal, and marks the responses of those that pass. Its builder is theirs, with a
//! responder.

mod builder;
mod layer;

pub use self::builder::{RateLimitLayerBuilder, Responding};
pub use self::layer::RateLimitLayer;
pub use crate::admission::meter::Meter;
pub use crate::respond::decided::Decided;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use crate::respond::decided::NotLimited;

/// A service behind a [`RateLimitLayer`].
///
/// Works for every request and response body. A denial is a response, never an error, and the inner service is then not
/// called.
pub type RateLimit<S, R = crate::respond::ProblemJson> = crate::guard::Guarded<S, RateLimitLayer<R>>;
