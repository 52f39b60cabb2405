//! The result of the decision on a request: it goes on to the service, or it is refused.

use std::time::{Duration, Instant};

use sluicegate_core::Outcome;
use sluicegate_core::store::Event;

use crate::admission::admitted::Marked;
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::key::RequestView;
use crate::respond::stop::Stop;
use crate::trace;

/// `Ok` lets the request through, with the marks for its response if there are any; `Err` refuses it. Both are boxed, because they
/// are large and moved often.
pub(crate) type RequestEnd = Result<Option<Box<Marked>>, Box<Refused>>;

/// The time that the decision on a request takes, where routes are counted.
#[derive(Debug)]
pub(super) struct Timed {
    began: Instant,
    /// Set when the request begins to wait for its turn, which is not part of the decision.
    took: Option<Duration>,
}

impl Timed {
    #[inline]
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), took: None }
    }

    /// The decision has been made, and the request waits for its turn.
    pub(super) fn waits(&mut self) {
        self.took = Some(self.took());
    }

    fn took(&self) -> Duration {
        self.took.unwrap_or_else(|| self.began.elapsed())
    }
}

/// Lets a request through that no limit has counted.
#[inline]
pub(super) fn uncounted(limits: &Limits) -> Option<Box<Marked>> {
    // A request that no limit counted has a meter too, so that handlers need not care.
    limits.settings().meters.then(|| Box::new(Marked::of_nothing(&limits.0.made)))
}

/// Refuses a request, because of `limit` if a limit is the reason, and reports the refusal.
pub(super) fn refused(limits: &Limits, limit: Option<usize>, stop: Stop) -> Box<Refused> {
    if let Stop::Mistake(error) = &stop {
        limits.made().report_mistake(error);
    }
    if let Some(why) = stop.undecided() {
        limits.notice(limit, Some(why));
    }
    Box::new(Refused::new(limits, limit, stop))
}

impl Limits {
    /// Tells others of a decision: the store, if routes are counted, and the span of the request.
    #[inline]
    pub(super) fn report(&self, request: RequestView<'_>, end: &mut RequestEnd, timed: Option<&Timed>) {
        if let Some(timed) = timed {
            self.tell_route(request, end, timed);
        }
        if trace::is_on() {
            trace(request, end);
        }
    }

    /// Tells the store of the first limit the decision and the route of a request, if routes are counted. Requests without a decision
    /// are reported elsewhere, with the reason.
    #[cold]
    fn tell_route(&self, request: RequestView<'_>, end: &RequestEnd, timed: &Timed) {
        let outcome = match end {
            Ok(marked) => {
                marked.as_ref().and_then(|marked| marked.decided.as_ref()).map(|_| Outcome::Allowed)
            }
            Err(refused) => refused.decided().map(|decided| decided.outcome()),
        };
        let store = self.plan().limits.iter().find_map(|limit| limit.source.store());
        if let (Some(outcome), Some(store)) = (outcome, store) {
            store.notice(&Event::Routed { route: request.route(), outcome, took: timed.took() });
        }
    }
}

/// Keeps the decision for the span of the request, until it is answered.
#[cold]
fn trace(request: RequestView<'_>, end: &mut RequestEnd) {
    let extensions = request.extensions;
    match end {
        Ok(None) => {}
        Ok(Some(marked)) => marked.trace_in(extensions),
        Err(refused) => refused.trace_in(extensions),
    }
}
