//! A request that is let through, and what happens to its response: [`Admitted`].

use std::mem;
use std::sync::Arc;

use http::{Extensions, Response, StatusCode};
use http_body::Body;
use sluicegate_core::{Decision, Policy};
use smallvec::SmallVec;

use crate::admission::asks::RequestAsks;
use crate::admission::meter::Meter;
use crate::admission::restate::restate;
use crate::admission::set::{BuiltLimits, Limits};
use crate::admission::shadow::Shadows;
use crate::admission::trial::Trial;
use crate::bandwidth::{Direction, Paced, Pacer, UploadSlot};
use crate::respond::decided::{Announced, Decided, Shown};
use crate::respond::headers::style::Already;
use crate::respond::headers::write::write;
use crate::respond::refusal::Unserved;
use crate::settle::SettlingBody;
use crate::settle::tap::{Tap, is_encoded};
use crate::trace::{RequestTrace, TraceFields};

/// [`Limits`](crate::limits::Limits) have decided that a request is let through.
///
/// Dropping it gives nothing back. A caller that answers the request itself passes the request's extensions to
/// [`enter`](Self::enter) and the response to [`leave`](Self::leave), as the layer does; other callers have nothing more to do.
#[derive(Debug)]
#[must_use = "a response shows where the client stands, and may give back what the request has spent"]
pub struct Admitted(Option<Box<Marked>>);

impl Admitted {
    pub(crate) fn new(marked: Option<Box<Marked>>) -> Self {
        Self(marked)
    }

    /// The decision, if an enforced limit was asked, and if the limits show or need it later.
    pub fn decided(&self) -> Option<&Decided> {
        self.0.as_ref()?.decided.as_ref()
    }

    /// Puts the decision into the extensions of the request, for handlers, and tells layers further in that their decision is
    /// read from the response.
    pub fn enter(&mut self, extensions: &mut Extensions) {
        if let Some(marked) = &mut self.0 {
            marked.enter(extensions);
        }
    }

    /// Gives back the units that limits give back for this response, and writes the state of the client's quotas into it.
    ///
    /// Limits that [settle](crate::Limit::settle) do so by its header fields alone; see [`leave_settling`](Self::leave_settling).
    pub fn leave<B>(self, response: Response<B>) -> Response<B> {
        match self.0 {
            Some(marked) => marked.leave(response, false).0,
            None => response,
        }
    }

    /// As [`leave`](Self::leave), with a body that is read as it passes, for limits that [settle](crate::Limit::settle) by it, and that keeps to
    /// its [bandwidth](crate::bandwidth).
    pub fn leave_settling<B: Body>(self, response: Response<B>) -> Response<SettlingBody<B>> {
        match self.0 {
            Some(marked) => {
                let (response, tap, pace) = marked.leave(response, true);
                response.map(|body| SettlingBody::new(body, tap, pace))
            }
            None => response.map(SettlingBody::plain),
        }
    }
}

/// The marks of a response.
#[derive(Debug)]
pub(crate) struct Marked {
    /// The limits that the request began with.
    made: Arc<BuiltLimits>,
    pub(crate) asks: RequestAsks,
    /// The decision, if any policy is enforced.
    pub(crate) decided: Option<Decided>,
    /// The asks of policies in shadow.
    pub(super) trials: Vec<Arc<Trial>>,
    /// The spend of the request, if it may change while the request is served.
    pub(crate) meter: Option<Meter>,
    /// Whether a layer further out reads this decision from the response.
    is_read: bool,
    /// The limits that hold its bodies, if any do.
    holds: Option<Box<BodyHolds>>,
    /// The decision for the span of the request.
    pub(super) trace: RequestTrace,
}

/// Limits that hold bodies, each with its place.
#[derive(Debug)]
pub(super) struct BodyHolds {
    limits: Vec<(usize, Paced)>,
    shadows: Shadows,
}

impl BodyHolds {
    pub(super) fn of(limits: &Limits) -> Box<Self> {
        Box::new(Self { limits: Vec::new(), shadows: limits.shadows().clone() })
    }

    pub(super) fn add(&mut self, limit: usize, paced: Paced) {
        self.limits.push((limit, paced));
    }
}

impl Marked {
    /// The marks of a request that these asks let through. `policies` is called only if there is a decision.
    #[inline]
    pub(super) fn new(
        made: &Arc<BuiltLimits>,
        asks: RequestAsks,
        decision: Option<Decision>,
        policies: impl FnOnce(&RequestAsks) -> Arc<[Arc<Policy>]>,
        trials: Vec<Arc<Trial>>,
    ) -> Box<Self> {
        let made = Arc::clone(made);
        let mut marked = Box::new(Self {
            made,
            asks,
            decided: None,
            trials,
            meter: None,
            is_read: false,
            holds: None,
            trace: RequestTrace::None,
        });
        // A decision is large, so it is copied only once, into its final place.
        if let Some(decision) = decision {
            let policies = policies(&marked.asks);
            marked.decided = Some(Decided { decision, policies });
        }
        if marked.made.keeps_meters {
            let Self { made, asks, decided, trials, meter, .. } = &mut *marked;
            let decision = decided.as_mut().map(|decided| &mut decided.decision);
            *meter = Some(Meter::of_request(&made.plan, asks, decision, trials));
        }
        marked
    }

    /// The marks of a request that no limit has counted.
    pub(super) fn of_nothing(made: &Arc<BuiltLimits>) -> Self {
        Self {
            made: Arc::clone(made),
            asks: RequestAsks::default(),
            decided: None,
            trials: Vec::new(),
            meter: Some(Meter::default()),
            is_read: false,
            holds: None,
            trace: RequestTrace::None,
        }
    }

    /// These marks, of a request whose bodies these limits hold.
    pub(super) fn holding(mut self: Box<Self>, holds: Option<Box<BodyHolds>>) -> Box<Self> {
        self.holds = holds;
        self
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
        if let Some(pace) = self.pace(Direction::is_up) {
            match extensions.get::<UploadSlot>() {
                Some(slot) => slot.put(pace),
                None => self.report_unheld(Direction::is_up, "put an `UploadLayer` around the layer"),
            }
        }
        let Some(decided) = &self.decided else { return };
        self.is_read = match self.made.settings.extensions {
            // A decision that a handler sees is an announcement, too.
            true => extensions.insert(decided.clone()).is_some() || extensions.get::<Announced>().is_some(),
            false => {
                // The layer around this one will not read this decision.
                let report = |outer| self.made.report_double(outer, decided);
                let is_around = extensions.get::<Decided>().map(report).is_some();
                extensions.insert(Announced).is_some() || is_around
            }
        };
    }

    /// The response, and what is to read its body and to hold it, if `reads_body`.
    pub(crate) fn leave<B>(
        mut self: Box<Self>,
        mut response: Response<B>,
        reads_body: bool,
    ) -> (Response<B>, Option<Box<Tap>>, Option<Pacer>) {
        let mut tap = None;
        if was_refused(response.extensions()) {
            // The request was not served, so nothing is charged.
            self.give_back_all();
        } else if self.made.refunds {
            (response, tap) = self.change_by(response, reads_body);
        }
        // A connection that goes on by another protocol has no body.
        let is_over = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let pace = self.pace(Direction::is_down).filter(|_| !is_over);
        if pace.is_some() && !reads_body {
            self.report_unheld(Direction::is_down, "make the layer by `.settling()`");
        }
        self.mark(&mut response);
        (response, tap, pace)
    }

    /// The limits that hold the bodies of this direction.
    fn pace(&self, which: fn(Direction) -> bool) -> Option<Pacer> {
        let holds = self.holds.as_ref()?;
        let limits = holds.limits.iter().filter(|(limit, _)| self.is_for(*limit, which));
        Pacer::new(limits.map(|(_, paced)| paced.clone()), holds.shadows.clone())
    }

    fn is_for(&self, limit: usize, which: fn(Direction) -> bool) -> bool {
        self.made.plan.limits[limit].bandwidth.is_some_and(which)
    }

    #[cold]
    fn report_unheld(&self, which: fn(Direction) -> bool, how: &str) {
        let mut limits = self.holds.iter().flat_map(|holds| &holds.limits);
        if let Some((limit, _)) = limits.find(|(limit, _)| self.is_for(*limit, which)) {
            self.made.report_unheld(*limit, how);
        }
    }

    // Cold, as others here, so that the code for most responses is short and stays together.
    #[cold]
    fn give_back_all(&mut self) {
        self.give_back(|_| true);
    }

    /// Gives back the units that limits give back for this response, and settles the others by it.
    #[cold]
    fn change_by<B>(&mut self, response: Response<B>, reads_body: bool) -> (Response<B>, Option<Box<Tap>>) {
        let (head, body) = response.into_parts();
        let made = Arc::clone(&self.made);
        let limits = self.limits();
        let refund_if = limits.iter().map(|limit| made.plan.limits[*limit].refund_if.as_ref());
        let returned: SmallVec<[bool; 4]> =
            refund_if.map(|refund| refund.is_some_and(|refund| refund(&head))).collect();
        self.give_back(|index| returned[index]);
        let settles =
            |index: usize| made.plan.limits[limits[index]].settle.as_ref().filter(|_| !returned[index]);
        let Some(meter) = self.meter.as_ref().filter(|_| made.keeps_meters) else {
            return (Response::from_parts(head, body), None);
        };
        let costs: SmallVec<[Option<u64>; 4]> =
            (0..limits.len()).map(|index| settles(index)?.cost_in(&head.headers)).collect();
        meter.settle_each(|index| costs[index]);
        // A connection that goes on by another protocol has no body.
        let is_over = head.status == StatusCode::SWITCHING_PROTOCOLS;
        let rest = (0..limits.len()).filter(|_| !is_over).filter_map(|index| {
            let settle = settles(index).filter(|settle| costs[index].is_none() && settle.reads_body())?;
            Some((index, Arc::clone(settle)))
        });
        let rest: SmallVec<[_; 2]> = rest.collect();
        let tap = match &*rest {
            [] => None,
            [(index, _), ..] if !reads_body => {
                made.report_unread(limits[*index]);
                None
            }
            _ => {
                let unreadable =
                    rest.iter().find(|(_, settle)| settle.reads_fields() && is_encoded(&head.headers));
                if let Some((index, _)) = unreadable {
                    made.report_encoded(limits[*index]);
                }
                Some(Box::new(Tap::new(meter.clone(), rest.into_iter(), &head.headers)))
            }
        };
        (Response::from_parts(head, body), tap)
    }

    /// The limits that the request was checked against, in the order of the meter: those of its asks, and those in shadow.
    fn limits(&self) -> SmallVec<[usize; 4]> {
        let asked = self.asks.iter().map(|asked| asked.limit);
        asked.chain(self.trials.iter().map(|trial| trial.limit)).collect()
    }

    /// Writes the state of the client's quotas into the response.
    fn mark<B>(mut self: Box<Self>, response: &mut Response<B>) {
        let Some(decided) = &mut self.decided else { return };
        if let Some(meter) = &self.meter {
            restate(decided, meter.now());
        }
        if let Some(inner) = response.extensions_mut().remove::<Decided>() {
            return self.mark_with(inner, response);
        }
        // A decision is large, so it is not moved.
        let shown = Shown::of(decided);
        let BuiltLimits { settings, known, .. } = &*self.made;
        let prepared = || known.policy_line(&decided.policies);
        write(response.headers_mut(), &settings.style, shown, shown.wait, &prepared, Already::Theirs);
        // This allocates, so only where somebody reads it.
        if (self.is_read || !decided.is_allowed())
            && settings.extensions
            && let Some(decided) = self.decided.take()
        {
            response.extensions_mut().insert(decided);
        }
    }

    /// Writes the state of the client's quotas in all layers that have decided, this one and those further in, into the response.
    #[cold]
    fn mark_with<B>(&mut self, inner: Decided, response: &mut Response<B>) {
        let Some(decided) = &self.decided else { return };
        self.made.report_double(decided, &inner);
        let merged = decided.merge(&inner);
        let shown = Shown::of(&merged);
        write(response.headers_mut(), &self.made.settings.style, shown, shown.wait, &|| None, Already::Both);
        // A refusal by a layer further in is always left in the extensions.
        if self.is_read || !merged.is_allowed() {
            // For layers further out: the joined decision, or the one that was there before.
            let left = if self.made.settings.extensions { merged } else { inner };
            response.extensions_mut().insert(left);
        }
    }

    /// Gives back the units spent on the [`limits`](Self::limits) for whose places `is_given_back` is true. The decision then has the
    /// new state of the keys, if the store answers at once.
    fn give_back(&mut self, is_given_back: impl Fn(usize) -> bool) {
        let after = match (&self.meter, &mut self.decided) {
            // The meter gives back the units that the handler has settled.
            (Some(meter), _) => {
                meter.give_back(&is_given_back);
                None
            }
            (None, Some(decided)) => self.asks.give_back(&self.made, &mut decided.decision, &is_given_back),
            (None, None) => None,
        };
        for (place, trial) in (self.asks.iter().count()..).zip(&self.trials) {
            if is_given_back(place) {
                trial.give_back();
            }
        }
        if let (Some(decided), Some(after)) = (&mut self.decided, after) {
            *decided = after;
        }
    }
}

/// Whether a layer behind this one refused the request. The next one says so in its decision; the others may refuse for a
/// reason that is in no decision.
fn was_refused(extensions: &Extensions) -> bool {
    extensions.get::<Decided>().is_some_and(|inner| !inner.is_allowed())
        || extensions.get::<Unserved>().is_some()
}
