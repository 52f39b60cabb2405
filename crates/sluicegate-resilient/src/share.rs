//! The share of a policy by which the fallback decides: [`FallbackShare`].
//!
//! A request that waits for a store that does not answer may be decided here long after it came, and its policy may have been
//! replaced meanwhile. The old share's buckets are at rest by then, because their keys moved to the new share: the old share would
//! give such a request a burst that is already spent. So it is decided by the share in force.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_core::store::{PreparedPolicy, WeakPolicy};

/// A policy's share, opened on the fallback, if the policy is decided locally in an outage.
pub(super) struct FallbackShare {
    own: Option<PreparedPolicy>,
    /// The number of policies before this one.
    number: u64,
    terms: Arc<ShareInForce>,
}

/// State that a policy shares with its replacements.
#[derive(Default)]
struct ShareInForce {
    /// The number of the policy in force.
    newest: AtomicU64,
    /// The policy in force. Weak, so that an old handle does not keep a replaced policy open.
    in_force: Mutex<Option<PolicyInForce>>,
}

/// A policy in force, and its share, if it is decided locally.
struct PolicyInForce {
    policy: WeakPolicy,
    share: Option<WeakPolicy>,
}

impl FallbackShare {
    /// The share of a policy, linked to the share that it replaces.
    pub(super) fn new(own: Option<PreparedPolicy>, replaces: Option<&Self>) -> Self {
        match replaces {
            Some(old) => Self { own, number: old.number + 1, terms: Arc::clone(&old.terms) },
            None => Self { own, number: 0, terms: Arc::default() },
        }
    }

    /// Puts this share of a policy in force, in place of the earlier ones.
    pub(super) fn begin(&self, policy: &PreparedPolicy) {
        let mut in_force = self.terms.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let share = self.own.as_ref().map(PreparedPolicy::downgrade);
        *in_force = Some(PolicyInForce { policy: policy.downgrade(), share });
        // Release: a thread that reads the number finds the share under the lock.
        self.terms.newest.store(self.number, Ordering::Release);
    }

    /// The share that was opened for this policy.
    pub(super) fn own(&self) -> Option<&PreparedPolicy> {
        self.own.as_ref()
    }

    /// The share that decides now: this policy's own, or that of its latest replacement, if that is decided locally.
    pub(super) fn in_force(&self) -> Option<Cow<'_, PreparedPolicy>> {
        let own = self.own.as_ref()?;
        let newer = self.newer(|newer| newer.share.as_ref()?.upgrade());
        Some(newer.map_or(Cow::Borrowed(own), Cow::Owned))
    }

    /// The policy that has replaced the policy of this share, if it is still open.
    pub(super) fn replaced_by(&self) -> Option<PreparedPolicy> {
        self.newer(|newer| newer.policy.upgrade())
    }

    /// Reads something of the latest replacement, if there is one.
    fn newer<T>(&self, read: impl FnOnce(&PolicyInForce) -> Option<T>) -> Option<T> {
        // Acquire, with the release in `begin`.
        if self.terms.newest.load(Ordering::Acquire) == self.number {
            return None;
        }
        let in_force = self.terms.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        in_force.as_ref().and_then(read)
    }
}
