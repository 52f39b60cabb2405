//! Limits for calls that are not HTTP: jobs, queries, messages, any [`Service`](tower_service::Service).

mod admission;
mod error;
mod key;
mod layer;

#[cfg(feature = "outgoing")]
pub(crate) use self::admission::{Admission, Ask, Under, notice};
pub use self::error::CallError;
pub use self::key::CallKey;
pub use self::layer::CallLimitLayer;
