//! A policy as it is open in its parts: [`Opened`].

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Ask, OwnQuotas, PreparedPolicy};
use sluicegate_core::{ConfigError, StoreError};
use smallvec::SmallVec;

use super::divide::Divide;

/// A policy as it is open in its parts, or in one place as a whole.
#[derive(Clone)]
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

    /// The parts for an ask whose key brings quotas of its own, which are divided as the policy's are.
    ///
    /// # Errors
    /// When they cannot be.
    pub(super) fn under<'a>(
        &'a self,
        divide: &dyn Divide,
        ask: &Ask<'_>,
    ) -> Result<Cow<'a, Self>, StoreError> {
        let Some(own) = ask.own() else { return Ok(Cow::Borrowed(self)) };
        let opened = own.prepared(ask.policy(), || self.divided(divide, own));
        let opened =
            opened.map_err(|error| StoreError::with_source(StoreErrorKind::QuotasExhausted, error))?;
        Ok(Cow::Owned(Self::clone(&opened)))
    }

    /// The parts, each with its part of these quotas.
    ///
    /// # Errors
    /// When a part would have none.
    pub(super) fn divided(&self, divide: &dyn Divide, own: &Arc<OwnQuotas>) -> Result<Self, ConfigError> {
        let parts = if self.is_whole { None } else { divide.parts(own.policy(), Some(true))? };
        let owns = parts.map_or_else(
            || vec![Arc::clone(own)],
            |parts| parts.into_iter().map(|part| Arc::new(OwnQuotas::new(Arc::new(part)))).collect(),
        );
        let parts = self.parts.iter().zip(owns).map(|(part, own)| part.under(own));
        Ok(Self { parts: parts.collect(), is_whole: self.is_whole })
    }

    /// How many quotas the policy has.
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
