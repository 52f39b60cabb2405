//! Telling by which route requests come that limits decide on.

use sluicegate_core::Outcome;
use sluicegate_core::store::Event;

use crate::admission::set::Limits;
use crate::admission::way::End;
use crate::key::RequestView;

impl Limits {
    /// Tells the store of the first limit what was decided on a request of which route, if routes are counted. What was not decided
    /// is told elsewhere, with the reason.
    #[inline]
    pub(crate) fn count_route(&self, request: RequestView<'_>, end: &End) {
        if self.settings().routes {
            self.tell_route(request, end);
        }
    }

    fn tell_route(&self, request: RequestView<'_>, end: &End) {
        let outcome = match end {
            Ok(marked) => {
                marked.as_ref().and_then(|marked| marked.decided.as_ref()).map(|_| Outcome::Allowed)
            }
            Err(refused) => refused.decided().map(|decided| decided.outcome()),
        };
        let store = self.plan().limits.iter().find_map(|limit| limit.source.store());
        if let (Some(outcome), Some(store)) = (outcome, store) {
            store.notice(&Event::Routed { route: request.route(), outcome });
        }
    }
}
