//! The data that an admitted request keeps until its response: [`Marked`].

use std::mem;
use std::sync::Arc;

use http::Extensions;
use sluicegate_core::Decision;

use crate::admission::asks::RequestAsks;
use crate::admission::body_holds::BodyHolds;
use crate::admission::meter::Meter;
use crate::admission::set::BuiltLimits;
use crate::admission::trial::Trial;
use crate::respond::decided::{Announced, Decided};
use crate::trace::{RequestTrace, TraceFields};

/// The marks of a response.
#[derive(Debug)]
pub(crate) struct Marked {
    /// The limits that the request began with.
    pub(super) made: Arc<BuiltLimits>,
    pub(crate) asks: RequestAsks,
    /// The decision, if any policy is enforced.
    pub(crate) decided: Option<Decided>,
    /// The asks of policies in shadow.
    pub(super) trials: Vec<Arc<Trial>>,
    /// The spend of the request, if it may change while the request is served.
    pub(crate) meter: Option<Meter>,
    /// Whether an outer layer reads this decision from the response.
    pub(super) is_read: bool,
    /// The limits that delay its bodies, if any.
    pub(super) holds: Option<Box<BodyHolds>>,
    /// The decision for the span of the request.
    pub(super) trace: RequestTrace,
}

impl Marked {
    /// The marks of a request that these asks have admitted.
    #[inline]
    pub(super) fn new(
        made: &Arc<BuiltLimits>,
        asks: RequestAsks,
        decision: Option<Decision>,
        trials: Vec<Arc<Trial>>,
    ) -> Box<Self> {
        let decided = decision.map(|decision| asks.label(made, decision));
        // Written in its place, because a decision is large.
        let mut marked = Box::write(
            Box::new_uninit(),
            Self {
                made: Arc::clone(made),
                asks,
                decided,
                trials,
                meter: None,
                is_read: false,
                holds: None,
                trace: RequestTrace::None,
            },
        );
        if marked.made.keeps_meters {
            let Self { made, asks, decided, trials, meter, .. } = &mut *marked;
            let decision = decided.as_mut().map(|decided| &mut decided.decision);
            *meter = Some(Meter::of_request(&made.plan, asks, decision, trials));
        }
        marked
    }

    /// The marks of an uncounted request.
    pub(super) fn bare(made: &Arc<BuiltLimits>) -> Box<Self> {
        Self::new(made, RequestAsks::default(), None, Vec::new())
    }

    /// Keeps the decision for the span of the request with these extensions.
    pub(super) fn trace_in(&mut self, extensions: &Extensions) {
        let known = match mem::take(&mut self.trace) {
            RequestTrace::Fields(fields) => Some(*fields),
            RequestTrace::None => None,
            waited @ RequestTrace::Span(_) => {
                self.trace = waited;
                return;
            }
        };
        let decided = || self.decided.as_ref().map(TraceFields::of);
        self.trace = RequestTrace::begin(|| known.or_else(decided), extensions);
    }

    pub(crate) fn enter(&mut self, extensions: &mut Extensions) {
        self.trace.enter(extensions);
        if let Some(meter) = self.meter.as_ref().filter(|_| self.made.settings.meters) {
            meter.enter(extensions);
        }
        if let Some(holds) = &self.holds {
            holds.hold_upload(&self.made, extensions);
        }
        let Some(decided) = &self.decided else { return };
        self.is_read = match self.made.settings.extensions {
            // A decision that a handler sees is an announcement, too.
            true => {
                // Looked for before anything is written there, because reading what was just written stalls.
                let is_announced = extensions.get::<Announced>().is_some();
                extensions.insert(decided.clone()).is_some() || is_announced
            }
            false => {
                // The outer layer will not read this decision.
                let report = |outer| self.made.report_double(outer, decided);
                let is_around = extensions.get::<Decided>().map(report).is_some();
                extensions.insert(Announced).is_some() || is_around
            }
        };
    }
}
