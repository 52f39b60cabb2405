//! What happens to the response of a request that was let through.

use std::sync::Arc;

use http::{Extensions, Response};
use smallvec::SmallVec;

use crate::rate_limit::asks::Asks;
use crate::rate_limit::decided::Decided;
use crate::rate_limit::meter::Meter;
use crate::rate_limit::restate::restate;
use crate::rate_limit::shared::Shared;
use crate::rate_limit::trial::Trial;
use crate::respond::headers::{self, Already};

/// What the response of the inner service is to be marked with. In a box, for it is large and goes through many hands.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) asks: Asks,
    /// What was decided, if any policy is enforced.
    pub(crate) decided: Option<Decided>,
    /// What was asked of policies in shadow.
    pub(crate) trials: Vec<Arc<Trial>>,
    /// What the request has spent, if that may change while it is served.
    pub(crate) meter: Option<Meter>,
}

/// In the extensions of a response that a layer refused for a reason that is not the client's: layers around it give
/// back what they spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unserved;

impl Marked {
    /// Gives back what the limits give back for such a response.
    pub(crate) fn refund<R, B>(&mut self, shared: &Shared<R>, response: Response<B>) -> Response<B> {
        if was_refused(response.extensions()) {
            return response;
        }
        let (head, body) = response.into_parts();
        self.give_back(shared, |slot| {
            let limit = &shared.limits[shared.slots[slot].limit];
            limit.refund_if.as_ref().is_some_and(|refund| refund(&head))
        });
        Response::from_parts(head, body)
    }

    /// Marks the response with where the client stands.
    pub(crate) fn mark<R, B>(mut self: Box<Self>, shared: &Shared<R>, response: &mut Response<B>) {
        if was_refused(response.extensions()) {
            // This layer has let nothing through, so it has nothing to charge for.
            self.give_back(shared, |_| true);
        }
        let Some(mut decided) = self.decided else { return };
        if let Some(meter) = &self.meter {
            restate(&mut decided, meter);
        }
        let inner = response.extensions_mut().remove::<Decided>();
        let shown = match &inner {
            None => decided,
            Some(inner) => decided.merge(inner),
        };
        let already = if inner.is_some() { Already::Both } else { Already::Theirs };
        let refused_for = headers::retry_after(&shown);
        headers::write(response.headers_mut(), shared.style, &shown, refused_for, &shared.plan(), already);
        // For layers further out: what all of them know together, or what was there before.
        let left = if shared.extensions { Some(shown) } else { inner };
        if let Some(decided) = left {
            response.extensions_mut().insert(decided);
        }
    }

    /// Gives back what was spent in the slots that `is_given_back` says. The decision then says where that leaves the
    /// keys, if that is known at once.
    fn give_back<R>(&mut self, shared: &Shared<R>, is_given_back: impl Fn(usize) -> bool) {
        let asked = self.asks.iter().map(|asked| asked.slot);
        let slots: SmallVec<[usize; 4]> = asked.chain(self.trials.iter().map(|trial| trial.slot)).collect();
        let after = match (&self.meter, &mut self.decided) {
            // What the handler has settled is what there is to give back.
            (Some(meter), _) => {
                meter.give_back(|index| is_given_back(slots[index]));
                None
            }
            (None, Some(decided)) => {
                self.asks.give_back(shared, &mut decided.decision, |index| is_given_back(slots[index]))
            }
            (None, None) => None,
        };
        for trial in self.trials.iter().filter(|trial| is_given_back(trial.slot)) {
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
