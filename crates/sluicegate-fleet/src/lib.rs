//! Store wrappers for a fleet of instances: shared limits, mostly decided in memory.
//!
//! This crate is part of `sluicegate`, which re-exports all of it behind the feature `fleet`; use that crate.
//!
//! | store | what it saves |
//! |---|---|
//! | [`DenyCache`] | calls for keys that are refused |
//! | [`Leased`] | calls for keys that may pass |
//! | [`Sharded`] | the slot of a Cluster that one hot key fills |
//! | [`Regional`] | calls to another region |
//!
//! Each goes around any store and can be left out. Their order is fixed, from outside in: `Observed`, `DenyCache`, `Leased`,
//! `Resilient`, `Sharded` or `Regional`. Another order is an error that prints it.
//!
//! ```
//! use sluicegate_core::store::DecidedBy;
//! use sluicegate_core::Policy;
//! use sluicegate_resilient::Resilient;
//! use sluicegate_fleet::{DenyCache, Leased};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let redis = sluicegate_core::MemoryStore::new();
//! let shared = Resilient::builder(redis).replicas(4).build()?; // around the Redis of four instances
//! let store = DenyCache::new(Leased::new(shared));
//! let login = Policy::gcra("login", "5/min").on(&store)?;
//!
//! for _ in 0..5 {
//!     assert!(login.check("ada").await?.is_allowed());
//! }
//! assert!(!login.check("ada").await?.is_allowed()); // the shared store has refused
//! assert_eq!(login.check("ada").await?.decided_by(), DecidedBy::Cache);
//! # Ok(())
//! # }
//! ```
//!
//! # When not to use it
//! - For one instance: a `MemoryStore` is already the shared store.
//! - If one Redis is fast enough: each of these stores has state of its own, and its page states the cost.
//! - For limits of a few units: they cannot be leased or divided, and each call costs an additional table lookup.

pub mod deny_cache;
mod divided;
mod latch;
pub mod leased;
pub mod regional;
pub mod sharded;

#[doc(inline)]
pub use self::deny_cache::DenyCache;
#[doc(inline)]
pub use self::leased::Leased;
#[doc(inline)]
pub use self::regional::Regional;
#[doc(inline)]
pub use self::sharded::Sharded;
