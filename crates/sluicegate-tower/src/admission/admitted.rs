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
/// Dropping it gives nothing back. A caller that answers the request itself hands it the request's extensions and then the
/// response, as the layer does; one that only asks has nothing more to do.
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

    /// Shows handlers what was decided, in the extensions of their request, and tells layers further in that theirs is read
    /// from the response.
    pub fn enter(&mut self, extensions: &mut Extensions) {
        if let Some(marked) = &mut self.0 {
            marked.enter(extensions);
        }
    }

    /// Gives back what is given back for such a response, and writes into it where the client stands.
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
    /// The spend of the request, if that may change while it is served.
    pub(crate) meter: Option<Meter>,
    /// Whether a layer further out reads from the response what is decided here.
    is_read: bool,
}

impl Marked {
    /// Of a request that was let through by these asks, whose policies are looked for if there is a decision.
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
        // A decision is large, and copied once: to where it stays.
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

    /// Of a request that no limit has counted.
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
                // The layer around this one will read nothing of it.
                let report = |outer| self.made.report_double(outer, decided);
                let is_around = extensions.get::<Decided>().map(report).is_some();
                extensions.insert(Announced).is_some() || is_around
            }
        };
    }

    pub(crate) fn leave<B>(mut self: Box<Self>, mut response: Response<B>) -> Response<B> {
        if was_refused(response.extensions()) {
            // Nothing was let through, so there is nothing to charge for.
            self.give_back_all();
        } else if self.made.refunds {
            response = self.refund_by(response);
        }
        self.mark(&mut response);
        response
    }

    // Cold, as others here, so that the way of most responses is short code that stays together.
    #[cold]
    fn give_back_all(&mut self) {
        self.give_back(|_| true);
    }

    /// Gives back what limits give back for such a response.
    #[cold]
    fn refund_by<B>(&mut self, response: Response<B>) -> Response<B> {
        let (head, body) = response.into_parts();
        let made = Arc::clone(&self.made);
        self.give_back(|limit| {
            made.plan.limits[limit].refund_if.as_ref().is_some_and(|refund| refund(&head))
        });
        Response::from_parts(head, body)
    }

    /// Marks the response with where the client stands.
    fn mark<B>(mut self: Box<Self>, response: &mut Response<B>) {
        let Some(decided) = &mut self.decided else { return };
        if let Some(meter) = &self.meter {
            restate(decided, meter.now());
        }
        if let Some(inner) = response.extensions_mut().remove::<Decided>() {
            return self.mark_with(inner, response);
        }
        // A decision is large, so it is looked at where it is.
        let shown = Shown::of(decided);
        let Made { settings, known, .. } = &*self.made;
        let prepared = || known.policy_line(&decided.policies);
        write(response.headers_mut(), &settings.style, shown, shown.wait, &prepared, Already::Theirs);
        // An allocation, so only where it is read.
        if (self.is_read || !decided.is_allowed())
            && settings.extensions
            && let Some(decided) = self.decided.take()
        {
            response.extensions_mut().insert(decided);
        }
    }

    /// Marks the response with where the client stands by all layers that have decided, this one and those further in.
    #[cold]
    fn mark_with<B>(&mut self, inner: Decided, response: &mut Response<B>) {
        let Some(decided) = &self.decided else { return };
        self.made.report_double(decided, &inner);
        let merged = decided.merge(&inner);
        let shown = Shown::of(&merged);
        write(response.headers_mut(), &self.made.settings.style, shown, shown.wait, &|| None, Already::Both);
        // A refusal by a layer further in is told in any case.
        if self.is_read || !merged.is_allowed() {
            // For layers further out: what all of them know together, or what was there before.
            let left = if self.made.settings.extensions { merged } else { inner };
            response.extensions_mut().insert(left);
        }
    }

    /// Gives back what was spent of the limits that `is_given_back` says. The decision then says where that leaves the
    /// keys, if that is known at once.
    fn give_back(&mut self, is_given_back: impl Fn(usize) -> bool) {
        let asked = self.asks.iter().map(|asked| asked.limit);
        let limits: SmallVec<[usize; 4]> = asked.chain(self.trials.iter().map(|trial| trial.limit)).collect();
        let after = match (&self.meter, &mut self.decided) {
            // Units that the handler has settled are those that there are to give back.
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

/// Whether a layer behind this one refused the request: the next one, as its decision says, or one behind it, for a
/// reason that is in no decision.
fn was_refused(extensions: &Extensions) -> bool {
    extensions.get::<Decided>().is_some_and(|inner| !inner.is_allowed())
        || extensions.get::<Unserved>().is_some()
}
