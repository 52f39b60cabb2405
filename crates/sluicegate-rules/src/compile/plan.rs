//! Finds the tier of a request: [`TierPlan`].
//!
//! Tiers are identified by their indices, so that a condition compares no texts.

use sluicegate_tower::key::RequestView;

use super::by::AttributeSource;

/// Reads the tier of a request, for limits and for conditions alike. Tiers are identified by their indices.
pub(super) struct TierPlan {
    /// Its index among the tiers of the file.
    pub place: usize,
    pub name: String,
    pub tiers: Vec<String>,
    pub default_tier: usize,
    /// The places that the tier is read from; the first one present counts.
    pub by: Vec<AttributeSource>,
}

impl TierPlan {
    /// The tier that a request names, if it is a tier of this plan.
    pub(super) fn said(&self, request: RequestView<'_>) -> Option<usize> {
        let said = self.by.iter().find_map(|by| by.name(request))?;
        self.tiers.iter().position(|tier| *tier == said)
    }

    /// The tier of a request, or the default one if it names none.
    pub(super) fn tier(&self, request: RequestView<'_>) -> usize {
        self.said(request).unwrap_or(self.default_tier)
    }
}
