//! Errors of a configuration, and of a store that gave no answer.
//!
//! | error | comes from | what to do |
//! |---|---|---|
//! | [`ConfigError`] | building a quota, policy, store or layer | correct what its message names; it comes when the program starts |
//! | [`StoreError`] | a store that was asked | nothing: layers do what the policy's [`OnOutage`](crate::OnOutage) says |
//!
//! A refusal is neither of them: it is a [`Decision`](crate::Decision) that is not allowed.
//! [`StoreError::may_succeed_later`] tells an outage, which may be over soon, from a mistake in the
//! program.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let error = Policy::gcra("login", "5/fortnight").on(&MemoryStore::new()).unwrap_err();
//! assert!(error.to_string().contains("\"fortnight\" is not a unit of time"));
//! ```
//!
//! Messages name the offending value and say what to write. They leave out their source, so that a
//! chain (`{error}: {source}`) prints each message once.

mod config;
mod store;
#[cfg(test)]
mod tests;

pub use self::config::{ConfigError, ConfigErrorKind};
pub use self::store::{StoreError, StoreErrorKind};
