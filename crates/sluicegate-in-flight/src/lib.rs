//! Limits on concurrent work, per key: [`InFlight`].
//!
//! ```
//! use sluicegate_in_flight::InFlight;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let exports = InFlight::builder("exports", 1).queue(10).build()?;
//! let export = exports.acquire("ada").await?; // ada's next export waits until this one is dropped
//! assert_eq!(exports.in_use("ada"), 1);
//! drop(export);
//! assert_eq!(exports.in_use("ada"), 0);
//! # Ok(())
//! # }
//! ```
//!
//! Use it for work that takes long, because a limit on how often work begins does not limit how much
//! of it runs at once. If the work takes only milliseconds, a rate is the better limit.
//!
//! | | a rate ([`Policy`](sluicegate_core::Policy)) | in flight |
//! |---|---|---|
//! | counts | starts per time | work that has begun but not ended |
//! | a slow service | lets work accumulate | holds back new work |
//! | given back | no, it drains | yes, when the [`Permit`] is dropped |
//! | over several instances | shared by Redis | of this process, or [shared](InFlightBuilder::on) by Redis |
//!
//! The two go well together: a rate against abuse, and a limit on concurrent work against overload.
//!
//! A number for each key protects against clients. If the service itself is the limit, [`InFlight::adaptive`] finds the number of
//! requests that it can handle, for all keys together. The number comes from this process, so each instance has its own: only fixed
//! numbers are shared by instances.
//!
//! # When not to use it
//! To limit CPU work that never yields. Permits that instances share cost a call, and other instances learn of a returned permit within
//! 50 ms: for shorter requests, limit each instance by itself.

pub mod adaptive;
mod builder;
mod in_flight;
#[cfg(feature = "serde")]
#[doc(hidden)]
pub mod json;
mod line;
mod permit;
mod pool;
mod service;
mod shared;
mod status;
mod table;

pub use sluicegate_core::store::{Class, DemandsOf, PermitDemand, PermitGrant, SharedPermits};

pub use self::builder::{AdaptiveBuilder, InFlightBuilder};
pub use self::in_flight::InFlight;
pub use self::permit::{Acquire, NoPermit, Permit, PermitRequest};
pub use self::pool::{NoPermitKind, Sharing};
pub use self::status::{AdaptiveMoment, AdaptiveStatus, SharedStatus};
