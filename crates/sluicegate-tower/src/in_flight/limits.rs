//! Limits that requests meet together: [`InFlightLimits`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::admission::begin::Kept;
use crate::in_flight::InFlightLimit;
use crate::key::RequestView;
use crate::limits::{LimitsHandle, Select};
use crate::respond::HeaderFields;

/// Limits with what is known of them together: which apply to a request, and which limits of a rate follow. For
/// [`InFlightHandle::swap_with`](crate::in_flight::InFlightHandle::swap_with).
///
/// ```
/// use http::Request;
/// use sluicegate_core::in_flight::InFlight;
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
    /// How many of them `select` knows: those behind them may apply to any request.
    selected: usize,
    pub(super) then: Option<Kept>,
    /// None as the layer says.
    pub(super) headers: Option<HeaderFields>,
}

/// Places of limits, in order.
pub(super) type Places = SmallVec<[u32; 6]>;

impl InFlightLimits {
    /// Limits that each say by themselves to which requests they apply.
    pub fn new(limits: impl IntoIterator<Item = InFlightLimit>) -> Self {
        Self { each: limits.into_iter().collect(), select: None, selected: 0, then: None, headers: None }
    }

    /// Finds out for all of them at once which may apply to a request: of a thousand limits none has to be asked by itself. Places
    /// count from 0. The conditions of each limit ([`only_if`](InFlightLimit::only_if)) have to hold, too.
    pub fn select(mut self, select: impl Select) -> Self {
        self.select = Some(Arc::new(select));
        self.selected = self.each.len();
        self
    }

    /// A request that has met these limits meets those that are in the handle now, in every layer that is made of it, however long it
    /// waits for a permit: all of its limits are of one time. Without limits at once there is nothing to wait for, and a request
    /// meets those that are in the handle then.
    pub fn before(mut self, limits: &LimitsHandle) -> Self {
        self.then = Some(limits.keep()).filter(|_| !self.each.is_empty());
        self
    }

    /// Which fields responses carry that tell where these limits stand, instead of those that the
    /// [layer](crate::in_flight::InFlightLayer::headers) says: they change with the limits then. Of all choices only those with the
    /// fields of the draft have any. Default: as the layer says.
    ///
    /// ```
    /// use sluicegate_core::in_flight::InFlight;
    /// use sluicegate_tower::in_flight::{InFlightHandle, InFlightLayer, InFlightLimit, InFlightLimits};
    /// use sluicegate_tower::respond::HeaderFields;
    ///
    /// let reports = InFlightLimit::new(InFlight::new("reports", 2)?);
    /// let handle = InFlightHandle::new([reports.clone()]);
    /// let layer = InFlightLayer::from(handle.clone());
    ///
    /// // Later, while the layer serves: only refusals tell it.
    /// handle.swap_with(InFlightLimits::new([reports]).headers(HeaderFields::AllOnRefusal));
    /// # let _ = layer;
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn headers(mut self, headers: HeaderFields) -> Self {
        self.headers = Some(headers);
        self
    }

    /// The same with its list changed; limits that are added come last.
    pub(super) fn with(&self, change: impl FnOnce(&mut Vec<InFlightLimit>)) -> Self {
        let mut each = self.each.clone();
        change(&mut each);
        let Self { selected, headers, .. } = *self;
        Self { each, select: self.select.clone(), selected, then: self.then.clone(), headers }
    }

    /// Those that may apply.
    pub(super) fn applying(&self, request: RequestView<'_>) -> Places {
        match &self.select {
            _ if self.each.is_empty() => Places::new(),
            Some(select) => {
                let mut places = select.select(request).in_order();
                places.retain(|place| (*place as usize) < self.selected);
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
