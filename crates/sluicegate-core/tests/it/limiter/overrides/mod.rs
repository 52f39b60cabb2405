//! Overrides of operators: on one instance, and on several that share a store.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod alone;
mod crossings;
mod fleet;
mod of_keys;
mod shared;

use sluicegate_core::policy::{Override, OverrideBuilder};

/// An override of this policy to this quota, by Ada.
fn to(policy: &str, quota: &str) -> OverrideBuilder {
    Override::builder(policy, "ada").quota(quota)
}

/// Nine a minute instead.
fn nine(policy: &str) -> OverrideBuilder {
    to(policy, "9/min")
}
