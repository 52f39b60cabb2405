//! What is decided once it is known what a request asks for, and what follows from that.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::limiter::Turn;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Decision, RateLimiter, StoreError};

use crate::key::RequestView;
use crate::rate_limit::decided::Decided;
use crate::rate_limit::gate::{Gate, Next, Step};
use crate::rate_limit::mark::Marked;
use crate::rate_limit::meter::Meter;
use crate::rate_limit::shared::Shared;
use crate::rate_limit::trial::Trial;
use crate::respond::refusal::{Refusal, RefusalReason, Respond, answer};

impl Gate {
    pub(crate) fn decide<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        request: RequestView<'_>,
    ) -> Next<B> {
        if self.asks.is_empty() {
            self.try_out(shared);
            return match self.trials.is_empty() || !shared.marks_responses() {
                true => Next::Go(None),
                false => self.go(shared, None),
            };
        }
        let verdict = self.asks.decide(&shared.slots);
        if !shared.marks_responses()
            && self.tried.is_empty()
            && let Some(Ok(decision)) = verdict.known()
            && decision.is_allowed()
            && decision.delay().is_zero()
        {
            // As `pass`, without taking the decision out of the verdict.
            return Next::Go(None);
        }
        match verdict.now() {
            Ok(result) => self.decided(shared, request, result),
            Err(verdict) => Next::Wait(Box::new(Step::Decision(Box::new(verdict)))),
        }
    }

    pub(crate) fn decided<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        request: RequestView<'_>,
        result: Result<Decision, StoreError>,
    ) -> Next<B> {
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => {
                let denies = self.asks.denies_in_an_outage(shared);
                shared.report(&error, denies);
                return if denies {
                    refuse(shared, request, RefusalReason::Outage(Some(&error)))
                } else {
                    Next::Go(None)
                };
            }
        };
        if decision.decided_by() == DecidedBy::Outage {
            // Nobody counted, so there are no numbers to show, and nothing was spent that could be given back.
            return match decision.is_allowed() {
                true => Next::Go(None),
                false => refuse(shared, request, RefusalReason::Outage(None)),
            };
        }
        if !decision.is_allowed() {
            if let Some(turn) = self.asks.turn_left(shared, &decision) {
                return self.wait(shared, request, turn, decision.retry_after().unwrap_or_default());
            }
            let decided = self.asks.label(shared, decision);
            let mut response = answer(shared, &Refusal::of(&decided, request));
            if shared.extensions {
                response.extensions_mut().insert(decided);
            }
            return Next::Refuse(response);
        }
        let delay = decision.delay();
        if delay.is_zero() {
            self.try_out(shared);
            return self.pass(shared, decision);
        }
        let turn = self.asks.turn(&shared.slots, decision);
        self.wait(shared, request, turn, delay)
    }

    fn wait<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        request: RequestView<'_>,
        turn: Turn,
        delay: Duration,
    ) -> Next<B> {
        if shared.waits.queue.enter(&mut self.place) {
            return Next::Wait(Box::new(Step::Turn(turn)));
        }
        // A turn that is dropped is given back.
        drop(turn);
        refuse(shared, request, RefusalReason::QueueFull(delay))
    }

    /// On to the inner service. A layer that shows nothing does not even hold on to what was decided.
    pub(crate) fn pass<R, B>(&mut self, shared: &Shared<R>, decision: Decision) -> Next<B> {
        if !shared.marks_responses() {
            return Next::Go(None);
        }
        let decided = self.asks.label(shared, decision);
        self.go(shared, Some(decided))
    }

    fn go<R, B>(&mut self, shared: &Shared<R>, mut decided: Option<Decided>) -> Next<B> {
        let (asks, trials) = (mem::take(&mut self.asks), mem::take(&mut self.trials));
        let decision = decided.as_mut().map(|decided| &mut decided.decision);
        let meter = shared.meters.then(|| Meter::of_request(shared, &asks, decision, &trials));
        Next::Go(Some(Box::new(Marked { asks, decided, trials, meter })))
    }

    /// Asks each policy that is only tried out on its own, as if it stood behind the others.
    pub(crate) fn try_out<R>(&mut self, shared: &Shared<R>) {
        for asked in self.tried.drain(..) {
            let trial = Arc::new(Trial::new(&shared.slots, asked));
            let verdict = RateLimiter::check_all([(&trial.limiter, &trial.key, trial.cost)]);
            shared.shadows.watch(&trial, &shared.plan().policies[trial.slot], verdict);
            self.trials.push(trial);
        }
    }
}

pub(crate) fn refuse<R: Respond<B>, B>(
    shared: &Shared<R>,
    request: RequestView<'_>,
    reason: RefusalReason<'_>,
) -> Next<B> {
    Next::Refuse(answer(shared, &Refusal::new(reason, request)))
}
