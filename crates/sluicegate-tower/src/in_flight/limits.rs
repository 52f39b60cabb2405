//! Limits that requests meet together: [`InFlightLimits`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use sluicegate_in_flight::Permit;
use smallvec::SmallVec;

use crate::admission::handle::Kept;
use crate::in_flight::InFlightLimit;
use crate::key::RequestView;
use crate::limits::{LimitsHandle, Select};
use crate::respond::HeaderFields;

/// Limits with common settings: the choice of limits for a request, and the rate limits that follow. For
/// [`InFlightHandle::swap_with`](crate::in_flight::InFlightHandle::swap_with).
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
    /// [layer's](crate::in_flight::InFlightLayer::headers), so that they are swapped with the limits. Only choices with the
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

impl fmt::Debug for InFlightLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.each).finish()
    }
}
