//! The data that an admitted request keeps until its response: [`Marked`].

use std::mem;
use std::sync::Arc;

use http::Extensions;

use crate::admission::asks::RequestAsks;
use crate::admission::body_holds::BodyHolds;
use crate::admission::meter::Meter;
use crate::admission::set::BuiltLimits;
use crate::admission::shadow::Trial;
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
        decided: Option<Decided>,
        trials: Vec<Arc<Trial>>,
    ) -> Box<Self> {
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

    pub(super) fn enter(&mut self, extensions: &mut Extensions, asked_for: bool) {
        self.trace.enter(extensions);
        if let Some(meter) = self.meter.as_ref().filter(|_| self.made.settings.meters) {
            meter.enter(extensions);
        }
        if let Some(holds) = &self.holds {
            holds.hold_upload(&self.made, extensions);
        }
        if let Some(decided) = &self.decided {
            self.is_read = self.made.announce(|| decided.clone(), extensions, asked_for);
        }
    }
}

impl BuiltLimits {
    /// Tells the layers further in that their decision is read from the response, and the handler the decision, if it is `asked_for`. Returns
    /// whether a layer further out reads this decision.
    #[inline]
    pub(super) fn announce(
        &self,
        decided: impl FnOnce() -> Decided,
        extensions: &mut Extensions,
        asked_for: bool,
    ) -> bool {
        match (self.settings.extensions, asked_for) {
            (true, false) => {}
            (true, true) => _ = extensions.insert(decided()),
            (false, _) => {
                // The outer layer will not read this decision.
                if let Some(outer) = extensions.get::<Decided>() {
                    self.report_double(outer, &decided());
                }
            }
        }
        extensions.insert(Announced).is_some()
    }
}
