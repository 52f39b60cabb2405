//! A policy that is open in its parts: [`OpenedParts`].

use std::sync::Arc;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Ask, OwnQuotas, PreparedPolicy};
use sluicegate_core::{ConfigError, StoreError};
use smallvec::SmallVec;

use super::divide::Divide;

/// A policy that is open in its parts, or in one place as a whole.
pub(super) struct OpenedParts {
    /// The parts as their stores have prepared them; a single one if the policy is kept whole.
    pub(super) parts: SmallVec<[PreparedPolicy; 2]>,
    /// Whether it is kept whole: its asks go to the first store unchanged, under their own key.
    pub(super) is_whole: bool,
}

impl OpenedParts {
    /// The parts that were opened for a policy.
    ///
    /// # Errors
    /// [`StoreErrorKind::ForeignPolicy`] when it was opened on another store.
    pub(super) fn of(policy: &PreparedPolicy) -> Result<&Self, StoreError> {
        policy.prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
    }

    /// The parts for an ask: those of its policy, or those with the quotas that its key brings.
    ///
    /// # Errors
    /// When the policy was opened on another store, or the quotas cannot be divided.
    pub(super) fn for_ask(divide: &dyn Divide, ask: &Ask<'_>) -> Result<Arc<Self>, StoreError> {
        let policy = ask.policy();
        let Some(own) = ask.own() else {
            return policy.replaced().map_err(|_| StoreError::new(StoreErrorKind::ForeignPolicy));
        };
        let opened = Self::of(policy)?.under(divide, policy, own);
        opened.map_err(|error| StoreError::with_source(StoreErrorKind::QuotasExhausted, error))
    }

    /// The parts of this policy for a key that brings quotas of its own, divided as the policy is. They are made once.
    ///
    /// # Errors
    /// When they cannot be divided.
    pub(super) fn under(
        &self,
        divide: &dyn Divide,
        policy: &PreparedPolicy,
        own: &Arc<OwnQuotas>,
    ) -> Result<Arc<Self>, ConfigError> {
        own.prepared(policy, || self.divided(divide, own))
    }

    /// The parts, each with its part of these quotas.
    ///
    /// # Errors
    /// When a part would have no unit.
    fn divided(&self, divide: &dyn Divide, own: &Arc<OwnQuotas>) -> Result<Self, ConfigError> {
        let parts = if self.is_whole { None } else { divide.parts(own.policy(), Some(true))? };
        let owns = parts.map_or_else(
            || vec![Arc::clone(own)],
            |parts| parts.into_iter().map(|part| Arc::new(OwnQuotas::new(Arc::new(part)))).collect(),
        );
        let parts = self.parts.iter().zip(owns).map(|(part, own)| part.under(own));
        Ok(Self { parts: parts.collect(), is_whole: self.is_whole })
    }

    /// The number of quotas of the policy.
    pub(super) fn quotas(&self) -> usize {
        self.parts[0].policy().quotas().len()
    }

    /// The units of this quota that pass at once from rest in this part.
    pub(super) fn capacity(&self, part: usize, quota: usize) -> u64 {
        self.parts[part].numbers().quotas()[quota].rule().capacity()
    }

    /// The units of this quota that pass at once from rest in all parts together.
    pub(super) fn whole_capacity(&self, quota: usize) -> u64 {
        (0..self.parts.len()).map(|part| self.capacity(part, quota)).fold(0, u64::saturating_add)
    }
}
