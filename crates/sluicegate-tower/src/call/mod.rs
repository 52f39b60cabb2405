//! Limits for calls that are not HTTP: jobs, queries, messages, any [`Service`](tower_service::Service).

mod admission;
mod error;
mod future;
mod layer;
mod meter;

pub(crate) use self::admission::{Admission, Admitted, Refused};
pub use self::error::CallError;
pub use self::future::CallFuture;
pub use self::layer::{CallLimit, CallLimitLayer};
pub use self::meter::{CallKey, WithCost};
