//! What happens to the response of a request that was let through.

use http::Response;
use sluicegate_core::Decision;
use smallvec::SmallVec;

use crate::asks::Asks;
use crate::headers::{self, Already};
use crate::meter::Meter;
use crate::shared::Shared;

/// What the response of the inner service is to be marked with. In a box, for it is large and goes through many hands.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) asks: Asks,
    pub(crate) decision: Decision,
    /// What the request has spent, if that may change while it is served.
    pub(crate) meter: Option<Meter>,
}

/// In the extensions of a response that a layer refused for a reason that is not the client's: layers around it give
/// back what they spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unserved;

impl Marked {
    /// Marks the response with where the client stands, and gives back what is to be given back.
    pub(crate) fn mark<R, B>(self: Box<Self>, shared: &Shared<R>, mut response: Response<B>) -> Response<B> {
        let extensions = response.extensions_mut();
        let inner = extensions.remove::<Decision>();
        let is_refused = inner.as_ref().is_some_and(|inner| !inner.is_allowed());
        let decision = if is_refused || (inner.is_none() && extensions.get::<Unserved>().is_some()) {
            // A limit behind this one refused: this one has let nothing through, so it has nothing to charge for.
            self.give_back(shared, |_| true).unwrap_or(self.decision)
        } else if shared.refunds {
            let (head, body) = response.into_parts();
            let after = self.give_back(shared, |slot| {
                let limit = &shared.limits[shared.slots[slot].limit];
                limit.refund_if.as_ref().is_some_and(|refund| refund(&head))
            });
            response = Response::from_parts(head, body);
            after.unwrap_or(self.decision)
        } else {
            self.decision
        };
        let shown = match &inner {
            None => decision,
            Some(inner) => decision.merge(inner),
        };
        let already = if inner.is_some() { Already::Ours } else { Already::Theirs };
        headers::write(response.headers_mut(), shared.style, &shown, &shared.plan(), already);
        // For layers further out: what all of them know together, or what was there before.
        let left = if shared.extensions { Some(shown) } else { inner };
        if let Some(decision) = left {
            response.extensions_mut().insert(decision);
        }
        response
    }

    /// Gives back what was spent in the slots that `is_given_back` says, and says where that leaves the keys if that is
    /// known at once. Nothing is asked if there is nothing to give back.
    fn give_back<R>(&self, shared: &Shared<R>, is_given_back: impl Fn(usize) -> bool) -> Option<Decision> {
        let units = self.asks.iter().enumerate().map(|(index, asked)| match &self.meter {
            _ if !is_given_back(asked.slot) => 0,
            // What the handler has settled is what there is to give back.
            Some(meter) => meter.take(index),
            None => asked.cost,
        });
        let units: SmallVec<[u64; 4]> = units.collect();
        if units.iter().all(|&units| units == 0) {
            return None;
        }
        self.asks.give_back(shared, &self.decision, &units)
    }
}
