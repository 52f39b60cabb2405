//! Changing the limits of a layer while it serves: [`InFlightHandle`].

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::in_flight::{InFlightLimit, InFlightLimits};

/// The limits of an [`InFlightLayer`](crate::in_flight::InFlightLayer), to swap them as a whole. Clones refer to the same layer.
///
/// A request keeps the limits that it began with, and its permits. Requests that begin after a swap meet the new limits.
/// The [`InFlight`](sluicegate_in_flight::InFlight) counts the permits, so an `InFlight` in both the old and the new limits
/// keeps counting.
///
/// ```
/// use sluicegate_in_flight::InFlight;
/// use sluicegate_tower::in_flight::{InFlightHandle, InFlightLayer, InFlightLimit};
///
/// let reports = InFlight::new("reports", 2)?;
/// let handle = InFlightHandle::new([InFlightLimit::new(reports.clone())]);
/// let layer = InFlightLayer::from(handle.clone());
///
/// // Later, while the layer serves: no request is counted any more.
/// handle.swap([]);
/// # let _ = layer;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct InFlightHandle(Arc<ArcSwap<InFlightLimits>>);

impl InFlightHandle {
    /// A handle for layers that are made from it.
    pub fn new(limits: impl IntoIterator<Item = InFlightLimit>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(InFlightLimits::new(limits))))
    }

    /// Replaces the limits.
    pub fn swap(&self, limits: impl IntoIterator<Item = InFlightLimit>) {
        self.swap_with(InFlightLimits::new(limits));
    }

    /// Replaces the limits, together with their common settings.
    pub fn swap_with(&self, limits: InFlightLimits) {
        self.0.store(Arc::new(limits));
    }

    /// The limits that requests meet now, in their order.
    pub(super) fn limits(&self) -> Arc<InFlightLimits> {
        self.0.load_full()
    }
}

impl fmt::Debug for InFlightHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlightHandle").field(&self.limits()).finish()
    }
}
