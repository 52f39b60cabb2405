//! The current limits of a layer, or the limits that a request has kept: [`LimitsHandle`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use http::Extensions;

use crate::admission::set::Limits;
use crate::admission::way::Begun;
use crate::guard::Place;
use crate::key::RequestView;

/// The limits of a layer, to inspect them and to swap them as a whole. Clones refer to the same layer.
///
/// A request keeps the limits that it began with to the end of its response: its turn, refunds and [`Meter`](crate::Meter)
/// belong to them. Requests that begin after a swap use the new limits, all of them at once.
///
/// A policy in both the old and the new limits keeps its buckets, because the store owns them. If only quotas change,
/// [`replace`](sluicegate_core::RateLimiter::replace) the policy instead; a swap is for another set of limits,
/// another order, or other conditions, keys and settings. The number of waiting requests and the counts of shadow policies
/// carry over. A layer that was made with limits of its own keeps its first limits until it is dropped, and so their policies stay
/// open; a layer that was made [from a handle](Self::new) does not.
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
    /// The limits before the first swap, of a layer with limits of its own: such layers are rarely swapped, and read these more cheaply.
    first: Option<Limits>,
    is_swapped: AtomicBool,
    limits: ArcSwap<Limits>,
    /// Whether any request has kept limits; until then requests are not searched for them.
    is_kept: AtomicBool,
}

/// The limits of one handle that a request keeps until it reaches them.
#[derive(Clone)]
pub(crate) struct Kept {
    of: LimitsHandle,
    limits: Limits,
}

impl LimitsHandle {
    /// A handle for layers that are made [from](crate::RateLimitLayer) it.
    pub fn new(limits: Limits) -> Self {
        Self::with_first(None, limits)
    }

    /// A handle for a layer with limits of its own, which keeps these limits even after a swap.
    pub(crate) fn of_layer(limits: Limits) -> Self {
        Self::with_first(Some(limits.clone()), limits)
    }

    fn with_first(first: Option<Limits>, limits: Limits) -> Self {
        let (is_swapped, is_kept) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Swapped { first, is_swapped, limits: ArcSwap::from_pointee(limits), is_kept }))
    }

    /// Whether it is a clone of this one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The current limits for requests.
    pub fn current(&self) -> Limits {
        Limits::clone(&self.0.limits.load())
    }

    /// Replaces the limits, and returns the old ones.
    ///
    /// New limits take over the queue's count and the counts of shadow policies.
    /// [`build`](crate::limits::LimitsBuilder::build) has already checked the new limits, so
    /// a swap cannot fail.
    pub fn swap(&self, limits: Limits) -> Limits {
        // Relaxed: a thread that learns of the swap otherwise has synchronized with it.
        self.0.is_swapped.store(true, Ordering::Relaxed);
        Limits::clone(&self.0.limits.rcu(|before| limits.instead_of(before)))
    }

    /// The result for a request that does not have to wait, or the wait.
    #[inline]
    pub(crate) fn begin(&self, request: RequestView<'_>, place: &mut Place) -> Begun {
        if let Some(kept) = self.kept(request.extensions) {
            return kept.begin(request, place);
        }
        match &self.0.first {
            Some(first) if !self.0.is_swapped.load(Ordering::Relaxed) => first.begin(request, place),
            // Borrowed for a moment, without counting a reference.
            _ => self.0.limits.load().begin(request, place),
        }
    }

    /// The current limits, for requests that reach them later.
    #[cfg_attr(
        not(feature = "in-flight"),
        expect(dead_code, reason = "only limits in flight let requests come later")
    )]
    pub(crate) fn keep(&self) -> Kept {
        // Relaxed: a thread that sees the kept limits received them after this store.
        self.0.is_kept.store(true, Ordering::Relaxed);
        Kept { of: self.clone(), limits: self.current() }
    }

    /// The limits of this handle that a request has kept, if any.
    #[inline]
    fn kept<'a>(&self, extensions: &'a Extensions) -> Option<&'a Limits> {
        if !self.0.is_kept.load(Ordering::Relaxed) {
            return None;
        }
        let kept = extensions.get::<Kept>()?;
        self.is_same(&kept.of).then_some(&kept.limits)
    }
}

sluicegate_core::debug_as!(LimitsHandle, handle => handle.current());
