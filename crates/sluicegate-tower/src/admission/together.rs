//! The policies that a request is asked of together, and what can be said of them before any decision. Made once, and
//! anew when a policy is replaced.

use std::sync::Arc;

use http::HeaderValue;
use sluicegate_core::{Policy, RateLimiter};

use crate::respond::headers::lines::policy_line;

/// Limiters that were asked together, with what fields say of their policies.
#[derive(Debug)]
pub(crate) struct Together {
    /// Each with how often its policy was replaced before that.
    limiters: Box<[(RateLimiter, u64)]>,
    /// One per limiter.
    pub(crate) policies: Arc<[Arc<Policy>]>,
    /// `RateLimit-Policy` of all of them; `None` if all are hidden.
    pub(crate) policy_line: Option<HeaderValue>,
}

impl Together {
    pub(crate) fn new<'a>(limiters: impl Iterator<Item = &'a RateLimiter>) -> Self {
        // Counted first: a replacement in between makes it out of date, not wrong for good.
        let limiters: Box<[_]> = limiters.map(|limiter| (limiter.clone(), limiter.replacements())).collect();
        let policies: Arc<[Arc<Policy>]> = limiters.iter().map(|(limiter, _)| limiter.policy()).collect();
        let shown = policies.iter().filter(|policy| !policy.is_hidden());
        let policy_line = policy_line(shown.flat_map(|policy| policy.quotas()));
        Self { limiters, policies, policy_line }
    }

    /// Whether it is about these limiters, and up to date.
    #[inline]
    pub(super) fn is_of<'a>(&self, limiters: impl ExactSizeIterator<Item = &'a RateLimiter>) -> bool {
        limiters.len() == self.limiters.len()
            && limiters.zip(&self.limiters).all(|(limiter, (known, replacements))| {
                limiter.is(known) && limiter.replacements() == *replacements
            })
    }

    /// Whether it gives way to what is about these limiters: it is about no more of them, or out of date.
    pub(super) fn gives_way(&self, limiters: usize) -> bool {
        limiters > self.limiters.len()
            || self.limiters.iter().any(|(limiter, replacements)| limiter.replacements() != *replacements)
    }
}
