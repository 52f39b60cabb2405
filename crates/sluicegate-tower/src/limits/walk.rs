//! The way through the limits: which of them apply to a request, and what each of them asks. To decide and to explain are
//! two uses of this one walk.

use std::task::{Context, Poll, ready};

use sluicegate_core::policy::PolicyMode;
use sluicegate_core::{Key, RateLimiter};
use smallvec::SmallVec;

use crate::guard::Place;
use crate::guard::lookup::{Lookup, Waits};
use crate::key::missing::Keyed;
use crate::key::{Extraction, MissingKey, RequestView};
use crate::limits::group::{Plan, Step, What};
use crate::limits::limit::Limit;
use crate::limits::pick::{Pick, Picking, Which};
use crate::respond::stop::Stop;

/// How far a request has come.
///
/// It goes on where it stopped when a look-up comes, and never asks a limit twice.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    next: usize,
    /// The members that functions have chosen and that are still to come, the next one last; those of a group above [`END`].
    chosen: SmallVec<[u32; 6]>,
    /// A key or a limiter of a limit before that.
    lookup: Option<Box<Pending>>,
}

/// No member comes after it.
const END: u32 = u32::MAX;

#[derive(Debug)]
enum Pending {
    Limiter(usize, Lookup<Picking>, u64),
    Key(usize, Lookup<Extraction>, Which, u64),
}

/// Whose bucket of which limiter of a limit, and for how much.
///
/// It names the limiter by its place in the plan, so that nothing is cloned for a request that is
/// decided at once.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The place of the limit.
    pub(crate) limit: usize,
    pub(crate) which: Which,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

/// The ask of the limit in this place for a request.
pub(crate) struct Found {
    pub(crate) limit: usize,
    pub(crate) finding: Finding,
}

pub(crate) enum Finding {
    /// So much, of this limiter and key; and whether the answer is enforced, or only tried out.
    Asks { which: Which, key: Key, cost: u64, is_enforced: bool },
    /// Nothing, and why.
    Nothing(WhyNot),
    /// The request is refused.
    Refuses(Box<Stop>),
}

/// Why a limit asks nothing.
#[derive(Debug)]
pub(crate) enum WhyNot {
    /// One of its conditions does not hold.
    Condition,
    /// The request costs 0.
    Free,
    /// Its tier, or what was chosen for it, is unlimited.
    Unlimited,
    /// Its policy is off.
    Off,
    /// Its key is missing, and such requests are let through.
    NoKey(MissingKey),
    /// It cannot be asked, and refuses no request for that, because it is only tried out.
    TriedOut(Box<Stop>),
}

/// The next thing that is known of a walk.
pub(crate) enum Next {
    Found(Found),
    /// It has to be waited for.
    Waits,
    End,
}

/// The first thing that is known of a request.
pub(crate) enum First {
    /// Its only ask.
    Only(Asked),
    Other(Walk, Next),
}

impl Walk {
    /// The first limit, as far as it is known at once. Where nothing but the key depends on the request, that is all that is looked
    /// for.
    #[inline]
    pub(crate) fn first(plan: &Plan, request: RequestView<'_>) -> First {
        let which = Which::Known(0);
        let Some((limit, cost)) =
            plan.plain().filter(|(limit, _)| limit.mode(Some(&which)) == PolicyMode::Enforce)
        else {
            return Self::first_of_several(plan, request);
        };
        match limit.key.extract(request).now() {
            Ok(Ok(mut key)) => {
                key.set_kind(limit.kind);
                First::Only(Asked { limit: 0, which, key, cost })
            }
            key => Self::first_without_key((limit, cost), key),
        }
    }

    #[inline(never)]
    fn first_of_several(plan: &Plan, request: RequestView<'_>) -> First {
        let mut walk = Self::default();
        match walk.next(plan, request) {
            Next::Found(Found { limit, finding: Finding::Asks { which, key, cost, is_enforced: true } })
                if walk.is_over(plan) =>
            {
                First::Only(Asked { limit, which, key, cost })
            }
            next => First::Other(walk, next),
        }
    }

    #[cold]
    fn first_without_key(
        (limit, cost): (&Limit, u64),
        key: Result<Result<Key, MissingKey>, Extraction>,
    ) -> First {
        let mut walk = Self { next: 1, ..Self::default() };
        let next = walk.extracted((0, limit, PolicyMode::Enforce), (Which::Known(0), cost), key);
        First::Other(walk, next)
    }

    /// The next limit, as far as it is known at once.
    #[inline]
    pub(crate) fn next(&mut self, plan: &Plan, request: RequestView<'_>) -> Next {
        while let Some(step) = plan.steps.get(self.next) {
            let What::Limit(index) = step.what else {
                self.next = self.step_of_group(plan, step, request);
                continue;
            };
            let limit = &plan.limits[index];
            if !limit.applies_to(request) {
                self.next = step.missed;
                return found(index, Finding::Nothing(WhyNot::Condition));
            }
            self.next = step.matched;
            let cost = limit.cost_of(request);
            if cost == 0 {
                return found(index, Finding::Nothing(WhyNot::Free));
            }
            if limit.is_off() {
                return found(index, Finding::Nothing(WhyNot::Off));
            }
            return match limit.source.pick(request) {
                Ok(pick) => self.picked((index, limit), pick, cost, request),
                Err(picking) => self.wait(Pending::Limiter(index, Lookup::new(picking), cost)),
            };
        }
        Next::End
    }

    /// The step after one that asks no limit.
    #[inline(never)]
    fn step_of_group(&mut self, plan: &Plan, step: &Step, request: RequestView<'_>) -> usize {
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

    /// Takes note of the members that were chosen, and says where to go from there.
    fn choose(&mut self, members: &[u32], count: usize, step: &Step) -> usize {
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
    fn next_chosen(&mut self, plan: &Plan, choice: usize, step: &Step) -> usize {
        let member = self.chosen.pop().and_then(|member| usize::try_from(member).ok());
        match &plan.steps[choice].what {
            What::Select(_, members) => {
                member.and_then(|member| members.get(member)).map_or(step.matched, |member| member.begin)
            }
            _ => step.matched,
        }
    }

    /// Whether no limit is left.
    fn is_over(&mut self, plan: &Plan) -> bool {
        while let Some(Step { what: What::Next(_), matched, .. }) = plan.steps.get(self.next) {
            if self.chosen.last() != Some(&END) {
                return false;
            }
            self.chosen.pop();
            self.next = *matched;
        }
        self.next >= plan.steps.len()
    }

    /// Waits for the limit whose key or limiter is being looked up, and is then the same.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        (plan, request): (&Plan, RequestView<'_>),
        waits: &Waits,
        place: &mut Place,
    ) -> Poll<Next> {
        let next = match self.lookup.as_deref_mut() {
            None => return Poll::Ready(self.next(plan, request)),
            Some(Pending::Limiter(index, lookup, cost)) => {
                let (index, cost) = (*index, *cost);
                match ready!(lookup.poll(cx, waits, place)) {
                    Ok(pick) => {
                        self.lookup = None;
                        return Poll::Ready(self.picked((index, &plan.limits[index]), pick, cost, request));
                    }
                    Err(reason) => {
                        found(index, refusing(plan.limits[index].mode(None), Stop::Plain(reason.into())))
                    }
                }
            }
            Some(Pending::Key(index, lookup, which, cost)) => {
                let key = ready!(lookup.poll(cx, waits, place));
                let limit = &plan.limits[*index];
                let mode = limit.mode(Some(which));
                found(
                    *index,
                    match key {
                        Ok(key) => with_key((limit, mode), which.clone(), *cost, key),
                        Err(reason) => refusing(mode, Stop::Plain(reason.into())),
                    },
                )
            }
        };
        self.lookup = None;
        Poll::Ready(next)
    }

    /// With the limiter, on to the key.
    #[inline]
    fn picked(
        &mut self,
        (index, limit): (usize, &Limit),
        pick: Pick,
        cost: u64,
        request: RequestView<'_>,
    ) -> Next {
        let finding = match pick {
            Pick::Limiter(which) => match limit.mode(Some(&which)) {
                PolicyMode::Off => Finding::Nothing(WhyNot::Off),
                mode => {
                    let key = limit.key.extract(request).now();
                    return self.extracted((index, limit, mode), (which, cost), key);
                }
            },
            Pick::Unlimited => Finding::Nothing(WhyNot::Unlimited),
            Pick::Refused(status) => refusing(limit.mode(None), Stop::unknown_tier(status)),
            Pick::Mistake(error) => refusing(limit.mode(None), Stop::Mistake(error)),
        };
        found(index, finding)
    }

    /// With the extractor's answer, to the ask.
    fn extracted(
        &mut self,
        (index, limit, mode): (usize, &Limit, PolicyMode),
        (which, cost): (Which, u64),
        key: Result<Result<Key, MissingKey>, Extraction>,
    ) -> Next {
        match key {
            Ok(key) => found(index, with_key((limit, mode), which, cost, key)),
            Err(pending) => self.wait(Pending::Key(index, Lookup::new(pending), which, cost)),
        }
    }

    fn wait(&mut self, lookup: Pending) -> Next {
        self.lookup = Some(Box::new(lookup));
        Next::Waits
    }
}

impl Asked {
    #[inline]
    pub(crate) fn limiter<'a>(&'a self, plan: &'a Plan) -> &'a RateLimiter {
        plan.limits[self.limit].source.limiter(&self.which)
    }
}

/// The ask of the limit, now that its key was looked for.
#[inline]
fn with_key(
    (limit, mode): (&Limit, PolicyMode),
    which: Which,
    cost: u64,
    key: Result<Key, MissingKey>,
) -> Finding {
    let key = match key {
        Ok(mut key) => {
            key.set_kind(limit.kind);
            key
        }
        Err(missing) => match limit.when_missing.treat(missing, || limit.title()) {
            Keyed::Key(shared) => shared,
            Keyed::Skipped(missing) => return Finding::Nothing(WhyNot::NoKey(missing)),
            Keyed::Rejected(missing, status) => return refusing(mode, Stop::MissingKey(missing, status)),
        },
    };
    Finding::Asks { which, key, cost, is_enforced: mode == PolicyMode::Enforce }
}

/// Only a limit that is enforced refuses a request.
fn refusing(mode: PolicyMode, why: Stop) -> Finding {
    match mode {
        PolicyMode::Enforce => Finding::Refuses(Box::new(why)),
        PolicyMode::Off => Finding::Nothing(WhyNot::Off),
        _ => Finding::Nothing(WhyNot::TriedOut(Box::new(why))),
    }
}

#[inline]
fn found(limit: usize, finding: Finding) -> Next {
    Next::Found(Found { limit, finding })
}
