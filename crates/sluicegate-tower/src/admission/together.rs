//! The policies of limiters that are asked together, and what fields say of them: looked up once, and kept until one of them is
//! replaced.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use sluicegate_core::{Policy, RateLimiter};

use crate::respond::headers::lines::policy_line;

/// What is known of limiters that were asked together.
#[derive(Debug)]
pub(super) struct Known {
    /// Of a single limit, as the first request has met it: at hand without a count of who looks. No other is kept for good: policies
    /// that are chosen per request are closed.
    pub(super) only: OnceLock<Together>,
    /// Of those that the last requests asked, kept until the next request.
    last: ArcSwapOption<Together>,
    is_plain: bool,
}

/// Limiters that were asked together, with what fields say of their policies. Made once, and anew when one of them is replaced.
#[derive(Debug)]
pub(super) struct Together {
    limiters: Box<[RateLimiter]>,
    /// How often their policies were replaced before that, in all.
    pub(super) replacements: u64,
    /// One per limiter.
    pub(super) policies: Arc<[Arc<Policy>]>,
    /// `RateLimit-Policy` of all of them; `None` if all are hidden.
    policy_line: Option<HeaderValue>,
}

impl Known {
    /// Nothing yet; of limits that are a single plain one, or not.
    pub(super) fn new(is_plain: bool) -> Self {
        Self { only: OnceLock::new(), last: ArcSwapOption::empty(), is_plain }
    }

    /// The policies of limiters as they are now.
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

    /// Reads what is known, if it is this.
    #[inline]
    fn read<T>(&self, is_it: impl Fn(&Together) -> bool, read: impl FnOnce(&Together) -> T) -> Option<T> {
        match self.only.get() {
            Some(only) if is_it(only) => Some(read(only)),
            _ => self.last.load().as_deref().filter(|last| is_it(last)).map(read),
        }
    }

    /// The policies of limiters that are not known yet.
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
        // Counted first: a replacement in between makes it out of date, not wrong for good.
        let replacements = replacements(limiters.iter());
        let policies: Arc<[Arc<Policy>]> = limiters.iter().map(RateLimiter::policy).collect();
        let shown = policies.iter().filter(|policy| !policy.is_hidden());
        let policy_line = policy_line(&mut shown.flat_map(|policy| policy.quotas()));
        Self { limiters, replacements, policies, policy_line }
    }

    /// Whether it is about these limiters, and up to date.
    #[inline]
    fn is_of<'a>(&self, limiters: impl ExactSizeIterator<Item = &'a RateLimiter> + Clone) -> bool {
        limiters.len() == self.limiters.len()
            && limiters.clone().zip(&self.limiters).all(|(limiter, known)| limiter.decides_like(known))
            && replacements(limiters) == self.replacements
    }

    /// Whether it gives way to what is about these limiters: it is about no more of them, or out of date.
    fn gives_way(&self, limiters: usize) -> bool {
        limiters > self.limiters.len() || replacements(self.limiters.iter()) != self.replacements
    }
}

/// How often policies were replaced, in all: no count ever falls, so an equal sum is an equal count of each.
#[inline]
fn replacements<'a>(limiters: impl Iterator<Item = &'a RateLimiter>) -> u64 {
    limiters.fold(0, |sum, limiter| sum.wrapping_add(limiter.replacements()))
}
