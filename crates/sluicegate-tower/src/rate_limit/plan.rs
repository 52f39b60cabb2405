//! What can be said of the policies of a layer before any request: made once, and anew when a policy is replaced.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use http::HeaderValue;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::{Policy, RateLimiter};

use crate::respond::headers::lines::{number, policy_line};

/// One limiter of a layer.
pub(crate) struct Slot {
    pub(crate) limiter: RateLimiter,
    /// The place of the limit that it belongs to.
    pub(crate) limit: usize,
}

/// The policies in force, and what follows from them.
#[derive(Debug)]
pub(crate) struct Plan {
    /// One per slot.
    pub(crate) policies: Arc<[Arc<Policy>]>,
    pub(crate) has_shadow: bool,
    pub(crate) has_hidden: bool,
    /// `RateLimit-Policy` of a request that is subject to all of them; `None` if all are hidden.
    pub(crate) policy_line: Option<HeaderValue>,
    /// `X-RateLimit-Limit` of each quota of each policy.
    pub(crate) limits: Box<[Box<[HeaderValue]>]>,
    replacements: u64,
}

impl Plan {
    fn new(slots: &[Slot]) -> Self {
        // Counted first: a replacement in between makes the plan out of date, not wrong for good.
        let replacements = replacements(slots);
        let policies: Arc<[_]> = slots.iter().map(|slot| slot.limiter.policy()).collect();
        let limit = |quota: &PolicyQuota| number(quota.rule().capacity());
        let limits = policies.iter().map(|policy| policy.quotas().iter().map(limit).collect()).collect();
        let shown = policies.iter().filter(|policy| !policy.is_hidden());
        Self {
            has_shadow: policies.iter().any(|policy| policy.is_shadow()),
            has_hidden: policies.iter().any(|policy| policy.is_hidden()),
            policy_line: policy_line(shown.flat_map(|policy| policy.quotas())),
            limits,
            replacements,
            policies,
        }
    }
}

/// The plan in force.
pub(crate) struct Plans {
    first: Plan,
    /// The current plan once a policy was replaced. A layer whose policies never are does not pay for the swap.
    replaced: ArcSwapOption<Plan>,
}

/// A plan, for as long as it is read.
pub(crate) enum Current<'a> {
    First(&'a Plan),
    /// The second one, which is there once there was a replacement.
    Replaced(&'a Plan, Guard<Option<Arc<Plan>>>),
}

impl Plans {
    pub(crate) fn new(slots: &[Slot]) -> Self {
        Self { first: Plan::new(slots), replaced: ArcSwapOption::empty() }
    }

    /// The plan of the policies that are in force now.
    #[inline]
    pub(crate) fn current(&self, slots: &[Slot]) -> Current<'_> {
        let replacements = replacements(slots);
        if self.first.replacements == replacements {
            return Current::First(&self.first);
        }
        let mut replaced = self.replaced.load();
        if replaced.as_ref().is_none_or(|plan| plan.replacements != replacements) {
            self.replaced.store(Some(Arc::new(Plan::new(slots))));
            replaced = self.replaced.load();
        }
        Current::Replaced(&self.first, replaced)
    }
}

impl Deref for Current<'_> {
    type Target = Plan;

    #[inline]
    fn deref(&self) -> &Plan {
        match self {
            Self::First(plan) => plan,
            Self::Replaced(first, plan) => plan.as_deref().unwrap_or(first),
        }
    }
}

#[inline]
fn replacements(slots: &[Slot]) -> u64 {
    slots.iter().map(|slot| slot.limiter.replacements()).sum()
}
