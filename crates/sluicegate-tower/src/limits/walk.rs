//! The walk of a request through the limits: which limits apply, and what each asks. Decisions and explanations share
//! this walk.

use std::task::{Context, Poll, ready};

use sluicegate_core::Key;
use sluicegate_core::policy::PolicyMode;
use smallvec::SmallVec;

use crate::guard::Place;
use crate::guard::lookup::{Lookup, Waits};
use crate::key::{Extraction, MissingKey, RequestView};
use crate::limits::finding::{AskTerms, LimitFinding, WhyNot};
use crate::limits::limit::Limit;
use crate::limits::of_request::PendingValue;
use crate::limits::pick::{Pick, Which};
use crate::limits::plan::{LimitPlan, PlanStep, What};
use crate::respond::stop::Stop;

/// The progress of a request through the limits.
///
/// After a lookup it continues where it stopped, and it never asks a limit twice.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    next: usize,
    /// A limit after the last one that was asked, with conditions that are known to hold.
    ahead: Option<usize>,
    /// The first steps of the chosen members that are still to come, the next one last.
    chosen: SmallVec<[usize; 4]>,
    /// The pending key or limiter of the previous limit.
    lookup: Option<Box<PendingLookup>>,
}

#[derive(Debug)]
enum PendingLookup {
    Limiter(usize, Lookup<PendingValue<Pick>>, u64),
    Key(Lookup<Extraction>, AskTerms),
}

/// The next result of a walk.
pub(crate) enum WalkStep {
    /// The finding of the limit at this index.
    Found(usize, LimitFinding),
    /// The walk has to wait.
    Waits,
    End,
}

impl Walk {
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
            Some((limit, true)) => {
                let terms = self.terms(plan, limit, request);
                self.extract(plan, terms, request)
            }
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

    /// The terms of a limit with conditions that hold, if everything except its key is known; otherwise the step.
    #[inline]
    pub(crate) fn terms(
        &mut self,
        plan: &LimitPlan,
        index: usize,
        request: RequestView<'_>,
    ) -> Result<AskTerms, WalkStep> {
        let limit = &plan.limits[index];
        let cost = limit.cost_of(request);
        if cost == 0 {
            return Err(WalkStep::Found(index, LimitFinding::Nothing(WhyNot::Free)));
        }
        if !limit.source.chooses() {
            return terms_of((index, limit), Which::Known(0), cost);
        }
        self.choose_limiter((index, limit), cost, request)
    }

    /// The terms of a limit that chooses its limiter by the request.
    #[inline(never)]
    fn choose_limiter(
        &mut self,
        (index, limit): (usize, &Limit),
        cost: u64,
        request: RequestView<'_>,
    ) -> Result<AskTerms, WalkStep> {
        if limit.is_off() {
            return Err(WalkStep::Found(index, LimitFinding::Nothing(WhyNot::Off)));
        }
        match limit.source.pick(request) {
            Ok(pick) => picked((index, limit), pick, cost),
            Err(picking) => Err(self.wait(PendingLookup::Limiter(index, Lookup::new(picking), cost))),
        }
    }

    /// Continues with the terms of a limit: extracts the key.
    fn extract(
        &mut self,
        plan: &LimitPlan,
        terms: Result<AskTerms, WalkStep>,
        request: RequestView<'_>,
    ) -> WalkStep {
        match terms {
            Ok(terms) => {
                let key = plan.limits[terms.limit].key.extract(request).now();
                self.keyed(plan, terms, key)
            }
            Err(next) => next,
        }
    }

    /// Continues with the extractor's answer: makes the ask.
    pub(crate) fn keyed(
        &mut self,
        plan: &LimitPlan,
        terms: AskTerms,
        key: Result<Result<Key, MissingKey>, Extraction>,
    ) -> WalkStep {
        match key {
            Ok(key) => WalkStep::Found(terms.limit, LimitFinding::with_key(plan, terms, key)),
            Err(pending) => self.wait(PendingLookup::Key(Lookup::new(pending), terms)),
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

    /// Waits for the limit with the pending key or limiter.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        (plan, request): (&LimitPlan, RequestView<'_>),
        waits: &Waits,
        place: &mut Place,
    ) -> Poll<WalkStep> {
        let next = match self.lookup.as_deref_mut() {
            None => return Poll::Ready(self.next(plan, request)),
            Some(PendingLookup::Limiter(index, lookup, cost)) => {
                let (index, cost) = (*index, *cost);
                match ready!(lookup.poll(cx, waits, place)) {
                    Ok(pick) => {
                        self.lookup = None;
                        let terms = picked((index, &plan.limits[index]), pick, cost);
                        return Poll::Ready(self.extract(plan, terms, request));
                    }
                    Err(reason) => WalkStep::Found(
                        index,
                        LimitFinding::refusing(plan.limits[index].mode(None), Stop::Plain(reason.into())),
                    ),
                }
            }
            Some(PendingLookup::Key(lookup, terms)) => {
                let key = ready!(lookup.poll(cx, waits, place));
                let finding = match key {
                    Ok(key) => LimitFinding::with_key(plan, terms.clone(), key),
                    Err(reason) => LimitFinding::refusing(terms.mode, Stop::Plain(reason.into())),
                };
                WalkStep::Found(terms.limit, finding)
            }
        };
        self.lookup = None;
        Poll::Ready(next)
    }

    fn wait(&mut self, lookup: PendingLookup) -> WalkStep {
        self.lookup = Some(Box::new(lookup));
        WalkStep::Waits
    }
}

/// Continues with the result of a choice.
fn picked((index, limit): (usize, &Limit), pick: Pick, cost: u64) -> Result<AskTerms, WalkStep> {
    let finding = match pick {
        Pick::Limiter(which) => return terms_of((index, limit), which, cost),
        Pick::Unlimited => LimitFinding::Nothing(WhyNot::Unlimited),
        Pick::Refused(status) => LimitFinding::refusing(limit.mode(None), Stop::unknown_tier(status)),
        Pick::Mistake(error) => LimitFinding::refusing(limit.mode(None), Stop::Mistake(error)),
    };
    Err(WalkStep::Found(index, finding))
}

/// Continues with the limiter.
#[inline]
fn terms_of((index, limit): (usize, &Limit), which: Which, cost: u64) -> Result<AskTerms, WalkStep> {
    match limit.mode(Some(&which)) {
        PolicyMode::Off => Err(WalkStep::Found(index, LimitFinding::Nothing(WhyNot::Off))),
        mode => Ok(AskTerms { limit: index, mode, which, cost }),
    }
}
