//! Collects the asks of all limits of a request, and lets the store decide them: the request proceeds, waits for its
//! turn, or is refused.

use std::mem;
use std::sync::Arc;

use sluicegate_core::{Decision, StoreError};

use crate::admission::admitted::Admitted;
use crate::admission::asks::RequestAsks;
use crate::admission::body_holds::BodyHolds;
use crate::admission::marks::Marked;
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::admission::trial::Trial;
use crate::admission::way::{Reached, RequestStage};
use crate::bandwidth::Paced;
use crate::guard::Place;
use crate::limits::finding::{LimitFinding, RequestAsk};
use crate::limits::walk::Walk;
use crate::respond::refusal::RefusalReason;
use crate::respond::stop::Stop;
use crate::trace::{self, TraceFields, WaitSpan};

/// The walk of a request through the limits, and the asks of the limits so far.
#[derive(Debug, Default)]
pub(super) struct RequestProgress {
    pub(super) walk: Walk,
    asks: RequestAsks,
    /// The asks of policies that are only tried out.
    tried: Vec<RequestAsk>,
    /// The limits that delay its bodies. Boxed, because few requests have any, and many wait.
    holds: Option<Box<BodyHolds>>,
}

impl RequestProgress {
    /// The progress of a request at this step of its walk, on which one limit may have asked.
    pub(super) fn at(walk: Walk, ask: Option<RequestAsk>) -> Self {
        let mut progress = Self { walk, ..Self::default() };
        ask.into_iter().for_each(|ask| progress.asks.push(ask));
        progress
    }

    /// Adds the ask of a limit, or returns the refusal if the limit refuses the request.
    #[inline]
    pub(super) fn take(
        &mut self,
        limits: &Limits,
        limit: usize,
        finding: LimitFinding,
    ) -> Option<Box<Refused>> {
        match finding {
            LimitFinding::Asks { ask, is_enforced: true } => self.asks.push(ask),
            LimitFinding::Asks { ask, is_enforced: false } => self.tried.push(ask),
            LimitFinding::Holds(ask) => {
                let paced = Paced::new(ask.limiter(limits.plan()), ask.key.clone());
                self.holds.get_or_insert_with(|| BodyHolds::of(limits)).add(limit, paced);
            }
            LimitFinding::Nothing(_) => {}
            LimitFinding::Refuses(stop) => return Some(limits.refuse(Some(limit), *stop)),
        }
        None
    }

    /// The first limit that asks.
    pub(super) fn first(&self) -> Option<usize> {
        self.asks.iter().next().map(|asked| asked.limit)
    }

    /// Asks the store, now that all limits are known.
    pub(super) fn decide(&mut self, limits: &Limits, place: &mut Place) -> Reached {
        if self.asks.is_empty() {
            return Ok(Ok(match self.tried.is_empty() {
                true => self.uncounted(limits),
                false => self.mark(limits, None),
            }));
        }
        if let Err(error) = self.asks.check(limits.plan()) {
            return refuse(limits, None, Stop::Mistake(error));
        }
        match self.asks.decide(limits.plan(), None).now() {
            Ok(result) => self.decided(limits, result, place),
            Err(deciding) => Err(RequestStage::Decision(Box::new(deciding))),
        }
    }

    /// Continues with the answer.
    pub(super) fn decided(
        &mut self,
        limits: &Limits,
        result: Result<Decision, StoreError>,
        place: &mut Place,
    ) -> Reached {
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => return refuse(limits, None, Stop::mistake(&error)),
        };
        if !decision.is_counted() {
            // The request was not counted, so there are no numbers to show and no units to give back.
            return match decision.is_allowed() {
                true => {
                    let fields = self.trace(limits, &decision);
                    Ok(Ok(self.uncounted(limits).traced(limits, fields)))
                }
                false => refuse(limits, None, Stop::Plain(RefusalReason::Outage)),
            };
        }
        if !decision.is_allowed() {
            return self.refused(limits, decision);
        }
        let delay = decision.delay();
        if delay.is_zero() {
            return Ok(Ok(self.mark(limits, Some(decision))));
        }
        let policy = trace::is_on().then(|| self.asks.deciding(limits.plan(), &decision)).flatten();
        let fields = self.trace(limits, &decision);
        let turn = self.asks.turn(limits.plan(), decision);
        if limits.waits().queue.enter(place) {
            return Err(RequestStage::Turn(turn, WaitSpan::begin(policy.as_deref(), delay, fields)));
        }
        // A turn that is dropped is given back.
        drop(turn);
        refuse(limits, self.first(), Stop::Plain(RefusalReason::QueueFull(delay)))
    }

    /// Refuses the request by this decision.
    fn refused(&self, limits: &Limits, decision: Decision) -> Reached {
        refuse(limits, None, Stop::Decided(self.asks.label(limits.made(), decision)))
    }

    /// Admits the request, at once or when its turn has come, with marks for its response, if any. Shadow policies are
    /// asked only now: a client that hangs up while it waits spends nothing from them. Limits that show nothing do not keep the decision.
    pub(super) fn mark(&mut self, limits: &Limits, decision: Option<Decision>) -> Admitted {
        let trials = self.try_out(limits);
        let made = &limits.made;
        if !made.marks {
            let fields = decision.and_then(|decision| self.trace(limits, &decision));
            return Admitted::new(None).traced(limits, fields);
        }
        let asks = mem::take(&mut self.asks);
        let mut marked = Marked::new(made, asks, decision, trials);
        marked.holds = self.holds.take();
        Admitted::new(Some(marked))
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
                Admitted::new(Some(marked))
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
fn refuse(limits: &Limits, limit: Option<usize>, stop: Stop) -> Reached {
    Ok(Err(limits.refuse(limit, stop)))
}
