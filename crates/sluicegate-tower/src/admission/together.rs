//! The policies of limiters that are asked together, and the value of `RateLimit-Policy`. Both are cached until a request asks other
//! limiters or a policy is replaced.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use sluicegate_core::limiter::policies;
use sluicegate_core::{Policy, RateLimiter};

use crate::respond::headers::lines::policy_line;

/// Values that requests to the same limiters share.
#[derive(Debug, Default)]
pub(super) struct PolicyCache {
    /// The latest limiters that were asked together. A single limiter already has its policies.
    together: ArcSwapOption<Together>,
    line: ArcSwapOption<PolicyLine>,
}

/// Limiters that were asked together, with their policies. Made once, and anew when a policy is replaced.
#[derive(Debug)]
struct Together {
    limiters: Box<[RateLimiter]>,
    /// The number of replacements of their policies before this was made.
    replacements: u64,
    /// One per limiter.
    policies: Arc<[Arc<Policy>]>,
}

/// `RateLimit-Policy` of these policies; `None` if all are hidden.
#[derive(Debug)]
struct PolicyLine {
    policies: Arc<[Arc<Policy>]>,
    line: Option<HeaderValue>,
}

impl PolicyCache {
    /// The current policies of these limiters.
    #[inline]
    pub(super) fn policies<'a>(
        &self,
        limiters: impl ExactSizeIterator<Item = &'a RateLimiter> + Clone,
    ) -> Arc<[Arc<Policy>]> {
        match self.together.load().as_deref() {
            Some(known) if known.is_of(limiters.clone()) => Arc::clone(&known.policies),
            known => self.learn(limiters, known),
        }
    }

    /// The value of `RateLimit-Policy` for these policies.
    pub(super) fn policy_line(&self, policies: &Arc<[Arc<Policy>]>) -> Option<HeaderValue> {
        if let Some(known) =
            self.line.load().as_deref().filter(|known| Arc::ptr_eq(&known.policies, policies))
        {
            return known.line.clone();
        }
        let shown = policies.iter().filter(|policy| !policy.is_hidden());
        let line = policy_line(&mut shown.flat_map(|policy| policy.quotas()));
        // A list made for one request is never looked up again.
        let together = self.together.load();
        let is_kept = |known: &Together| Arc::ptr_eq(&known.policies, policies);
        if policies.len() == 1 || together.as_deref().is_some_and(is_kept) {
            let known = PolicyLine { policies: Arc::clone(policies), line: line.clone() };
            self.line.store(Some(Arc::new(known)));
        }
        line
    }

    /// Looks up the policies of limiters that are not cached, and caches them.
    #[cold]
    fn learn<'a>(
        &self,
        limiters: impl ExactSizeIterator<Item = &'a RateLimiter>,
        known: Option<&Together>,
    ) -> Arc<[Arc<Policy>]> {
        if known.is_some_and(|known| !known.gives_way(limiters.len())) {
            return policies(limiters);
        }
        let limiters: Box<[_]> = limiters.cloned().collect();
        // Counted first, so that a replacement in between makes the entry outdated, not permanently wrong.
        let replacements = replacements(limiters.iter());
        let policies = policies(&limiters);
        let new = Together { limiters, replacements, policies: Arc::clone(&policies) };
        self.together.store(Some(Arc::new(new)));
        policies
    }
}

impl Together {
    /// Whether the entry is for these limiters, and up to date.
    #[inline]
    fn is_of<'a>(&self, limiters: impl ExactSizeIterator<Item = &'a RateLimiter> + Clone) -> bool {
        limiters.len() == self.limiters.len()
            && limiters.clone().zip(&self.limiters).all(|(limiter, known)| limiter == known)
            && replacements(limiters) == self.replacements
    }

    /// Whether an entry for this number of limiters may replace this one: it has no more limiters, or is out of date.
    fn gives_way(&self, limiters: usize) -> bool {
        limiters > self.limiters.len() || replacements(self.limiters.iter()) != self.replacements
    }
}

/// The total number of replacements. No count ever falls, so an equal sum means that each count is equal.
#[inline]
fn replacements<'a>(limiters: impl Iterator<Item = &'a RateLimiter>) -> u64 {
    limiters.fold(0, |sum, limiter| sum.wrapping_add(limiter.replacements()))
}
