//! The walk of a request through the limits: which limits apply, what each asks ([`LimitFinding`]), and the wait for a key or a limiter
//! ([`PendingLookup`]). Decisions and explanations share this walk.

use std::mem;
use std::task::{Context, Poll, ready};

use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Key, RateLimiter};
use smallvec::SmallVec;

use crate::guard::Place;
use crate::guard::gate::{Lookup, Waits};
use crate::key::missing::Keyed;
use crate::key::{Extraction, MissingKey, RequestView};
use crate::limits::limit::Limit;
use crate::limits::of_request::PendingValue;
use crate::limits::plan::{LimitPlan, PlanStep, What};
use crate::limits::quotas::{Pick, Which};
use crate::respond::stop::Stop;

/// The progress of a request through the limits. It never asks a limit twice.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    next: usize,
    /// A limit after the last one that was asked, with conditions that are known to hold.
    ahead: Option<usize>,
    /// The first steps of the chosen members that are still to come, the next one last.
    chosen: SmallVec<[usize; 4]>,
}

/// The next result of a walk.
pub(crate) enum WalkStep {
    /// The finding of the limit at this index.
    Found(usize, LimitFinding),
    /// The walk has to wait for this.
    Waits(Box<PendingLookup>),
    End,
}

impl Walk {
    /// A walk after its last limit.
    pub(crate) fn over() -> Self {
        Self { next: usize::MAX, ..Self::default() }
    }

    /// The next limit with conditions that hold.
    #[inline]
    pub(crate) fn applying(&mut self, plan: &LimitPlan, request: RequestView<'_>) -> Option<usize> {
        loop {
            if let (limit, true) = self.come(plan, request)? {
                return Some(limit);
            }
        }
    }

    /// Whether another limit applies; it is then the next one.
    #[inline]
    pub(crate) fn goes_on(&mut self, plan: &LimitPlan, request: RequestView<'_>) -> bool {
        self.ahead = self.applying(plan, request);
        self.ahead.is_some()
    }

    /// The next limit, if it is known at once.
    #[inline]
    pub(crate) fn next(&mut self, plan: &LimitPlan, request: RequestView<'_>) -> WalkStep {
        let next = match self.ahead.take() {
            Some(limit) => Some((limit, true)),
            None => self.come(plan, request),
        };
        match next {
            Some((limit, true)) => extract(plan, plan.limits[limit].terms(limit, &request), request),
            Some((limit, false)) => WalkStep::Found(limit, LimitFinding::Nothing(WhyNot::Condition)),
            None => WalkStep::End,
        }
    }

    /// Moves to the next limit, and returns whether its conditions hold.
    #[inline]
    fn come(&mut self, plan: &LimitPlan, request: RequestView<'_>) -> Option<(usize, bool)> {
        loop {
            let step = plan.steps.get(self.next)?;
            let limit = match step.what {
                What::Limit(limit) => limit,
                What::Next(_) if self.chosen.is_empty() => {
                    self.next = step.matched;
                    continue;
                }
                _ => {
                    self.next = self.step_of_group(step, request);
                    continue;
                }
            };
            let applies = plan.limits[limit].applies_to(request);
            self.next = if applies { step.matched } else { step.missed };
            return Some((limit, applies));
        }
    }

    /// The step after a step that asks no limit.
    #[inline(never)]
    fn step_of_group(&mut self, step: &PlanStep, request: RequestView<'_>) -> usize {
        match &step.what {
            What::Gate(only_if) if only_if.iter().all(|applies| applies(request)) => step.matched,
            What::Gate(_) => step.missed,
            What::Select(select, members) => {
                let mut chosen = select.select(request);
                let Some((first, others)) = chosen.among(members.len()).split_first() else {
                    return step.missed;
                };
                let begin = |member: &u32| members[*member as usize].begin;
                others.iter().rev().for_each(|other| self.chosen.push(begin(other)));
                begin(first)
            }
            // Members of a group around this one begin before its choice, or after this step.
            What::Next(choice) => match self.chosen.last() {
                Some(begin) if (*choice..self.next).contains(begin) => {
                    self.chosen.pop().unwrap_or(step.matched)
                }
                _ => step.matched,
            },
            What::Limit(_) => step.matched,
        }
    }
}

/// The ask of a limit: its limiter, the key and the cost.
///
/// It names the limiter by its index in the plan, so that a request that is decided at once
/// clones nothing.
#[derive(Debug)]
pub(crate) struct RequestAsk {
    /// The index of the limit.
    pub(crate) limit: usize,
    pub(crate) which: Which,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

/// The ask of a limit, without the key.
#[derive(Debug)]
pub(crate) struct AskTerms {
    /// The index of the limit.
    pub(crate) limit: usize,
    pub(crate) which: Which,
    pub(crate) cost: u64,
}

/// The finding of a limit for a request.
pub(crate) enum LimitFinding {
    /// The limit asks this; the answer is enforced or in shadow.
    Asks { ask: RequestAsk, is_enforced: bool },
    /// The limit delays bodies of the request by this limiter and key; the cost has no meaning.
    Holds(RequestAsk),
    /// The limit asks nothing, for this reason.
    Nothing(WhyNot),
    /// The request is refused.
    Refuses(Box<Stop>),
}

/// The reason why a limit asks nothing.
#[derive(Debug)]
pub(crate) enum WhyNot {
    /// One of its conditions does not hold.
    Condition,
    /// The request costs 0.
    Free,
    /// Its tier or its chosen policy is unlimited.
    Unlimited,
    /// Its policy is off.
    Off,
    /// Its key is missing, and such requests pass.
    NoKey(MissingKey),
    /// It cannot be asked, but does not refuse the request, because it is in shadow.
    TriedOut(Box<Stop>),
}

impl RequestAsk {
    /// The ask with this key.
    #[inline]
    pub(crate) fn new(terms: AskTerms, key: Key) -> Self {
        let AskTerms { limit, which, cost } = terms;
        Self { limit, which, key, cost }
    }

    #[inline]
    pub(crate) fn limiter<'a>(&'a self, plan: &'a LimitPlan) -> &'a RateLimiter {
        plan.limits[self.limit].source.limiter(&self.which)
    }
}

impl AskTerms {
    #[inline]
    pub(crate) fn limiter<'a>(&'a self, plan: &'a LimitPlan) -> &'a RateLimiter {
        plan.limits[self.limit].source.limiter(&self.which)
    }

    /// The mode of the limiter's policy.
    pub(super) fn mode(&self, plan: &LimitPlan) -> PolicyMode {
        plan.limits[self.limit].mode(Some(&self.which))
    }

    /// Puts this key under the quotas that an operator has given to it, if any. The limit is the one of these terms.
    #[inline]
    pub(crate) fn give(&mut self, limit: &Limit, key: &Key) {
        let limiter = limit.source.limiter(&self.which);
        // No key has any under a policy that was never replaced.
        if limiter.replacements() > 0
            && let Some(given) = limiter.given(key.as_ref())
        {
            self.which = Which::Chosen(given);
        }
    }

    /// Moves them out; the rest must not be asked.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self { which: mem::replace(&mut self.which, Which::Known(0)), ..*self }
    }
}

impl LimitFinding {
    /// The finding of a limit after its key lookup.
    pub(super) fn with_key(plan: &LimitPlan, mut terms: AskTerms, key: Result<Key, MissingKey>) -> Self {
        let (limit, mode) = (&plan.limits[terms.limit], terms.mode(plan));
        let key = match key {
            Ok(mut key) => {
                key.set_kind(limit.kind);
                key
            }
            Err(missing) => match limit.when_missing.treat(missing, || limit.title()) {
                Keyed::Key(shared) => shared,
                Keyed::Skipped(missing) => return Self::Nothing(WhyNot::NoKey(missing)),
                Keyed::Rejected(missing, status) => {
                    return Self::refusing(mode, Stop::MissingKey(missing, status));
                }
            },
        };
        terms.give(limit, &key);
        let ask = RequestAsk::new(terms, key);
        match limit.bandwidth {
            Some(_) => Self::Holds(ask),
            None => Self::Asks { ask, is_enforced: mode == PolicyMode::Enforce },
        }
    }

    /// A refusal, if the limit is enforced.
    pub(super) fn refusing(mode: PolicyMode, why: Stop) -> Self {
        match mode {
            PolicyMode::Enforce => Self::Refuses(Box::new(why)),
            PolicyMode::Off => Self::Nothing(WhyNot::Off),
            _ => Self::Nothing(WhyNot::TriedOut(Box::new(why))),
        }
    }
}

/// The pending key or limiter of a limit.
#[derive(Debug)]
pub(crate) enum PendingLookup {
    /// The limiter of the limit at this index, for a request with this cost.
    Limiter(usize, Lookup<PendingValue<Pick>>, u64),
    Key(Lookup<Extraction>, AskTerms),
}

impl PendingLookup {
    /// Waits for it, and continues with its limit.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        (plan, request): (&LimitPlan, RequestView<'_>),
        waits: &Waits,
        place: &mut Place,
    ) -> Poll<WalkStep> {
        let (limit, finding) = match self {
            Self::Limiter(index, lookup, cost) => {
                let limit = &plan.limits[*index];
                match ready!(lookup.poll(cx, waits, place)) {
                    Ok(pick) => {
                        let terms = limit.picked(*index, pick, *cost);
                        return Poll::Ready(extract(plan, terms, request));
                    }
                    Err(reason) => {
                        (*index, LimitFinding::refusing(limit.mode(None), Stop::Plain(reason.into())))
                    }
                }
            }
            Self::Key(lookup, terms) => {
                let finding = match ready!(lookup.poll(cx, waits, place)) {
                    Ok(key) => LimitFinding::with_key(plan, terms.take(), key),
                    Err(reason) => LimitFinding::refusing(terms.mode(plan), Stop::Plain(reason.into())),
                };
                (terms.limit, finding)
            }
        };
        Poll::Ready(WalkStep::Found(limit, finding))
    }
}

/// Continues with the terms of a limit: extracts the key.
#[inline]
pub(crate) fn extract(
    plan: &LimitPlan,
    terms: Result<AskTerms, WalkStep>,
    request: RequestView<'_>,
) -> WalkStep {
    match terms {
        Ok(terms) => {
            let key = &plan.limits[terms.limit].key;
            keyed(plan, terms, || key.extract(request))
        }
        Err(next) => next,
    }
}

/// Continues with the extractor's answer, unless the policy is off: makes the ask.
pub(crate) fn keyed(plan: &LimitPlan, terms: AskTerms, extract: impl FnOnce() -> Extraction) -> WalkStep {
    if terms.mode(plan) == PolicyMode::Off {
        return WalkStep::Found(terms.limit, LimitFinding::Nothing(WhyNot::Off));
    }
    match extract().now() {
        Ok(key) => WalkStep::Found(terms.limit, LimitFinding::with_key(plan, terms, key)),
        Err(pending) => WalkStep::Waits(Box::new(PendingLookup::Key(Lookup::new(pending), terms))),
    }
}
