//! Collects the asks of all limits that a request meets, and has the store decide them: the request goes on, waits for its
//! turn, or is refused.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::limiter::Turn;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Decision, StoreError};

use crate::admission::admitted::{BodyHolds, Marked};
use crate::admission::asks::RequestAsks;
use crate::admission::end::{RequestEnd, refused, uncounted};
use crate::admission::refused::Refused;
use crate::admission::set::Limits;
use crate::admission::trial::Trial;
use crate::bandwidth::Paced;
use crate::guard::Place;
use crate::limits::finding::{FoundLimit, LimitFinding, RequestAsk};
use crate::respond::refusal::RefusalReason;
use crate::respond::stop::Stop;
use crate::trace::{self, RequestTrace, TraceFields, WaitSpan};

/// The asks of a request, as far as its limits are known.
#[derive(Debug, Default)]
pub(super) struct Asking {
    asks: RequestAsks,
    /// The asks of policies that are only tried out, and then their answers.
    tried: Vec<RequestAsk>,
    trials: Vec<Arc<Trial>>,
    /// The limits that hold its bodies. Boxed, because few requests have any, and many wait.
    holds: Option<Box<BodyHolds>>,
}

/// The next state of a request: its end, or a wait.
pub(super) enum Then {
    End(RequestEnd),
    /// Boxed apart from the turn, because it is large, and waits for a turn take longer.
    Decision(Box<DecisionFuture>),
    Turn(Turn, WaitSpan),
}

impl Asking {
    pub(super) fn of(asks: RequestAsks) -> Self {
        Self { asks, ..Self::default() }
    }

    /// Adds the ask of a limit, or returns the refusal if the limit refuses the request.
    #[inline]
    pub(super) fn take(
        &mut self,
        limits: &Limits,
        FoundLimit { limit, finding }: FoundLimit,
    ) -> Option<Box<Refused>> {
        match finding {
            LimitFinding::Asks { which, key, cost, is_enforced } => {
                let asked = RequestAsk { limit, which, key, cost };
                match is_enforced {
                    true => self.asks.push(asked),
                    false => self.tried.push(asked),
                }
                None
            }
            LimitFinding::Holds { which, key } => {
                let limiter = limits.plan().limits[limit].source.limiter(&which);
                self.holds.get_or_insert_with(|| BodyHolds::of(limits)).add(limit, Paced::new(limiter, key));
                None
            }
            LimitFinding::Nothing(_) => None,
            LimitFinding::Refuses(stop) => Some(refused(limits, Some(limit), *stop)),
        }
    }

    /// The first limit that asks.
    pub(super) fn first(&self) -> Option<usize> {
        self.asks.iter().next().map(|asked| asked.limit)
    }

    /// Asks the store, now that all limits are known.
    pub(super) fn decide(&mut self, limits: &Limits, place: &mut Place) -> Then {
        if self.asks.is_empty() {
            self.try_out(limits);
            return Then::End(Ok(match self.trials.is_empty() {
                true => self.uncounted(limits),
                false => self.mark(limits, None),
            }));
        }
        if let Err(error) = self.asks.check(limits.plan()) {
            return refuse(limits, None, Stop::Mistake(error));
        }
        self.deciding(limits, self.asks.decide(limits.plan(), None), place)
    }

    /// Continues with the answer if it is there, or waits for it.
    pub(super) fn deciding(&mut self, limits: &Limits, deciding: DecisionFuture, place: &mut Place) -> Then {
        match deciding.now() {
            Ok(result) => self.decided(limits, result, place),
            Err(deciding) => Then::Decision(Box::new(deciding)),
        }
    }

    /// Continues with the answer.
    pub(super) fn decided(
        &mut self,
        limits: &Limits,
        result: Result<Decision, StoreError>,
        place: &mut Place,
    ) -> Then {
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => return refuse(limits, None, Stop::mistake(&error)),
        };
        if !decision.is_counted() {
            // No store counted, so there are no numbers to show, and no units to give back.
            return match decision.is_allowed() {
                true => {
                    let fields = self.trace(limits, &decision);
                    Then::End(Ok(traced(self.uncounted(limits), limits, fields)))
                }
                false => refuse(limits, None, Stop::Plain(RefusalReason::Outage)),
            };
        }
        let delay = decision.retry_after().unwrap_or_else(|| decision.delay());
        if decision.is_allowed() && delay.is_zero() {
            return Then::End(self.goes_on(limits, decision));
        }
        let policy = trace::is_on().then(|| self.asks.deciding(limits.plan(), &decision)).flatten();
        let fields = self.trace(limits, &decision).filter(|_| decision.is_allowed());
        match self.asks.turn(limits.plan(), decision) {
            Ok(turn) => match self.wait(limits, turn, delay, place) {
                Ok(turn) => Then::Turn(turn, WaitSpan::begin(policy.as_deref(), delay, fields)),
                Err(refused) => refused,
            },
            Err(refused) => refuse(limits, None, Stop::Decided(self.asks.label(limits.made(), refused))),
        }
    }

    /// The turn of a request that has a place in the queue, or its refusal.
    fn wait(&self, limits: &Limits, turn: Turn, delay: Duration, place: &mut Place) -> Result<Turn, Then> {
        if limits.waits().queue.enter(place) {
            return Ok(turn);
        }
        // A turn that is dropped is given back.
        drop(turn);
        Err(refuse(limits, self.first(), Stop::Plain(RefusalReason::QueueFull(delay))))
    }

    /// Lets the request through, at once or when its turn has come. Shadow policies are asked only now: a client that hangs up
    /// while it waits spends nothing of them.
    pub(super) fn goes_on(&mut self, limits: &Limits, decision: Decision) -> RequestEnd {
        self.try_out(limits);
        Ok(self.mark(limits, Some(decision)))
    }

    /// The marks for the response, if any. Limits that show nothing do not keep the decision.
    fn mark(&mut self, limits: &Limits, decision: Option<Decision>) -> Option<Box<Marked>> {
        let made = &limits.0.made;
        if !made.marks {
            let fields = decision.and_then(|decision| self.trace(limits, &decision));
            return traced(None, limits, fields);
        }
        let (asks, trials) = (mem::take(&mut self.asks), mem::take(&mut self.trials));
        let holds = self.holds.take();
        let marked = Marked::new(made, asks, decision, |asks| asks.policies(made), trials);
        Some(marked.holding(holds))
    }

    /// The decision for the span of the request, if that may want it.
    fn trace(&self, limits: &Limits, decision: &Decision) -> Option<TraceFields> {
        trace::is_wanted().then(|| TraceFields::new(self.asks.deciding(limits.plan(), decision), decision))
    }

    /// The marks of a request that no limit has counted, if its bodies are held or if it has a meter.
    fn uncounted(&mut self, limits: &Limits) -> Option<Box<Marked>> {
        match self.holds.take() {
            None => uncounted(limits),
            holds => Some(Box::new(Marked::of_nothing(&limits.0.made)).holding(holds)),
        }
    }

    /// Asks each policy that is only tried out on its own, as if it stood behind the others.
    fn try_out(&mut self, limits: &Limits) {
        for asked in self.tried.drain(..) {
            let trial = Arc::new(Trial::new(limits.plan(), asked));
            let deciding = trial.limiter.check(&trial.key).cost(trial.cost).start();
            limits.shadows().watch(&trial, deciding);
            self.trials.push(trial);
        }
    }
}

/// These marks, with the fields for the span of the request.
fn traced(marked: Option<Box<Marked>>, limits: &Limits, fields: Option<TraceFields>) -> Option<Box<Marked>> {
    let Some(fields) = fields else { return marked };
    let mut marked = marked.unwrap_or_else(|| Box::new(Marked::of_nothing(&limits.0.made)));
    marked.trace = RequestTrace::Fields(Box::new(fields));
    Some(marked)
}

/// Refuses the request, because of `limit` if a limit is the reason.
fn refuse(limits: &Limits, limit: Option<usize>, stop: Stop) -> Then {
    Then::End(Err(refused(limits, limit, stop)))
}
