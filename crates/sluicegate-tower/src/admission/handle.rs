//! Changing the limits of a layer while it serves: [`LimitsHandle`].

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::admission::set::Limits;

/// The limits of a layer, to be looked at and to be swapped as a whole. Clones are about the same layer.
///
/// A request keeps the limits that it began with to the end of its response: its turn, refunds and [`Meter`](crate::Meter)
/// are theirs. Requests that begin after a swap meet the new limits, all of them at once.
///
/// A policy that both have keeps its buckets, for these are the store's. Where quotas change,
/// [`replace`](sluicegate_core::RateLimiter::replace) the policy, and that is all; a swap is for another set of limits,
/// another order, or other conditions, keys and settings. How many requests wait and what was counted of policies in
/// shadow goes on.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::RateLimitLayer;
/// use sluicegate_tower::limits::Limits;
///
/// let store = MemoryStore::new();
/// let api = Policy::gcra("api", "100/min").on(&store)?;
/// let layer = RateLimitLayer::new(api.clone());
///
/// // Later, while the service runs: a second limit beside the first.
/// let hourly = Policy::gcra("hourly", "1000/h").on(&store)?;
/// layer.limits_handle().swap(Limits::builder(api).and(hourly).build()?);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct LimitsHandle(Arc<ArcSwap<Limits>>);

impl LimitsHandle {
    /// A handle for layers that are made [from](crate::RateLimitLayer) it.
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(limits)))
    }

    /// The limits that requests meet now.
    pub fn current(&self) -> Limits {
        Limits::clone(&self.0.load())
    }

    /// Puts these limits in the place of those that are there, which are returned.
    ///
    /// New limits take over the queue's count and what was counted of shadow policies. Nothing is
    /// checked here that [`build`](crate::limits::LimitsBuilder::build) has not checked already, so
    /// a swap cannot fail.
    pub fn swap(&self, limits: Limits) -> Limits {
        Limits::clone(&self.0.rcu(|before| limits.instead_of(before)))
    }

    /// The limits, for a moment: without counting who has them.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Limits>> {
        self.0.load()
    }
}

impl fmt::Debug for LimitsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimitsHandle").field(&*self.0.load()).finish()
    }
}
