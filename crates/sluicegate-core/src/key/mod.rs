//! Keys, which identify buckets.
//!
//! Limiters take any [`AsKey`] as a key: text, numbers, addresses, and
//! tuples of them. A [`Key`] is its owned form. Requests with equal keys spend from
//! one bucket, and requests with different keys never do.
//!
//! A key that a client can choose freely, such as an unverified header, limits
//! nothing: each value has a bucket of its own. Combine it with one that the client cannot choose, or
//! limit the address as well.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Policy::gcra("api", "1/min").on(&MemoryStore::new())?;
//! assert!(limiter.check("ada").await?.is_allowed());
//! assert!(!limiter.check("ada").await?.is_allowed());
//! // A bucket per combination, here of user and address.
//! assert!(limiter.check(("ada", Ipv4Addr::LOCALHOST)).await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # Which key
//! | key | for | beware of |
//! |---|---|---|
//! | user or tenant id | anything behind a login | requests before the login: limit those by address |
//! | API key, digested | public APIs | keys that are not verified yet |
//! | client address | anonymous traffic | proxies; offices behind one address; IPv6, where a client has a whole /64 |
//! | constant | the capacity of the service as a whole | one client can use it up: [hide](crate::policy::PolicyBuilder::hidden) it, and put a limit per client beside it |
//!
//! # In the store
//! Memory stores keep a hash of the key with a random seed, Redis a keyed hash of 128 bits. Neither
//! keeps the key, so an address or an API key cannot be read back from a store.

mod as_key;
mod encoded;
#[cfg(test)]
mod tests;

pub use self::as_key::AsKey;
pub use self::encoded::{Key, KeyKind, KeyRef};
