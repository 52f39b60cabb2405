//! The way of a request to its decision: keys, verdict, turn. Each step is taken at once where it can be.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use http::header::RETRY_AFTER;
use http::request::Parts;
use sluicegate_core::{Basis, Decision, Key, Mode, OnOutage, RateLimiter, StoreError, Turn, Verdict};
use smallvec::SmallVec;

use crate::headers::{self, forbid_caching};
use crate::key::{Extraction, MissingKey};
use crate::layer::Shared;
use crate::limit::OnMissingKey;
use crate::refusal::{Reason, Refusal, Respond};

/// The limits that a request was found to be subject to, so far.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    asked: SmallVec<[Asked; 1]>,
    /// The limit whose key comes next.
    next: usize,
}

/// Whose bucket of a limit, and for how much.
#[derive(Debug)]
struct Asked {
    limit: usize,
    key: Key,
    cost: u64,
}

/// What has to be waited for.
#[derive(Debug)]
pub(crate) enum Step {
    Key(Extraction),
    Verdict(Verdict),
    Turn(Turn, Decision),
}

/// What the response of the inner service is to be marked with. In a box, for it is large and goes through many hands.
#[derive(Debug)]
pub(crate) struct Marked {
    gate: Gate,
    pub(crate) decision: Decision,
}

/// What a step led to.
pub(crate) enum Next<B> {
    /// On to the inner service; with a decision, if the response is to be marked with it.
    Go(Option<Box<Marked>>),
    Refuse(Response<B>),
    /// In a box, for it is large and rare.
    Wait(Box<Step>),
}

impl Gate {
    /// Goes as far as it can without waiting.
    pub(crate) fn enter<R: Respond<B>, B>(&mut self, shared: &Shared<R>, parts: &Parts) -> Next<B> {
        while let Some(limit) = shared.limits.get(self.next) {
            match limit.key.extract(parts).now() {
                Ok(found) => {
                    if let Some(refused) = self.found(shared, parts, found) {
                        return refused;
                    }
                }
                Err(pending) => return Next::Wait(Box::new(Step::Key(pending))),
            }
        }
        if self.asked.is_empty() {
            return Next::Go(None);
        }
        let verdict = RateLimiter::decide_all(self.asks(shared, None));
        if !shared.marks_responses()
            && let Some(Ok(decision)) = verdict.known()
            && decision.is_allowed()
            && decision.delay().is_zero()
        {
            // As `pass`, without taking the decision out of the verdict.
            return Next::Go(None);
        }
        match verdict.now() {
            Ok(result) => self.decided(shared, parts, result),
            Err(verdict) => Next::Wait(Box::new(Step::Verdict(verdict))),
        }
    }

    /// Waits for a step, and goes on from there as far as it can.
    pub(crate) fn poll<R: Respond<B>, B>(
        &mut self,
        step: &mut Step,
        cx: &mut Context<'_>,
        shared: &Shared<R>,
        parts: &Parts,
    ) -> Poll<Next<B>> {
        loop {
            let next = match step {
                Step::Key(extraction) => {
                    let found = ready!(Pin::new(extraction).poll(cx));
                    match self.found(shared, parts, found) {
                        None => self.enter(shared, parts),
                        Some(refused) => refused,
                    }
                }
                Step::Verdict(verdict) => {
                    let result = ready!(Pin::new(verdict).poll(cx));
                    self.decided(shared, parts, result)
                }
                Step::Turn(turn, decision) => {
                    ready!(Pin::new(turn).poll(cx));
                    let decision = decision.clone().later(decision.delay());
                    self.pass(shared, decision)
                }
            };
            match next {
                Next::Wait(following) => *step = *following,
                next => return Poll::Ready(next),
            }
        }
    }

    /// Takes note of the next limit's key, or of its absence, for which the request may be refused.
    fn found<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        parts: &Parts,
        found: Result<Key, MissingKey>,
    ) -> Option<Next<B>> {
        let limit = &shared.limits[self.next];
        let rejected = found.as_ref().err().and_then(MissingKey::reject).map(OnMissingKey::Reject);
        let key = match (found, rejected.unwrap_or(limit.on_missing_key)) {
            (Ok(key), _) => Some(key),
            (Err(missing), OnMissingKey::Share) => {
                limit.warn_once(&missing);
                Some(Key::shared())
            }
            (Err(_), OnMissingKey::Skip) => None,
            (Err(missing), OnMissingKey::Reject(status)) => {
                return Some(refuse(shared, parts, Reason::MissingKey(&missing, status)));
            }
        };
        if let Some(key) = key {
            self.asked.push(Asked { limit: self.next, key, cost: limit.cost });
        }
        self.next += 1;
        None
    }

    fn decided<R: Respond<B>, B>(
        &mut self,
        shared: &Shared<R>,
        parts: &Parts,
        result: Result<Decision, StoreError>,
    ) -> Next<B> {
        let mut decision = match result {
            Ok(decision) => decision,
            Err(error) => {
                let denies = self.denies_in_an_outage(shared);
                shared.report(&error, denies);
                return if denies {
                    refuse(shared, parts, Reason::Outage(Some(&error)))
                } else {
                    Next::Go(None)
                };
            }
        };
        if decision.basis() == Basis::Outage {
            // Nobody counted, so there are no numbers to show, and nothing was spent that could be given back.
            return match decision.is_allowed() {
                true => Next::Go(None),
                false => refuse(shared, parts, Reason::Outage(None)),
            };
        }
        if !decision.is_allowed() {
            self.label(shared, &mut decision);
            let refusal = Refusal::of(&decision, parts);
            let mut response = answer(shared, &refusal);
            if shared.extensions {
                response.extensions_mut().insert(decision);
            }
            return Next::Refuse(response);
        }
        let delay = decision.delay();
        if delay.is_zero() {
            return self.pass(shared, decision);
        }
        let limits = self.asked.iter().map(|asked| {
            let limiter = shared.limits[asked.limit].limiter.clone();
            (limiter, asked.key.clone(), asked.cost)
        });
        Next::Wait(Box::new(Step::Turn(Turn::new(delay, limits), decision)))
    }

    /// Whether one of the policies that were asked refuses while the store cannot be reached. A store that hands its
    /// errors on decides nothing by itself, so [`OnOutage::Local`] lets pass here.
    fn denies_in_an_outage<R>(&self, shared: &Shared<R>) -> bool {
        let plan = shared.plan();
        self.asked.iter().any(|asked| plan.policies[asked.limit].on_outage() == OnOutage::Deny)
    }

    /// On to the inner service. A layer that shows nothing does not even hold on to what was decided.
    fn pass<R, B>(&mut self, shared: &Shared<R>, mut decision: Decision) -> Next<B> {
        if !shared.marks_responses() {
            return Next::Go(None);
        }
        self.label(shared, &mut decision);
        Next::Go(Some(Box::new(Marked { gate: mem::take(self), decision })))
    }

    /// The decision with the names of its policies.
    fn label<R>(&self, shared: &Shared<R>, decision: &mut Decision) {
        let plan = shared.plan();
        if self.asked.len() == shared.limits.len() {
            return decision.set_policies(Arc::clone(&plan.policies));
        }
        decision
            .set_policies(self.asked.iter().map(|asked| Arc::clone(&plan.policies[asked.limit])).collect());
    }

    /// Gives back what `decision` spent, and says where that leaves the request's keys if that is known at once.
    fn give_back<R>(&self, shared: &Shared<R>, decision: &Decision) -> Option<Decision> {
        let mode = Mode::Refund { spent_us: Some(decision.spent_us()) };
        let verdict = RateLimiter::decide_all(self.asks(shared, Some(mode)));
        let mut decision = verdict.now().ok()?.ok()?;
        self.label(shared, &mut decision);
        Some(decision)
    }

    fn asks<'a, R>(
        &'a self,
        shared: &'a Shared<R>,
        mode: Option<Mode>,
    ) -> impl Iterator<Item = (&'a RateLimiter, &'a Key, u64, Option<Mode>)> {
        self.asked
            .iter()
            .map(move |asked| (&shared.limits[asked.limit].limiter, &asked.key, asked.cost, mode))
    }
}

impl Marked {
    /// Marks the response of the inner service with where the client stands.
    pub(crate) fn mark<R, B>(self: Box<Self>, shared: &Shared<R>, response: &mut Response<B>) {
        let Self { gate, decision } = *self;
        let inner = response.extensions_mut().remove::<Decision>();
        let shown = match &inner {
            None => decision,
            Some(inner) if inner.is_allowed() => decision.merge(inner),
            // A limit behind this one refused: this one has let nothing through, so it has nothing to charge for.
            Some(inner) => gate.give_back(shared, &decision).unwrap_or(decision).merge(inner),
        };
        headers::write(response.headers_mut(), shared.headers, &shown, &shared.plan());
        // For layers further out: what all of them know together, or what was there before.
        let left = if shared.extensions { Some(shown) } else { inner };
        if let Some(decision) = left {
            response.extensions_mut().insert(decision);
        }
    }
}

fn refuse<R: Respond<B>, B>(shared: &Shared<R>, parts: &Parts, reason: Reason<'_>) -> Next<B> {
    Next::Refuse(answer(shared, &Refusal { reason, parts }))
}

fn answer<R: Respond<B>, B>(shared: &Shared<R>, refusal: &Refusal<'_>) -> Response<B> {
    let mut response = shared.respond.respond(refusal);
    forbid_caching(response.headers_mut());
    if let Some(decision) = refusal.decision() {
        headers::write(response.headers_mut(), shared.headers, decision, &shared.plan());
    } else if let Some(seconds) = refusal.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}
