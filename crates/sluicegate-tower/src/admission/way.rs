//! The way of a request to its decision: [`HeldRequest`] goes through these stages, each at once if it can.
//!
//! ```text
//! Door -> Limits -> Decision -> Turn -> on to the service
//!   |       |          |          |
//!   |       |          |          +-- dropped: the turn is given back
//!   |       |          +-- refused, or an outage: what the policies say
//!   |       +-- a key or a limiter is looked up; a limit refuses
//!   +-- exempt: past all of it; denied: refused
//! ```
//!
//! Almost every request has one limit with a key at hand and a store in memory. `begin` decides on it without allocating, and it
//! does not get here.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sluicegate_core::limiter::Turn;
use sluicegate_core::store::{DecisionFuture, Undecided};

use crate::admission::admitted::Admitted;
use crate::admission::progress::RequestProgress;
use crate::admission::refused::Refused;
use crate::admission::report::Timed;
use crate::admission::set::Limits;
use crate::guard::Place;
use crate::guard::gate::Lookup;
use crate::key::RequestView;
use crate::limits::door::{DoorVerdict, ExemptionFuture};
use crate::limits::finding::RequestAsk;
use crate::limits::lookup::PendingLookup;
use crate::limits::walk::{Walk, WalkStep};
use crate::respond::refusal::RefusalReason;
use crate::respond::stop::Stop;
use crate::trace::WaitSpan;

/// The end of the way: the request is admitted or refused.
pub(crate) type RequestEnd = Result<Admitted, Box<Refused>>;

/// The end of the way if it is reached at once, or else the request that has to wait.
pub(crate) type Begun = Result<RequestEnd, Box<HeldRequest>>;

/// The end of the way, or the stage in which the request waits.
pub(super) type Reached = Result<RequestEnd, RequestStage>;

/// The stage that a request waits in.
#[derive(Debug)]
pub(super) enum RequestStage {
    /// For a pending exemption.
    Door(Lookup<ExemptionFuture>),
    /// For a key or a limiter.
    Limits(Box<PendingLookup>),
    /// For the store. Boxed separately from the turn, because it is large, and waits for a turn take longer.
    Decision(Box<DecisionFuture>),
    Turn(Turn, WaitSpan),
    /// The turn has come.
    Over,
}

/// A request that has to wait.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the guard has one")]
pub struct HeldRequest {
    /// The limits that it began with.
    limits: Limits,
    progress: RequestProgress,
    stage: RequestStage,
    /// Set if routes are counted. Boxed, because routes are rarely counted, and many requests may wait.
    timed: Option<Box<Timed>>,
}

impl HeldRequest {
    /// Goes from stage to stage. A request that has to wait takes a place in the queue.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Poll<RequestEnd> {
        loop {
            match self.poll_stage(cx, request, place) {
                Poll::Ready(Err(stage)) => self.stage = stage,
                Poll::Ready(Ok(mut end)) => {
                    self.limits.report(request, &mut end, self.timed.as_deref());
                    return Poll::Ready(end);
                }
                Poll::Pending => {
                    self.report(request);
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_stage(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Poll<Reached> {
        let Self { limits, progress, stage, .. } = self;
        Poll::Ready(match stage {
            RequestStage::Door(lookup) => {
                // Without an answer the request is not exempt.
                let is_exempt = ready!(lookup.poll(cx, limits.waits(), place)).unwrap_or(false);
                let door = limits.settings().door.as_ref();
                let verdict = door.map_or(DoorVerdict::ToTheLimits, |door| door.entry_of(is_exempt, request));
                progress.enter(verdict, (limits, request), place)
            }
            RequestStage::Limits(lookup) => {
                let next = lookup.poll(cx, (limits.plan(), request), limits.waits(), place);
                progress.meet(ready!(next), (limits, request), place)
            }
            RequestStage::Decision(deciding) => {
                let result = ready!(Pin::new(deciding).poll(cx));
                progress.decided(limits, result, place)
            }
            RequestStage::Turn(turn, wait) => {
                let decision = ready!(Pin::new(turn).poll(cx));
                let trace = wait.end("turn");
                *stage = RequestStage::Over;
                Ok(Ok(progress.mark(limits, Some(decision)).with_span(trace)))
            }
            RequestStage::Over => panic!("a request is polled until its turn has come, once"),
        })
    }

    /// Begins the wait of a request, and the timing of its decision if routes are counted.
    pub(super) fn begin(&mut self, request: RequestView<'_>, timed: Option<Timed>) {
        self.timed = timed.map(Box::new);
        self.report(request);
    }

    /// Notes that the request waits for its turn, if it does, and reports it to its span.
    fn report(&mut self, request: RequestView<'_>) {
        if let RequestStage::Turn(_, wait) = &mut self.stage {
            if let Some(timed) = &mut self.timed {
                timed.waits();
            }
            wait.report(request.extensions);
        }
    }
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        if let RequestStage::Turn(..) = self.stage {
            self.limits.notice(self.progress.first(), None);
        }
    }
}

/// A request and the limits that decide on it.
type Through<'a> = (&'a Limits, RequestView<'a>);

impl RequestProgress {
    /// Continues after the door.
    fn enter(&mut self, verdict: DoorVerdict, through: Through<'_>, place: &mut Place) -> Reached {
        let (limits, request) = through;
        match verdict {
            DoorVerdict::ToTheLimits => {
                let first = self.walk.next(limits.plan(), request);
                self.meet(first, through, place)
            }
            DoorVerdict::PastTheLimits => {
                limits.notice(None, Some(Undecided::Exempt));
                Ok(Ok(Admitted::uncounted(limits)))
            }
            DoorVerdict::Refused(status) => {
                Ok(Err(limits.refuse(None, Stop::Plain(RefusalReason::Blocked(status)))))
            }
            DoorVerdict::Asking(answer) => Err(RequestStage::Door(Lookup::new(answer))),
        }
    }

    /// Goes from limit to limit, starting with this one, and then to the decision.
    fn meet(&mut self, mut next: WalkStep, (limits, request): Through<'_>, place: &mut Place) -> Reached {
        loop {
            match next {
                WalkStep::Found(limit, finding) => {
                    if let Some(refused) = self.take(limits, limit, finding) {
                        return Ok(Err(refused));
                    }
                }
                WalkStep::Waits(lookup) => return Err(RequestStage::Limits(lookup)),
                WalkStep::End => return self.decide(limits, place),
            }
            next = self.walk.next(limits.plan(), request);
        }
    }

    /// The end if it is reached, otherwise the wait for it.
    #[inline]
    fn begun(self, reached: Reached, limits: &Limits) -> Begun {
        let held = |stage| HeldRequest { limits: limits.clone(), progress: self, stage, timed: None };
        reached.map_err(|stage| Box::new(held(stage)))
    }
}

/// Continues at the door. Cold and separate, like the two below, so that the code of the fast path stays together.
#[cold]
pub(super) fn through(through: Through<'_>, verdict: DoorVerdict, place: &mut Place) -> Begun {
    let mut progress = RequestProgress::default();
    let reached = progress.enter(verdict, through, place);
    progress.begun(reached, through.0)
}

/// Continues at this step of a walk, at which no limit has asked yet.
#[cold]
pub(super) fn along(through: Through<'_>, (walk, next): (Walk, WalkStep), place: &mut Place) -> Begun {
    let mut progress = RequestProgress::at(walk, None);
    let reached = progress.meet(next, through, place);
    progress.begun(reached, through.0)
}

/// Continues with the store's answer to the only ask.
#[cold]
pub(super) fn behind(limits: &Limits, ask: RequestAsk, deciding: DecisionFuture, place: &mut Place) -> Begun {
    let mut progress = RequestProgress::at(Walk::default(), Some(ask));
    let reached = match deciding.now() {
        Ok(result) => progress.decided(limits, result, place),
        Err(deciding) => Err(RequestStage::Decision(Box::new(deciding))),
    };
    progress.begun(reached, limits)
}
