//! Soon.
pub use sluicegate_core::*;
