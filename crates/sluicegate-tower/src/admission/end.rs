//! The end of a request's way through its limits: on to the service, or not.

use sluicegate_core::Outcome;
use sluicegate_core::store::Event;

use crate::admission::admitted::Marked;
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::key::RequestView;
use crate::respond::stop::Stop;

/// On to the service, with what its response is to be marked with if anything, or not. Both in a box, for they are large and go
/// through many hands.
pub(crate) type End = Result<Option<Box<Marked>>, Box<Refused>>;

/// On to the service, with nothing that was counted.
#[inline]
pub(super) fn uncounted(limits: &Limits) -> Option<Box<Marked>> {
    // A request that no limit counted has a meter too, so that handlers need not care.
    limits.settings().meters.then(|| Box::new(Marked::of_nothing(&limits.0.made)))
}

/// Not on, which is told where it has to be; because of this limit, if it is one.
pub(super) fn refused(limits: &Limits, limit: Option<usize>, stop: Stop) -> Box<Refused> {
    if let Stop::Mistake(error) = &stop {
        limits.made().report_mistake(error);
    }
    if let Some(why) = stop.undecided() {
        limits.notice(limit, Some(why));
    }
    Box::new(Refused::new(limits, stop))
}

impl Limits {
    /// Tells the store of the first limit what was decided on a request of which route, if routes are counted. What was not decided
    /// is told elsewhere, with the reason.
    #[cold]
    pub(crate) fn tell_route(&self, request: RequestView<'_>, end: &End) {
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
