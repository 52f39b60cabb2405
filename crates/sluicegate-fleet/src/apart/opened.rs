//! A policy as it is open in its parts: [`Opened`].

use sluicegate_core::StoreError;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::PreparedPolicy;
use smallvec::SmallVec;

/// A policy as it is open in its parts, or in one place as a whole.
pub(super) struct Opened {
    /// Each as its store has prepared it; one if the policy is kept whole.
    pub(super) parts: SmallVec<[PreparedPolicy; 2]>,
    /// Whether it is in no parts: its asks go to the first store as they are, under the key as it is.
    pub(super) is_whole: bool,
}

impl Opened {
    /// The parts that were opened for a policy.
    ///
    /// # Errors
    /// [`StoreErrorKind::ForeignPolicy`] when it was opened on another store.
    pub(super) fn of(policy: &PreparedPolicy) -> Result<&Self, StoreError> {
        policy.prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
    }

    /// How many quotas the policy has.
    pub(super) fn quotas(&self) -> usize {
        self.parts[0].policy().quotas().len()
    }

    /// The units of this quota that pass at once from rest in this part.
    pub(super) fn capacity(&self, part: usize, quota: usize) -> u64 {
        self.parts[part].policy().quotas()[quota].rule().capacity()
    }

    /// The units of this quota that pass at once from rest in all parts together.
    pub(super) fn whole_capacity(&self, quota: usize) -> u64 {
        (0..self.parts.len()).map(|part| self.capacity(part, quota)).fold(0, u64::saturating_add)
    }
}
