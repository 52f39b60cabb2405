//! The layer: [`RateLimitLayer`].

use std::sync::Arc;

use sluicegate_core::RateLimiter;
use tower_layer::Layer;

use crate::guard::Guarded;
use crate::limits::{IntoLimit, Limit, Limits, LimitsHandle, ShadowCount};
use crate::rate_limit::within::LayersWithin;
use crate::respond::problem::ProblemJson;
use crate::settle::SettlingLayer;

/// Puts limits in front of a service: see the [crate's example](crate).
///
/// Cheap to clone; all clones, and all services made by them, share the same buckets.
///
/// # Several limits: one layer, or layers around each other
/// The limits of one layer are decided together, and a client that waits for its `Retry-After` has room in all
/// limits. If this matters, put the limits into one layer, with [`and`](crate::limits::LimitsBuilder::and), and with
/// [`only_if`](Limit::only_if) for limits on some paths.
///
/// Layers around each other show one set of fields, and give back their units when an inner layer refuses. An outer layer that
/// refuses also asks the inner layers, without spending there: its `Retry-After` covers all of them. It knows the layers that every one
/// of its requests reaches, as in a `ServiceBuilder`, and asks those with keys at hand and stores in memory. A
/// layer on a route of an axum router is unknown to a layer around the router, and a layer on Redis is not asked: then the client may be
/// refused a second time, with the wait of that layer.
///
/// The same limiter in two layers around each other may count a request twice; the log warns of this once per layer.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::{Limit, RateLimitLayer};
/// use sluicegate_tower::limits::path_in;
///
/// let store = MemoryStore::new();
/// let login = Limit::new(Policy::sliding_counter("login", "5/min").on(&store)?).only_if(path_in(["/login"])?);
/// let layer = RateLimitLayer::builder(Policy::gcra("api", "200/min").on(&store)?).and(login).build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
///
/// # When not to use it
/// - In front of calls that are not HTTP: a [`CallLimitLayer`](crate::call::CallLimitLayer) has
///   errors instead of responses.
/// - For calls to other servers: `OutgoingLayer` (feature `outgoing`) also heeds the servers' advice.
/// - To bound concurrent requests: use an `InFlightLayer`.
pub struct RateLimitLayer<R = ProblemJson>(pub(super) Arc<LayerParts<R>>);

/// One for each service made by a layer, shared by the clones of the service.
pub(super) struct LayerParts<R> {
    pub(super) limits: LimitsHandle,
    pub(super) respond: Arc<R>,
    /// Whether handlers find the decision in the extensions of their request.
    pub(super) tells_handlers: bool,
    /// The limits of inner layers.
    pub(super) within: LayersWithin,
}

impl RateLimitLayer {
    /// A layer with one limit. A [`RateLimiter`] alone counts peer addresses.
    pub fn new(limit: impl IntoLimit) -> Self {
        Limits::new(limit).into()
    }
}

impl<R> RateLimitLayer<R> {
    pub(crate) fn of(limits: LimitsHandle, respond: R) -> Self {
        let (respond, within) = (Arc::new(respond), LayersWithin::default());
        Self(Arc::new(LayerParts { limits, respond, tells_handlers: false, within }))
    }

    /// The layer for a service of its own, with the same limits.
    pub(crate) fn apart(&self) -> Self {
        self.telling_handlers(self.0.tells_handlers)
    }

    fn telling_handlers(&self, tells_handlers: bool) -> Self {
        let LayerParts { limits, respond, .. } = &*self.0;
        let (limits, respond, within) = (limits.clone(), Arc::clone(respond), LayersWithin::default());
        Self(Arc::new(LayerParts { limits, respond, tells_handlers, within }))
    }

    /// The limits of this layer, to inspect them, to explain a request, and to swap them while the layer serves.
    pub fn limits_handle(&self) -> LimitsHandle {
        self.0.limits.clone()
    }

    /// Counts what each policy in shadow would have done so far, in the order of the limits.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// let store = MemoryStore::new();
    /// let tried = Policy::gcra("stricter", "10/min").shadow().on(&store)?;
    /// let layer = RateLimitLayer::builder(Policy::gcra("api", "100/min").on(&store)?).and(tried).build()?;
    /// // Once it has served requests:
    /// for count in layer.shadow_counts() {
    ///     println!("{} would have refused {} requests", count.policy, count.refused);
    /// }
    /// # assert_eq!(layer.shadow_counts().len(), 1);
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn shadow_counts(&self) -> Vec<ShadowCount> {
        self.0.limits.current().shadow_counts()
    }

    /// This layer, with the decision in the extensions of each request that it admits: handlers take it as [`Decided`](crate::rate_limit::Decided). Default: no
    /// handler asks for it, which saves an allocation.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::new(Policy::gcra("api", "100/min").on(&MemoryStore::new())?).decided();
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    #[must_use]
    pub fn decided(self) -> Self {
        self.telling_handlers(true)
    }

    /// This layer, reading the bodies of responses as well, for limits that [settle](Limit::settle) by them or [hold](Limit::bandwidth) them.
    ///
    /// Without this, such limits keep the first spend of a request, or delay nothing, and log an error.
    pub fn settling(self) -> SettlingLayer<R> {
        self.into()
    }

    /// Whether a limit of this layer [settles](Limit::settle) by the bodies of responses, or [holds](Limit::bandwidth) them.
    pub fn reads_bodies(&self) -> bool {
        self.0.limits.current().made().reads_bodies
    }

    /// Whether a limit of this layer [holds](Limit::bandwidth) the bodies of requests, so that it needs an
    /// [`UploadLayer`](crate::bandwidth::UploadLayer) around it.
    pub fn holds_requests(&self) -> bool {
        self.0.limits.current().made().holds_requests
    }

    /// The number of requests that wait now: for a key, for a tier, for their turn, or then for the inner service to be
    /// ready.
    pub fn waiting(&self) -> usize {
        self.0.limits.current().waiting()
    }
}

impl<R> Clone for RateLimitLayer<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, R> Layer<S> for RateLimitLayer<R> {
    type Service = Guarded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded::new(inner, self.apart())
    }
}

impl From<Limits> for RateLimitLayer {
    fn from(limits: Limits) -> Self {
        LimitsHandle::of_layer(limits).into()
    }
}

/// Layers from one handle have the same limits, and swap them together.
impl From<LimitsHandle> for RateLimitLayer {
    fn from(limits: LimitsHandle) -> Self {
        Self::of(limits, ProblemJson::new())
    }
}

impl From<Limit> for RateLimitLayer {
    fn from(limit: Limit) -> Self {
        Self::new(limit)
    }
}

impl From<RateLimiter> for RateLimitLayer {
    fn from(limiter: RateLimiter) -> Self {
        Self::new(limiter)
    }
}

sluicegate_core::debug_as!(RateLimitLayer<R>, layer => layer.0.limits.current());
