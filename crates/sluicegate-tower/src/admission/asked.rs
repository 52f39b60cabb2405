//! What one request asks of one limit.

use sluicegate_core::{Key, RateLimiter};

use crate::limits::group::Plan;
use crate::limits::pick::Which;

/// Whose bucket of which limiter of a limit, and for how much.
///
/// It names the limiter by its place in the plan, so that nothing is cloned for a request that is
/// decided at once.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The place of the limit.
    pub(crate) limit: usize,
    pub(crate) which: Which,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

impl Asked {
    #[inline]
    pub(crate) fn limiter<'a>(&'a self, plan: &'a Plan) -> &'a RateLimiter {
        plan.limits[self.limit].source.limiter(&self.which)
    }
}
