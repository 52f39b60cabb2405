//! Policies on stores of their own: in tokio's time, late, or out of reach.

use sluicegate_core::RateLimiter;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_tests::around;
use sluicegate_tests::memory::paused_store;

/// The policy on a store of its own, whose time is tokio's.
pub(crate) fn limiter(policy: PolicyBuilder) -> RateLimiter {
    policy.on(paused_store()).unwrap()
}

/// The policy on a store that gives no answer, now or once the task has been polled again.
pub(crate) fn broken(policy: PolicyBuilder, at_once: bool) -> RateLimiter {
    policy.on(around::broken(at_once)).unwrap()
}

/// The policy on a store in memory whose answers take another poll, and whose time is tokio's.
pub(crate) fn slow(policy: PolicyBuilder) -> RateLimiter {
    policy.on(around::late(&paused_store())).unwrap()
}
