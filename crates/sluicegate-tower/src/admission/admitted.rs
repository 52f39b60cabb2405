//! A request that is let through, and what happens to its response: [`Admitted`].

use std::sync::Arc;

use http::{Extensions, Response};
use sluicegate_core::{Decision, Policy};
use smallvec::SmallVec;

use crate::admission::asks::Asks;
use crate::admission::meter::Meter;
use crate::admission::restate::restate;
use crate::admission::set::Made;
use crate::admission::trial::Trial;
use crate::respond::decided::{Announced, Decided, Shown};
use crate::respond::headers::style::Already;
use crate::respond::headers::write::write;
use crate::respond::refusal::Unserved;

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
    pub fn leave<B>(self, response: Response<B>) -> Response<B> {
        match self.0 {
            Some(marked) => marked.leave(response),
            None => response,
        }
    }
}

/// The marks of a response.
#[derive(Debug)]
pub(crate) struct Marked {
    /// The limits that the request began with.
    made: Arc<Made>,
    pub(crate) asks: Asks,
    /// The decision, if any policy is enforced.
    pub(crate) decided: Option<Decided>,
    /// The asks of policies in shadow.
    pub(super) trials: Vec<Arc<Trial>>,
    /// The spend of the request, if it may change while the request is served.
    pub(crate) meter: Option<Meter>,
    /// Whether a layer further out reads this decision from the response.
    is_read: bool,
}

impl Marked {
    /// The marks of a request that these asks let through. `policies` is called only if there is a decision.
    #[inline]
    pub(super) fn new(
        made: &Arc<Made>,
        asks: Asks,
        decision: Option<Decision>,
        policies: impl FnOnce(&Asks) -> Arc<[Arc<Policy>]>,
        trials: Vec<Arc<Trial>>,
    ) -> Box<Self> {
        let made = Arc::clone(made);
        let mut marked = Box::new(Self { made, asks, decided: None, trials, meter: None, is_read: false });
        // A decision is large, so it is copied only once, into its final place.
        if let Some(decision) = decision {
            let policies = policies(&marked.asks);
            marked.decided = Some(Decided { decision, policies });
        }
        if marked.made.settings.meters {
            let Self { made, asks, decided, trials, meter, .. } = &mut *marked;
            let decision = decided.as_mut().map(|decided| &mut decided.decision);
            *meter = Some(Meter::of_request(&made.plan, asks, decision, trials));
        }
        marked
    }

    /// The marks of a request that no limit has counted.
    pub(super) fn of_nothing(made: &Arc<Made>) -> Self {
        Self {
            made: Arc::clone(made),
            asks: Asks::default(),
            decided: None,
            trials: Vec::new(),
            meter: Some(Meter::default()),
            is_read: false,
        }
    }

    pub(crate) fn enter(&mut self, extensions: &mut Extensions) {
        if let Some(meter) = &self.meter {
            meter.enter(extensions);
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

    pub(crate) fn leave<B>(mut self: Box<Self>, mut response: Response<B>) -> Response<B> {
        if was_refused(response.extensions()) {
            // The request was not served, so nothing is charged.
            self.give_back_all();
        } else if self.made.refunds {
            response = self.refund_by(response);
        }
        self.mark(&mut response);
        response
    }

    // Cold, as others here, so that the code for most responses is short and stays together.
    #[cold]
    fn give_back_all(&mut self) {
        self.give_back(|_| true);
    }

    /// Gives back the units that limits give back for this response.
    #[cold]
    fn refund_by<B>(&mut self, response: Response<B>) -> Response<B> {
        let (head, body) = response.into_parts();
        let made = Arc::clone(&self.made);
        self.give_back(|limit| {
            made.plan.limits[limit].refund_if.as_ref().is_some_and(|refund| refund(&head))
        });
        Response::from_parts(head, body)
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
        let Made { settings, known, .. } = &*self.made;
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

    /// Gives back the units spent on the limits for which `is_given_back` is true. The decision then has the new state of the
    /// keys, if the store answers at once.
    fn give_back(&mut self, is_given_back: impl Fn(usize) -> bool) {
        let asked = self.asks.iter().map(|asked| asked.limit);
        let limits: SmallVec<[usize; 4]> = asked.chain(self.trials.iter().map(|trial| trial.limit)).collect();
        let after = match (&self.meter, &mut self.decided) {
            // The meter gives back the units that the handler has settled.
            (Some(meter), _) => {
                meter.give_back(|index| is_given_back(limits[index]));
                None
            }
            (None, Some(decided)) => {
                self.asks.give_back(&self.made, &mut decided.decision, |index| is_given_back(limits[index]))
            }
            (None, None) => None,
        };
        for trial in self.trials.iter().filter(|trial| is_given_back(trial.limit)) {
            trial.give_back();
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
