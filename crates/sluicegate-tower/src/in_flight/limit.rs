//! A limit on concurrent requests of a key ([`InFlightLimit`]), the limits that requests meet together ([`InFlightLimits`]), and
//! their change while a layer serves ([`InFlightHandle`]).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, StatusCode};
use sluicegate_core::Key;
use sluicegate_in_flight::adaptive::Outcome;
use sluicegate_in_flight::{Class, InFlight, Permit, PermitRequest};
use smallvec::SmallVec;

use crate::admission::handle::Kept;
use crate::key::missing::{OnMissingKey, WhenMissing};
use crate::key::{KeyExtractor, PeerIp, RequestView};
use crate::limits::{LimitsHandle, Select};
use crate::respond::HeaderFields;

/// An [`InFlight`] with the key that it is counted by, and the requests that it counts.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_in_flight::InFlight;
/// use sluicegate_tower::in_flight::{InFlightLayer, InFlightLimit};
/// use sluicegate_tower::key::HeaderKey;
/// use sluicegate_tower::limits::path_in;
///
/// // Twenty of each address, and two reports of each tenant among them.
/// let reports = InFlightLimit::new(InFlight::new("reports", 2)?)
///     .key(HeaderKey::new("x-tenant")?)
///     .only_if(path_in(["/reports/*"])?)
///     .wait_up_to(Duration::from_secs(10));
/// let layer = InFlightLayer::new(InFlight::new("requests", 20)?).and(reports);
/// # let _ = layer;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a limit does nothing until it is put into a layer"]
pub struct InFlightLimit {
    pub(super) in_flight: InFlight,
    pub(super) key: Arc<dyn KeyExtractor>,
    pub(super) longest: Option<Duration>,
    pub(super) when_missing: WhenMissing,
    /// The conditions, which must all hold.
    only_if: Vec<RequestFn<bool>>,
    class: Option<RequestFn<Class>>,
    weight: Option<RequestFn<u64>>,
    is_fault: Option<ResponseFault>,
    pub(super) refuse_with: Option<StatusCode>,
}

/// A value read from a request.
type RequestFn<T> = Arc<dyn Fn(RequestView<'_>) -> T + Send + Sync>;
type ResponseFault = Arc<dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync>;

impl InFlightLimit {
    /// Counts per peer address, and refuses at once. A limit that [adapts](InFlight::adaptive) counts all requests together, and lets them
    /// wait up to its own bound.
    pub fn new(in_flight: InFlight) -> Self {
        let key: Arc<dyn KeyExtractor> =
            if in_flight.is_adaptive() { Arc::new(Key::shared()) } else { Arc::new(PeerIp::new()) };
        Self {
            in_flight,
            key,
            longest: None,
            when_missing: WhenMissing::default(),
            only_if: Vec::new(),
            class: None,
            weight: None,
            is_fault: None,
            refuse_with: None,
        }
    }

    /// Sets the key by which requests are counted. Default: [`PeerIp`]; if the limit adapts, one key for all, because keys make a
    /// difference only if it is [shared by keys](sluicegate_in_flight::AdaptiveBuilder::fair).
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// Sets the status of a request that gets no permit. Default: 429. That of a limit which adapts is always 503.
    pub fn refuse_with(mut self, status: StatusCode) -> Self {
        self.refuse_with = Some(status);
        self
    }

    /// Sets the treatment of a request without a key. Default: as for [`Limit`](crate::Limit::on_missing_key).
    pub fn on_missing_key(mut self, action: OnMissingKey) -> Self {
        self.when_missing.chosen = Some(action);
        self
    }

    /// Makes a request above the limit wait for up to `longest`, first come, first served, in the bounded
    /// queue of the [`InFlight`]. Default: it is refused at once; if the limit adapts, it waits up to that limit's
    /// [bound](sluicegate_in_flight::AdaptiveBuilder::wait_up_to), which is never exceeded.
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Counts only requests for which `applies` is true. With several such conditions, all must hold.
    pub fn only_if(mut self, applies: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.only_if.push(Arc::new(applies));
        self
    }

    /// Sets the importance of a request, if the limit [adapts](InFlight::adaptive). Read a header field only if your proxy writes or
    /// removes it: otherwise every client claims the highest class. Default: [`Class::Critical`] for all.
    ///
    /// ```
    /// use sluicegate_in_flight::{Class, InFlight};
    /// use sluicegate_tower::in_flight::InFlightLimit;
    /// use sluicegate_tower::key::RequestView;
    ///
    /// let api = InFlightLimit::new(InFlight::adaptive("api").build()?).class(|request: RequestView<'_>| match request.path() {
    ///     "/checkout" => Class::CriticalPlus,
    ///     path if path.starts_with("/export/") => Class::Sheddable,
    ///     _ => Class::Critical,
    /// });
    /// # let _ = api;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn class(mut self, class: impl Fn(RequestView<'_>) -> Class + Send + Sync + 'static) -> Self {
        self.class = Some(Arc::new(class));
        self
    }

    /// Sets the share of a request's key in proportion to the shares of others, if the limit is [shared by
    /// keys](sluicegate_in_flight::AdaptiveBuilder::fair), for example by tier. Default: 1 for all.
    pub fn weight(mut self, weight: impl Fn(RequestView<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.weight = Some(Arc::new(weight));
        self
    }

    /// Sets which responses speak of [overload](Outcome::Overload), if the limit adapts. A late answer always does if there is a
    /// [timeout](sluicegate_in_flight::AdaptiveBuilder::timeout). Other responses with a status from 500 on, and errors of the service, are
    /// [errors](Outcome::Error): if they come faster than good answers, they change nothing. Default: the statuses 429, 503 and 504, and
    /// gRPC responses with `RESOURCE_EXHAUSTED`, `DEADLINE_EXCEEDED` or `UNAVAILABLE` in their header fields.
    pub fn fault_if(
        mut self,
        is_fault: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.is_fault = Some(Arc::new(is_fault));
        self
    }

    /// The request for a permit of this key.
    pub(super) fn request(&self, key: &Key, request: RequestView<'_>) -> PermitRequest {
        let mut asks = self.in_flight.request(key);
        if let Some(class) = &self.class {
            asks = asks.class(class(request));
        }
        if let Some(weight) = &self.weight {
            asks = asks.weight(weight(request));
        }
        asks
    }

    /// The class of a request, if it makes a difference.
    pub(super) fn class_of(&self, request: RequestView<'_>) -> Option<Class> {
        let class = || self.class.as_ref().map_or_else(Class::default, |class| class(request));
        self.in_flight.is_adaptive().then(class)
    }

    /// Reports the response to a permit of this limit.
    pub(super) fn answered(&self, permit: &Permit, status: StatusCode, headers: &HeaderMap) {
        let is_overload = match &self.is_fault {
            Some(is_fault) => is_fault(status, headers),
            None => speaks_of_overload(status, headers),
        };
        permit.answered(
            match status.is_server_error() || headers.get("grpc-status").is_some_and(|code| code != "0") {
                _ if is_overload => Outcome::Overload,
                true => Outcome::Error,
                false => Outcome::Good,
            },
        );
    }

    pub(super) fn applies_to(&self, request: RequestView<'_>) -> bool {
        self.only_if.iter().all(|applies| applies(request))
    }
}

/// Of gRPC, `RESOURCE_EXHAUSTED`, `DEADLINE_EXCEEDED` or `UNAVAILABLE` of a response without a body; others have it in trailers.
fn speaks_of_overload(status: StatusCode, headers: &HeaderMap) -> bool {
    [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT]
        .contains(&status)
        || headers.get("grpc-status").is_some_and(|code| [&b"4"[..], b"8", b"14"].contains(&code.as_bytes()))
}

impl From<InFlight> for InFlightLimit {
    fn from(in_flight: InFlight) -> Self {
        Self::new(in_flight)
    }
}

sluicegate_core::debug_as!(InFlightLimit { in_flight });

/// Limits with common settings: the choice of limits for a request, and the rate limits that follow. For
/// [`InFlightHandle::swap_with`](super::InFlightHandle::swap_with).
///
/// ```
/// use http::Request;
/// use sluicegate_in_flight::InFlight;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::in_flight::{InFlightHandle, InFlightLimit, InFlightLimits};
/// use sluicegate_tower::key::RequestView;
/// use sluicegate_tower::limits::{Limits, LimitsHandle};
///
/// let api = Policy::gcra("api", "100/min").on(&MemoryStore::new())?;
/// let rates = LimitsHandle::new(Limits::new(api));
/// let reports = InFlightLimit::new(InFlight::new("reports", 2)?);
/// let uploads = InFlightLimit::new(InFlight::new("uploads", 1)?);
///
/// let at_once = InFlightLimits::new([reports, uploads])
///     .select(|request: RequestView<'_>| match request.path() {
///         "/report" => Some(0),
///         "/upload" => Some(1),
///         _ => None,
///     })
///     .before(&rates);
/// InFlightHandle::new([]).swap_with(at_once);
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "limits do nothing until they are put into a layer"]
pub struct InFlightLimits {
    pub(super) each: Vec<InFlightLimit>,
    select: Option<Arc<dyn Select>>,
    /// The number of limits that `select` knows; the limits after them may apply to any request.
    selected: usize,
    pub(super) then: Option<Kept>,
    /// The fields, if they are not the layer's.
    pub(super) headers: Option<HeaderFields>,
}

/// Indices of limits, in order.
pub(super) type LimitPlaces = SmallVec<[u32; 6]>;

impl InFlightLimits {
    /// Limits that apply to requests by their own conditions.
    pub fn new(limits: impl IntoIterator<Item = InFlightLimit>) -> Self {
        Self { each: limits.into_iter().collect(), select: None, selected: 0, then: None, headers: None }
    }

    /// Finds all limits that may apply to a request at once, so that a thousand limits are not checked one by one. Indices
    /// count from 0. The conditions of each limit ([`only_if`](InFlightLimit::only_if)) have to hold, too.
    pub fn select(mut self, select: impl Select) -> Self {
        self.select = Some(Arc::new(select));
        self.selected = self.each.len();
        self
    }

    /// Pins the rate limits for requests that have passed these limits: in every layer made from the handle, they use the limits that it
    /// has now, however long they wait for a permit, so all limits of a request come from the same moment. Without limits here there is no
    /// wait, and a request uses the handle's current limits.
    pub fn before(mut self, limits: &LimitsHandle) -> Self {
        self.then = (!self.each.is_empty()).then(|| limits.keep());
        self
    }

    /// Sets the fields of responses for these limits in place of the
    /// [layer's](super::InFlightLayer::headers), so that they are swapped with the limits. Only choices with the
    /// fields of the draft show these limits. Default: the layer's fields.
    ///
    /// ```
    /// use sluicegate_in_flight::InFlight;
    /// use sluicegate_tower::in_flight::{InFlightHandle, InFlightLayer, InFlightLimit, InFlightLimits};
    /// use sluicegate_tower::respond::HeaderFields;
    ///
    /// let reports = InFlightLimit::new(InFlight::new("reports", 2)?);
    /// let handle = InFlightHandle::new([reports.clone()]);
    /// let layer = InFlightLayer::from(handle.clone());
    ///
    /// // Later, while the layer serves: only refusals show it.
    /// handle.swap_with(InFlightLimits::new([reports]).headers(HeaderFields::AllOnRefusal));
    /// # let _ = layer;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn headers(mut self, headers: HeaderFields) -> Self {
        self.headers = Some(headers);
        self
    }

    /// A copy with a changed list; added limits come last.
    pub(super) fn with(&self, change: impl FnOnce(&mut Vec<InFlightLimit>)) -> Self {
        let mut each = self.each.clone();
        change(&mut each);
        let Self { selected, headers, .. } = *self;
        Self { each, select: self.select.clone(), selected, then: self.then.clone(), headers }
    }

    /// Reports the response to a permit, through its limit.
    pub(super) fn answered(&self, permit: &Permit, status: StatusCode, headers: &HeaderMap) {
        if let Some(limit) = self.each.iter().find(|limit| limit.in_flight.is(permit.in_flight())) {
            limit.answered(permit, status, headers);
        }
    }

    /// The limits that may apply.
    pub(super) fn applying(&self, request: RequestView<'_>) -> LimitPlaces {
        match &self.select {
            _ if self.each.is_empty() => LimitPlaces::new(),
            Some(select) => {
                let mut places = LimitPlaces::from_slice(select.select(request).among(self.selected));
                places.extend(self.places_from(self.selected));
                places
            }
            None => self.places_from(0).collect(),
        }
    }

    fn places_from(&self, first: usize) -> Range<u32> {
        let place = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        place(first)..place(self.each.len())
    }
}

sluicegate_core::debug_as!(InFlightLimits { each });

/// The limits of an [`InFlightLayer`](super::InFlightLayer), to swap them as a whole. Clones refer to the same layer.
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

sluicegate_core::debug_as!(InFlightHandle, handle => handle.limits());
