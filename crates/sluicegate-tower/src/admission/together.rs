//! The policies of limiters that are asked together, and their `RateLimit-Policy` value: looked up once, and cached until one of
//! them is replaced.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use sluicegate_core::{Policy, RateLimiter};

use crate::respond::headers::lines::policy_line;

/// A cache of policies of limiters that were asked together.
#[derive(Debug)]
pub(super) struct PolicyCache {
    /// The policies of a single plain limit, from its first request, readable without a reference count. No others are kept for
    /// good, because policies that are chosen per request are closed.
    pub(super) only: OnceLock<Together>,
    /// The policies of the latest requests, until others replace them.
    last: ArcSwapOption<Together>,
    is_plain: bool,
}

/// Limiters that were asked together, with their policies. Made once, and anew when a policy is replaced.
#[derive(Debug)]
pub(super) struct Together {
    limiters: Box<[RateLimiter]>,
    /// The number of replacements of their policies before this was made.
    pub(super) replacements: u64,
    /// One per limiter.
    pub(super) policies: Arc<[Arc<Policy>]>,
    /// `RateLimit-Policy` of all of them; `None` if all are hidden.
    policy_line: Option<HeaderValue>,
}

impl PolicyCache {
    /// An empty cache, for a single plain limit or for other limits.
    pub(super) fn new(is_plain: bool) -> Self {
        Self { only: OnceLock::new(), last: ArcSwapOption::empty(), is_plain }
    }

    /// The current policies of the limiters.
    #[inline]
    pub(super) fn policies<'a>(
        &self,
        limiters: impl ExactSizeIterator<Item = &'a RateLimiter> + Clone,
    ) -> Arc<[Arc<Policy>]> {
        let known = self.read(|known| known.is_of(limiters.clone()), |known| Arc::clone(&known.policies));
        known.unwrap_or_else(|| self.learn(limiters))
    }

    /// The value of `RateLimit-Policy` for these policies, if it is known.
    pub(super) fn policy_line(&self, policies: &Arc<[Arc<Policy>]>) -> Option<Option<HeaderValue>> {
        self.read(|known| Arc::ptr_eq(&known.policies, policies), |known| known.policy_line.clone())
    }

    /// Reads the cached entry for which `is_it` is true, if there is one.
    #[inline]
    fn read<T>(&self, is_it: impl Fn(&Together) -> bool, read: impl FnOnce(&Together) -> T) -> Option<T> {
        match self.only.get() {
            Some(only) if is_it(only) => Some(read(only)),
            _ => self.last.load().as_deref().filter(|last| is_it(last)).map(read),
        }
    }

    /// Looks up the policies of limiters that are not cached, and caches them.
    #[cold]
    fn learn<'a>(&self, limiters: impl ExactSizeIterator<Item = &'a RateLimiter>) -> Arc<[Arc<Policy>]> {
        if self.last.load().as_ref().is_some_and(|last| !last.gives_way(limiters.len())) {
            return limiters.map(RateLimiter::policy).collect();
        }
        let new = Together::new(limiters);
        let policies = Arc::clone(&new.policies);
        let new = if self.is_plain { self.only.set(new).err() } else { Some(new) };
        if let Some(new) = new {
            self.last.store(Some(Arc::new(new)));
        }
        policies
    }
}

impl Together {
    fn new<'a>(limiters: impl Iterator<Item = &'a RateLimiter>) -> Self {
        let limiters: Box<[_]> = limiters.cloned().collect();
        // Counted first, so that a replacement in between makes the entry out of date and not wrong for good.
        let replacements = replacements(limiters.iter());
        let policies: Arc<[Arc<Policy>]> = limiters.iter().map(RateLimiter::policy).collect();
        let shown = policies.iter().filter(|policy| !policy.is_hidden());
        let policy_line = policy_line(&mut shown.flat_map(|policy| policy.quotas()));
        Self { limiters, replacements, policies, policy_line }
    }

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
