//! Rate limiting algorithms, policies and the in-memory store of Sluicegate, without a runtime and without HTTP.
//!
//! Services use the `sluicegate` crate, which puts this one behind Tower and Axum middleware.
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
//! # When to use it
//! - To limit something that is not a request: mails, jobs, SSH logins.
//! - To write a [`Store`] or a [store wrapper](wrap): this crate is enough for that.
//!
//! # When not to use it
//! - In a web service: `sluicegate` has the layer, which finds keys, writes header fields and keeps delays.
//! - For limits that several processes share: put the policies on `RedisStore` of `sluicegate-redis`.
//! - For billing: a store may forget; a ledger in a database may not.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `limiter`, on by default | everything that decides; without it there are only [`policy`], [`algorithm`] and [`error`] |
//! | `tokio` | `Check::acquire` and `Turn`, which wait on tokio's timer |
//! | `tower` | a compiler message that names the layer, if a limiter is used as a layer |
//! | `tracing` | lines in the log, for example about a store that gave no answer |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "limiter"),
    allow(
        dead_code,
        unused_imports,
        reason = "only a limiter calls these, and without the feature there is none"
    )
)]

pub mod algorithm;
pub mod calendar;
#[cfg(feature = "limiter")]
pub mod clock;
#[cfg(feature = "limiter")]
mod decision;
pub mod error;
#[cfg(feature = "limiter")]
mod few;
#[cfg(feature = "limiter")]
pub mod key;
#[cfg(feature = "limiter")]
pub mod limiter;
#[cfg(feature = "limiter")]
pub mod memory;
pub mod policy;
mod quota;
#[cfg(feature = "limiter")]
mod receipt;
#[cfg(feature = "limiter")]
mod status;
#[cfg(feature = "limiter")]
pub mod store;
#[doc(hidden)]
pub mod support;
#[cfg(feature = "limiter")]
pub mod suspension;
mod text;
mod time_span;
#[cfg(feature = "tokio")]
mod wait;
#[cfg(feature = "limiter")]
pub mod wrap;

#[doc(inline)]
pub use self::algorithm::Algorithm;
#[cfg(feature = "limiter")]
pub use self::decision::{Decision, Outcome};
#[doc(inline)]
pub use self::error::{ConfigError, StoreError};
#[cfg(feature = "limiter")]
#[doc(inline)]
pub use self::key::Key;
#[cfg(feature = "limiter")]
#[doc(inline)]
pub use self::limiter::RateLimiter;
#[cfg(feature = "limiter")]
#[doc(inline)]
pub use self::memory::MemoryStore;
#[doc(inline)]
pub use self::policy::{OnExceeded, OnOutage, Policy};
pub use self::quota::Quota;
#[cfg(feature = "limiter")]
#[doc(inline)]
pub use self::store::Store;
