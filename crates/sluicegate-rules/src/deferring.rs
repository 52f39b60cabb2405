//! The limits of a program that keeps requests for later: [`Deferring`].

use std::sync::Arc;

use sluicegate_tower::RateLimitLayer;
use sluicegate_tower::defer::{Defer, DeferLayer};
use sluicegate_tower::in_flight::InFlightHandle;
use sluicegate_tower::limits::LimitsHandle;

use crate::in_force::SplitLimits;
use crate::layer::DeferringParts;

/// The limits of a program that keeps requests, in two parts.
pub(crate) struct Deferring {
    deferral: Arc<dyn Defer>,
    /// The limits that refuse.
    refusing: LimitsHandle,
    /// The limits on requests at once, before `refusing`.
    in_flight: InFlightHandle,
    /// The limits that defer.
    limits: LimitsHandle,
}

impl Deferring {
    pub(crate) fn new(
        deferral: Arc<dyn Defer>,
        SplitLimits { refusing, at_once, deferring }: SplitLimits,
    ) -> Self {
        let (refusing, in_flight) = (LimitsHandle::new(refusing), InFlightHandle::new([]));
        in_flight.swap_with(at_once.before(&refusing));
        Self { deferral, refusing, in_flight, limits: LimitsHandle::new(deferring) }
    }

    pub(crate) fn swap(&self, SplitLimits { refusing, at_once, deferring }: SplitLimits) {
        self.refusing.swap(refusing);
        self.limits.swap(deferring);
        self.in_flight.swap_with(at_once.before(&self.refusing));
    }

    pub(crate) fn parts(&self) -> DeferringParts {
        DeferringParts {
            in_flight: self.in_flight.clone().into(),
            refusing: RateLimitLayer::from(self.refusing.clone()).settling(),
            deferring: DeferLayer::new(self.limits.clone(), Arc::clone(&self.deferral)),
        }
    }
}
