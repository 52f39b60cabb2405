//! Errors of configurations, and of stores that give no answer.
//!
//! | error | comes from | what to do |
//! |---|---|---|
//! | [`ConfigError`] | building a quota, policy, store or layer | correct the value that its message names; it occurs when the program starts |
//! | [`StoreError`] | a store that was asked | nothing: layers follow the policy's [`OnOutage`](crate::OnOutage) |
//! | `AcquireError` | waiting for a turn | send the work back, or try again later: it was not admitted |
//!
//! A refusal of a check is no error: it is a [`Decision`](crate::Decision) that is not allowed.
//! [`StoreError::may_succeed_later`] distinguishes an outage, which may be over soon, from a mistake in the
//! program.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let error = Policy::gcra("login", "5/fortnight").on(&MemoryStore::new()).unwrap_err();
//! assert!(error.to_string().contains("\"fortnight\" is not a unit of time"));
//! ```
//!
//! Messages name the offending value and a correction. They leave out their source, so that a
//! chain (`{error}: {source}`) prints each message once.

#[cfg(feature = "tokio")]
mod acquire;
mod config;
mod store;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;

#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::acquire::{AcquireError, AcquireErrorKind};
pub use self::config::{ConfigError, ConfigErrorKind};
pub use self::store::{StoreError, StoreErrorKind};

/// Writes an error and its sources, each once: `the store cannot be reached: connection refused`.
fn write_chain(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{error}")?;
    let mut source = error.source();
    while let Some(cause) = source {
        write!(f, ": {cause}")?;
        source = cause.source();
    }
    Ok(())
}
