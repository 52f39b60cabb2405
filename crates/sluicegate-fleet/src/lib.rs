//! Stores around stores for a fleet of instances: limits that all of them share, decided at the speed of memory.
//!
//! This crate is part of `sluicegate`, which re-exports all of it behind the feature `fleet`; use that one.

mod apart;
pub mod deny_cache;
mod gate;
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
