//! Limiters that keep their policy when it is replaced together with something else: [`replace_all_with`](super::replace_all_with).
//!
//! A request that began under old rules is decided by the policies of these rules, though others may be in force a moment
//! later. So rules hold limiters that are pinned, and are swapped as one value. Overrides of operators, and replacements by code
//! alone, apply to pinned limiters, too; reports (a charge, a refund, a turn that is given up) go to the policy that has the
//! keys by then.

use std::sync::Arc;

use super::handle::{InForce, Pinned, RateLimiter};
use super::quotas::OwnNumbers;
use crate::policy::Policy;

impl RateLimiter {
    /// This limiter, pinned to the policy that is in force now.
    pub(super) fn pinned_now(&self, own: &Arc<Policy>) -> Self {
        // Read first: a replacement in between makes the limiter look again.
        let replacements = self.replacements();
        self.pinned_to(&self.0.current.load(), own, replacements)
    }

    /// This limiter, for work that goes on for longer than a request, such as a transfer of a large body: it decides by the policy that is in
    /// force at each ask, also where rules have given out the limiter with the policy of theirs. Quotas of its keys stay.
    #[must_use]
    pub fn following(&self) -> Self {
        let Some(pinned) = self.1.as_ref().filter(|pinned| pinned.epoch.is_some()) else {
            return self.clone();
        };
        let newest = Self(Arc::clone(&self.0), None);
        match pinned.quotas.as_ref().map(OwnNumbers::quotas) {
            // Where they do not fit any more, the policy's own decide, as after every replacement.
            Some(quotas) => newest.with_quotas(quotas.clone()).unwrap_or(newest),
            None => newest,
        }
    }

    pub(super) fn pinned_to(&self, in_force: &InForce, own: &Arc<Policy>, replacements: u64) -> Self {
        let InForce { prepared, epoch, .. } = in_force;
        let pinned = Pinned {
            handle: self.id(),
            prepared: prepared.clone(),
            own: Arc::clone(own),
            epoch: Some(*epoch),
            // An override ends by its time, and single keys have others.
            replacements: if in_force.is_overridden() { u64::MAX } else { replacements },
            quotas: None,
            is_given: false,
        };
        Self(Arc::clone(&self.0), Some(Arc::new(pinned)))
    }
}
