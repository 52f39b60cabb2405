//! Changing the limits of a layer while it serves: [`LimitsHandle`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use http::Extensions;

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
pub struct LimitsHandle(Arc<Swapped>);

struct Swapped {
    limits: ArcSwap<Limits>,
    /// Whether requests may bring limits of an earlier time: others are not looked at for them.
    is_kept: AtomicBool,
}

/// The limits that a request keeps until it comes to them, of one handle.
#[derive(Clone)]
pub(crate) struct Kept {
    of: LimitsHandle,
    limits: Limits,
}

impl LimitsHandle {
    /// A handle for layers that are made [from](crate::RateLimitLayer) it.
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Swapped { limits: ArcSwap::from_pointee(limits), is_kept: AtomicBool::new(false) }))
    }

    /// The limits that requests meet now.
    pub fn current(&self) -> Limits {
        Limits::clone(&self.0.limits.load())
    }

    /// Puts these limits in the place of those that are there, which are returned.
    ///
    /// New limits take over the queue's count and what was counted of shadow policies. Nothing is
    /// checked here that [`build`](crate::limits::LimitsBuilder::build) has not checked already, so
    /// a swap cannot fail.
    pub fn swap(&self, limits: Limits) -> Limits {
        Limits::clone(&self.0.limits.rcu(|before| limits.instead_of(before)))
    }

    /// The limits, for a moment: without counting who has them.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Limits>> {
        self.0.limits.load()
    }

    /// The limits as they are now, for requests that come to them later.
    pub(crate) fn keep(&self) -> Kept {
        // Relaxed: who sees the limits that are kept here has been given them behind this.
        self.0.is_kept.store(true, Ordering::Relaxed);
        Kept { of: self.clone(), limits: self.current() }
    }

    /// The limits that a request has kept, if it has any of this handle.
    #[inline]
    pub(crate) fn kept<'a>(&self, extensions: &'a Extensions) -> Option<&'a Limits> {
        if !self.0.is_kept.load(Ordering::Relaxed) {
            return None;
        }
        let kept = extensions.get::<Kept>()?;
        Arc::ptr_eq(&kept.of.0, &self.0).then_some(&kept.limits)
    }
}

impl fmt::Debug for LimitsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimitsHandle").field(&*self.load()).finish()
    }
}
