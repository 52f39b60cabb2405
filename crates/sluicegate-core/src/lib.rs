//! Rate limiting algorithms, policies and the in-memory store of Sluicegate, without a runtime and without HTTP.
//!
//! Services use the `sluicegate` crate, which puts this one behind Tower and Axum middleware. Use this one alone to
//! limit something that is not a request, or to write a [`Store`].
//!
//! A [`Policy`] names one or more [`Quota`]s and an [`Algorithm`]; put on a store it is a [`RateLimiter`], which
//! answers a [`Key`] with a [`Decision`]:
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let store = MemoryStore::new();
//! let mail = Policy::gcra("mail", "3/h").and("10/d").on(&store)?;
//!
//! for _ in 0..3 {
//!     assert!(mail.check("ada@example.org").now().expect("memory answers at once")?.is_allowed());
//! }
//! let denied = mail.check("ada@example.org").now().expect("memory answers at once")?;
//! assert_eq!(denied.retry_after().map(|wait| wait.as_secs() / 60), Some(19)); // a little under 20 minutes
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `tokio` | `RateLimiter::acquire` and `Turn`, which wait on tokio's timer |
//! | `resilient` | `Resilient`: a store that survives the failures of the one it is around; needs `tokio` |
//! | `conformance` | [`conformance`], the suite that every store has to pass |
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod algorithm;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod decision;
mod error;
mod in_flight;
mod key;
mod limiter;
mod memory;
mod policy;
mod quota;
mod receipt;
mod registry;
#[cfg(feature = "resilient")]
mod resilient;
mod store;
#[cfg(feature = "tokio")]
mod turn;

pub use self::algorithm::{Algorithm, Anchor, Drain, Refill};
pub use self::clock::{Clock, ManualClock, SystemClock};
pub use self::decision::{Basis, Decision, Outcome, Standing};
pub use self::error::{BoxError, ConfigError, ConfigErrorKind, StoreError, StoreErrorKind};
pub use self::in_flight::{Acquire, Busy, BusyKind, InFlight, InFlightBuilder, Permit};
pub use self::key::{AsKey, Key, KeyRef};
pub use self::limiter::{Change, Limiters, RateLimiter};
pub use self::memory::{MemoryStats, MemoryStore, MemoryStoreBuilder};
pub use self::policy::{MAX_BUCKETS, OnExceeded, OnFull, OnOutage, Policy, PolicyBuilder, PolicyQuota};
pub use self::quota::{IntoQuota, Quota};
pub use self::receipt::{Receipt, Trace};
pub use self::registry::Registry;
#[cfg(feature = "resilient")]
pub use self::resilient::{
    BreakerSettings, BreakerState, Resilient, ResilientBuilder, ResilientStatus, Unsettled,
};
pub use self::store::{Ask, Inherit, Mode, Opened, Store, Verdict};
#[cfg(feature = "tokio")]
pub use self::turn::Turn;
