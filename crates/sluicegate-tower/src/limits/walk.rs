//! The walk of a request through the limits: which limits apply, and what each asks. Decisions and explanations share
//! this walk.

use smallvec::SmallVec;

use crate::key::RequestView;
use crate::limits::finding::{LimitFinding, WhyNot};
use crate::limits::lookup::{PendingLookup, extract};
use crate::limits::plan::{LimitPlan, PlanStep, What};

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
