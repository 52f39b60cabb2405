//! The way of a request from limit to limit to its decision: [`HeldRequest`] goes through these stages, each at once if it can.
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
//! [`RequestProgress`] collects the asks of all limits that apply, and the store decides them in one call. Each step returns what it has
//! [reached](Reached): the end, or the stage in which the request waits.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sluicegate_core::limiter::Turn;
use sluicegate_core::store::{DecisionFuture, Undecided};
use sluicegate_core::{Decision, StoreError};

use crate::admission::admitted::Admitted;
use crate::admission::asks::RequestAsks;
use crate::admission::body_holds::BodyHolds;
use crate::admission::marks::Marked;
use crate::admission::refused::Refused;
use crate::admission::report::Timed;
use crate::admission::set::Limits;
use crate::admission::shadow::Trial;
use crate::bandwidth::Paced;
use crate::guard::Place;
use crate::guard::gate::Lookup;
use crate::key::RequestView;
use crate::limits::door::{DoorVerdict, ExemptionFuture};
use crate::limits::walk::{LimitFinding, PendingLookup, RequestAsk, Walk, WalkStep};
use crate::respond::refusal::RefusalReason;
use crate::respond::stop::Stop;
use crate::trace::{self, TraceFields, WaitSpan};

/// What a request has reached: the end of its way, or `W`, for which it waits.
pub(crate) enum Reached<W> {
    Admitted(Admitted),
    Refused(Box<Refused>),
    Waits(W),
}

/// A request at its first step.
pub(crate) type Begun = Reached<Box<HeldRequest>>;

/// The end of the way.
pub(crate) type RequestEnd = Result<Admitted, Box<Refused>>;

impl<W> Reached<W> {
    /// The end.
    ///
    /// # Errors
    /// What the request waits for.
    pub(super) fn end(self) -> Result<RequestEnd, W> {
        match self {
            Self::Admitted(admitted) => Ok(Ok(admitted)),
            Self::Refused(refused) => Ok(Err(refused)),
            Self::Waits(stage) => Err(stage),
        }
    }
}

/// The stage that a request waits in.
#[derive(Debug)]
enum RequestStage {
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
            let Poll::Ready(reached) = self.poll_stage(cx, request, place) else {
                self.report(request);
                return Poll::Pending;
            };
            match reached.end() {
                Err(stage) => self.stage = stage,
                Ok(mut end) => {
                    let told = end.as_mut().map_err(|refused| &mut **refused);
                    self.limits.report(request, told, self.timed.as_deref());
                    return Poll::Ready(end);
                }
            }
        }
    }

    fn poll_stage(
        &mut self,
        cx: &mut Context<'_>,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Poll<Reached<RequestStage>> {
        let Self { limits, progress, stage, .. } = self;
        Poll::Ready(match stage {
            RequestStage::Door(lookup) => {
                // Without an answer the request is not exempt.
                let is_exempt = ready!(lookup.poll(cx, limits.waits(), place)).unwrap_or(false);
                let door = limits.settings().door.as_ref();
                let verdict = door.map_or(DoorVerdict::ToTheLimits, |door| door.entry_of(is_exempt, request));
                progress.enter(verdict, limits, request, place)
            }
            RequestStage::Limits(lookup) => {
                let next = lookup.poll(cx, (limits.plan(), request), limits.waits(), place);
                progress.collect(ready!(next), limits, request, place)
            }
            RequestStage::Decision(deciding) => {
                let result = ready!(Pin::new(deciding).poll(cx));
                progress.apply(result, limits, place)
            }
            RequestStage::Turn(turn, wait) => {
                let decision = ready!(Pin::new(turn).poll(cx));
                let trace = wait.end("turn");
                *stage = RequestStage::Over;
                Reached::Admitted(progress.mark(limits, Some(decision)).with_span(trace))
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

/// Starts at the door, whose verdict is not that the limits decide.
#[cold]
pub(super) fn start_at_door(
    limits: &Limits,
    verdict: DoorVerdict,
    request: RequestView<'_>,
    place: &mut Place,
) -> Begun {
    let mut progress = RequestProgress::default();
    let reached = progress.enter(verdict, limits, request, place);
    progress.held(reached, limits)
}

/// Starts at this step of a walk, before which no limit has asked.
#[cold]
pub(super) fn start_at_limit(
    limits: &Limits,
    walk: Walk,
    next: WalkStep,
    request: RequestView<'_>,
    place: &mut Place,
) -> Begun {
    let mut progress = RequestProgress { walk, ..RequestProgress::default() };
    let reached = progress.collect(next, limits, request, place);
    progress.held(reached, limits)
}

/// The walk of a request through the limits, and the asks of the limits so far.
#[derive(Debug, Default)]
struct RequestProgress {
    walk: Walk,
    asks: RequestAsks,
    /// The asks of policies that are only tried out.
    tried: Vec<RequestAsk>,
    /// The limits that delay its bodies. Boxed, because few requests have any, and many wait.
    holds: Option<Box<BodyHolds>>,
}

impl RequestProgress {
    /// The request with this progress, if it has to wait.
    fn held(self, reached: Reached<RequestStage>, limits: &Limits) -> Begun {
        match reached {
            Reached::Admitted(admitted) => Reached::Admitted(admitted),
            Reached::Refused(refused) => Reached::Refused(refused),
            Reached::Waits(stage) => {
                let held = HeldRequest { limits: limits.clone(), progress: self, stage, timed: None };
                Reached::Waits(Box::new(held))
            }
        }
    }

    /// Continues after the door.
    fn enter(
        &mut self,
        verdict: DoorVerdict,
        limits: &Limits,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Reached<RequestStage> {
        match verdict {
            DoorVerdict::ToTheLimits => {
                let first = self.walk.next(limits.plan(), request);
                self.collect(first, limits, request, place)
            }
            DoorVerdict::PastTheLimits => {
                limits.notice(None, Some(Undecided::Exempt));
                Reached::Admitted(Admitted::uncounted(limits))
            }
            DoorVerdict::Refused(status) => refuse(limits, None, Stop::Plain(RefusalReason::Blocked(status))),
            DoorVerdict::Asking(answer) => Reached::Waits(RequestStage::Door(Lookup::new(answer))),
        }
    }

    /// Collects the asks of the limits, starting with this one, and then asks the store.
    fn collect(
        &mut self,
        mut next: WalkStep,
        limits: &Limits,
        request: RequestView<'_>,
        place: &mut Place,
    ) -> Reached<RequestStage> {
        loop {
            match next {
                WalkStep::Found(limit, LimitFinding::Refuses(stop)) => {
                    return refuse(limits, Some(limit), *stop);
                }
                WalkStep::Found(limit, finding) => self.add(finding, limit, limits),
                WalkStep::Waits(lookup) => return Reached::Waits(RequestStage::Limits(lookup)),
                WalkStep::End => return self.decide(limits, place),
            }
            next = self.walk.next(limits.plan(), request);
        }
    }

    /// Adds the ask of a limit, if it has one.
    #[inline]
    fn add(&mut self, finding: LimitFinding, limit: usize, limits: &Limits) {
        match finding {
            LimitFinding::Asks { ask, is_enforced: true } => self.asks.push(ask),
            LimitFinding::Asks { ask, is_enforced: false } => self.tried.push(ask),
            LimitFinding::Holds(ask) => {
                let paced = Paced::new(ask.limiter(limits.plan()), ask.key.clone());
                self.holds.get_or_insert_with(|| BodyHolds::of(limits)).add(limit, paced);
            }
            LimitFinding::Nothing(_) | LimitFinding::Refuses(_) => {}
        }
    }

    /// The first limit that asks.
    fn first(&self) -> Option<usize> {
        self.asks.iter().next().map(|asked| asked.limit)
    }

    /// Asks the store, now that all limits are known.
    fn decide(&mut self, limits: &Limits, place: &mut Place) -> Reached<RequestStage> {
        if self.asks.is_empty() {
            return Reached::Admitted(match self.tried.is_empty() {
                true => self.uncounted(limits),
                false => self.mark(limits, None),
            });
        }
        if let Err(error) = self.asks.check(limits.plan()) {
            return refuse(limits, None, Stop::Mistake(error));
        }
        match self.asks.decide(limits.plan(), None).now() {
            Ok(result) => self.apply(result, limits, place),
            Err(deciding) => Reached::Waits(RequestStage::Decision(Box::new(deciding))),
        }
    }

    /// Continues with the store's answer.
    fn apply(
        &mut self,
        result: Result<Decision, StoreError>,
        limits: &Limits,
        place: &mut Place,
    ) -> Reached<RequestStage> {
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => return refuse(limits, None, Stop::mistake(&error)),
        };
        if !decision.is_counted() {
            // The request was not counted, so there are no numbers to show and no units to give back.
            return match decision.is_allowed() {
                true => {
                    let fields = self.trace(limits, &decision);
                    Reached::Admitted(self.uncounted(limits).traced(limits, fields))
                }
                false => refuse(limits, None, Stop::Plain(RefusalReason::Outage)),
            };
        }
        if !decision.is_allowed() {
            let limit = self.asks.deciding_limit(&decision);
            return refuse(limits, limit, Stop::Decided(self.asks.label(limits.made(), decision)));
        }
        let delay = decision.delay();
        if delay.is_zero() {
            return Reached::Admitted(self.mark(limits, Some(decision)));
        }
        let policy = trace::is_on().then(|| self.asks.deciding(limits.plan(), &decision)).flatten();
        let fields = self.trace(limits, &decision);
        let turn = self.asks.turn(limits.plan(), decision);
        if limits.waits().queue.enter(place) {
            return Reached::Waits(RequestStage::Turn(
                turn,
                WaitSpan::begin(policy.as_deref(), delay, fields),
            ));
        }
        // A turn that is dropped is given back.
        drop(turn);
        refuse(limits, self.first(), Stop::Plain(RefusalReason::QueueFull(delay)))
    }

    /// Admits the request, at once or when its turn has come, with marks for its response, if any. Shadow policies are
    /// asked only now: a client that hangs up while it waits spends nothing from them. Limits that show nothing do not keep the decision.
    fn mark(&mut self, limits: &Limits, decision: Option<Decision>) -> Admitted {
        let trials = self.try_out(limits);
        let made = &limits.made;
        if !made.marks {
            let fields = decision.and_then(|decision| self.trace(limits, &decision));
            return Admitted::unmarked().traced(limits, fields);
        }
        let asks = mem::take(&mut self.asks);
        let decided = decision.map(|decision| asks.label(made, decision));
        let mut marked = Marked::new(made, asks, decided, trials);
        marked.holds = self.holds.take();
        marked.into()
    }

    /// The decision for the span of the request, if the span may need it.
    fn trace(&self, limits: &Limits, decision: &Decision) -> Option<TraceFields> {
        trace::is_wanted().then(|| TraceFields::new(self.asks.deciding(limits.plan(), decision), decision))
    }

    /// An uncounted request with possible delays of its bodies.
    fn uncounted(&mut self, limits: &Limits) -> Admitted {
        match self.holds.take() {
            None => Admitted::uncounted(limits),
            holds => {
                let mut marked = Marked::bare(&limits.made);
                marked.holds = holds;
                marked.into()
            }
        }
    }

    /// Asks each policy that is only tried out on its own, as if it came after the others.
    fn try_out(&mut self, limits: &Limits) -> Vec<Arc<Trial>> {
        let each = self.tried.drain(..).map(|ask| {
            let trial = Arc::new(Trial::new(limits.plan(), ask));
            let deciding = trial.limiter.check(&trial.key).cost(trial.cost).start();
            limits.shadows().watch(&trial, deciding);
            trial
        });
        each.collect()
    }
}

/// Refuses the request, because of `limit` if a limit is the reason.
fn refuse(limits: &Limits, limit: Option<usize>, stop: Stop) -> Reached<RequestStage> {
    Reached::Refused(limits.refuse(limit, stop))
}
