//! The walk of a request through the limits: which limits apply, and what each asks. Decisions and explanations share
//! this walk.

use std::task::{Context, Poll, ready};

use sluicegate_core::Key;
use sluicegate_core::policy::PolicyMode;
use smallvec::SmallVec;

use crate::guard::Place;
use crate::guard::lookup::{Lookup, Waits};
use crate::key::{Extraction, MissingKey, RequestView};
use crate::limits::finding::{LimitFinding, WhyNot};
use crate::limits::limit::Limit;
use crate::limits::of_request::PendingValue;
use crate::limits::pick::{Pick, Which};
use crate::limits::plan::{LimitPlan, PlanStep, What};
use crate::respond::stop::Stop;

/// The progress of a request through the limits.
///
/// It continues where it stopped when a look-up comes, and never asks a limit twice.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    next: usize,
    /// The chosen members that are still to come, the next one last; the members of each group are above an [`END`].
    chosen: SmallVec<[u32; 6]>,
    /// The pending key or limiter of the limit before.
    lookup: Option<Box<PendingLookup>>,
}

/// Marks the end of a group's members.
const END: u32 = u32::MAX;

#[derive(Debug)]
enum PendingLookup {
    Limiter(usize, Lookup<PendingValue<Pick>>, u64),
    Key(usize, Lookup<Extraction>, Which, u64),
}

/// The next result of a walk.
pub(crate) enum WalkStep {
    /// The finding of the limit in this place.
    Found(usize, LimitFinding),
    /// The walk has to wait.
    Waits,
    End,
}

impl Walk {
    /// A walk behind the only limit of a plan, whose key is missing or has to be waited for.
    pub(crate) fn behind_plain(
        plan: &LimitPlan,
        cost: u64,
        key: Result<Result<Key, MissingKey>, Extraction>,
    ) -> (Self, WalkStep) {
        let mut walk = Self { next: 1, ..Self::default() };
        let limit = (0, &plan.limits[0], PolicyMode::Enforce);
        let next = walk.extracted(limit, (Which::Known(0), cost), key);
        (walk, next)
    }

    /// The next limit, if it is known at once.
    #[inline]
    pub(crate) fn next(&mut self, plan: &LimitPlan, request: RequestView<'_>) -> WalkStep {
        while let Some(step) = plan.steps.get(self.next) {
            let What::Limit(index) = step.what else {
                self.next = self.step_of_group(plan, step, request);
                continue;
            };
            let limit = &plan.limits[index];
            if !limit.applies_to(request) {
                self.next = step.missed;
                return WalkStep::Found(index, LimitFinding::Nothing(WhyNot::Condition));
            }
            self.next = step.matched;
            let cost = limit.cost_of(request);
            if cost == 0 {
                return WalkStep::Found(index, LimitFinding::Nothing(WhyNot::Free));
            }
            if limit.is_off() {
                return WalkStep::Found(index, LimitFinding::Nothing(WhyNot::Off));
            }
            return match limit.source.pick(request) {
                Ok(pick) => self.picked((index, limit), pick, cost, request),
                Err(picking) => self.wait(PendingLookup::Limiter(index, Lookup::new(picking), cost)),
            };
        }
        WalkStep::End
    }

    /// The step after one that asks no limit.
    #[inline(never)]
    fn step_of_group(&mut self, plan: &LimitPlan, step: &PlanStep, request: RequestView<'_>) -> usize {
        match &step.what {
            What::Gate(only_if) if only_if.iter().all(|applies| applies(request)) => step.matched,
            What::Gate(_) => step.missed,
            What::Select(select, members) => {
                self.choose(&select.select(request).in_order(), members.len(), step)
            }
            What::Next(choice) => self.next_chosen(plan, *choice, step),
            What::Limit(_) => step.matched,
        }
    }

    /// Records the chosen members, and returns the next step.
    fn choose(&mut self, members: &[u32], count: usize, step: &PlanStep) -> usize {
        let are_there = |member: &&u32| usize::try_from(**member).is_ok_and(|member| member < count);
        let before = self.chosen.len();
        self.chosen.push(END);
        self.chosen.extend(members.iter().rev().filter(are_there).copied());
        if self.chosen.len() > before + 1 {
            return step.matched;
        }
        self.chosen.truncate(before);
        step.missed
    }

    /// The step after a member that was chosen.
    fn next_chosen(&mut self, plan: &LimitPlan, choice: usize, step: &PlanStep) -> usize {
        let member = self.chosen.pop().and_then(|member| usize::try_from(member).ok());
        match &plan.steps[choice].what {
            What::Select(_, members) => {
                member.and_then(|member| members.get(member)).map_or(step.matched, |member| member.begin)
            }
            _ => step.matched,
        }
    }

    /// Waits for the limit whose key or limiter is being looked up.
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
                        return Poll::Ready(self.picked((index, &plan.limits[index]), pick, cost, request));
                    }
                    Err(reason) => WalkStep::Found(
                        index,
                        LimitFinding::refusing(plan.limits[index].mode(None), Stop::Plain(reason.into())),
                    ),
                }
            }
            Some(PendingLookup::Key(index, lookup, which, cost)) => {
                let key = ready!(lookup.poll(cx, waits, place));
                let (index, limit) = (*index, &plan.limits[*index]);
                let mode = limit.mode(Some(which));
                WalkStep::Found(
                    index,
                    match key {
                        Ok(key) => LimitFinding::with_key((index, limit, mode), which.clone(), *cost, key),
                        Err(reason) => LimitFinding::refusing(mode, Stop::Plain(reason.into())),
                    },
                )
            }
        };
        self.lookup = None;
        Poll::Ready(next)
    }

    /// Continues with the limiter: extracts the key.
    #[inline]
    fn picked(
        &mut self,
        (index, limit): (usize, &Limit),
        pick: Pick,
        cost: u64,
        request: RequestView<'_>,
    ) -> WalkStep {
        let finding = match pick {
            Pick::Limiter(which) => match limit.mode(Some(&which)) {
                PolicyMode::Off => LimitFinding::Nothing(WhyNot::Off),
                mode => {
                    let key = limit.key.extract(request).now();
                    return self.extracted((index, limit, mode), (which, cost), key);
                }
            },
            Pick::Unlimited => LimitFinding::Nothing(WhyNot::Unlimited),
            Pick::Refused(status) => LimitFinding::refusing(limit.mode(None), Stop::unknown_tier(status)),
            Pick::Mistake(error) => LimitFinding::refusing(limit.mode(None), Stop::Mistake(error)),
        };
        WalkStep::Found(index, finding)
    }

    /// Continues with the extractor's answer: makes the ask.
    fn extracted(
        &mut self,
        (index, limit, mode): (usize, &Limit, PolicyMode),
        (which, cost): (Which, u64),
        key: Result<Result<Key, MissingKey>, Extraction>,
    ) -> WalkStep {
        match key {
            Ok(key) => WalkStep::Found(index, LimitFinding::with_key((index, limit, mode), which, cost, key)),
            Err(pending) => self.wait(PendingLookup::Key(index, Lookup::new(pending), which, cost)),
        }
    }

    fn wait(&mut self, lookup: PendingLookup) -> WalkStep {
        self.lookup = Some(Box::new(lookup));
        WalkStep::Waits
    }
}
