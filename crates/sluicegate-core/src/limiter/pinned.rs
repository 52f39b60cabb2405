//! Limiters that keep their policy when it is replaced together with rules: [`replace_all`](super::replace_all).
//!
//! A request that began under old rules is decided by the policies of these rules, even if others are in force a moment
//! later. So rules hold pinned limiters, and are swapped as one value. Overrides of operators and replacements by code
//! alone, apply to pinned limiters, too; reports (a charge, a refund, a turn that is given up) go to the policy that is in
//! force by then.

use std::sync::Arc;

use super::handle::{InForce, Pinned, RateLimiter};
use crate::policy::Policy;

impl RateLimiter {
    /// This limiter, pinned to the policy that is in force now.
    pub(super) fn pinned_now(&self, own: &Arc<Policy>) -> Self {
        self.pinned_to(&self.0.current.load(), own)
    }

    pub(super) fn pinned_to(&self, in_force: &InForce, own: &Arc<Policy>) -> Self {
        let pinned = Pinned {
            prepared: in_force.prepared.clone(),
            own: Arc::clone(own),
            epoch: Some(in_force.epoch),
            replacements: in_force.kept_at(),
            quotas: None,
            is_given: false,
        };
        Self(Arc::clone(&self.0), Some(Arc::new(pinned)))
    }
}
