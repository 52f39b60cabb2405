//! The order in which a request meets limits: [`LimitPlan`].
//!
//! Groups are laid out flat, each step with its two exits, so that no request walks a tree.

use std::fmt;
use std::ops::Range;

use crate::limits::group::{Choose, Group, GroupMember, MemberChoice};
use crate::limits::limit::Limit;
use crate::limits::predicate::Predicate;
use crate::limits::select::Select;

/// The limits of a group in order, and the transitions between them.
#[derive(Debug)]
pub(crate) struct LimitPlan {
    pub(crate) limits: Box<[Limit]>,
    pub(crate) steps: Box<[PlanStep]>,
}

/// A limit or the conditions of a group, and the next steps.
pub(crate) struct PlanStep {
    pub(crate) what: What,
    /// The next step if the conditions hold.
    pub(crate) matched: usize,
    /// The next step if the conditions do not hold.
    pub(crate) missed: usize,
}

pub(crate) enum What {
    /// The limit at this index.
    Limit(usize),
    Gate(Vec<Predicate>),
    /// A function chooses among these members.
    Select(Box<dyn Select>, Box<[Laid]>),
    /// Continues with the next member chosen in that step.
    Next(usize),
}

/// The position of a member.
pub(crate) struct Laid {
    /// Its first step.
    pub(crate) begin: usize,
    pub(crate) limits: Range<usize>,
}

/// Placeholders for the exits of steps if their group matches or does not, until the targets are known.
const MATCHED: usize = usize::MAX;
const MISSED: usize = usize::MAX - 1;

impl LimitPlan {
    /// The limits of this group, and the order in which a request meets them.
    pub(crate) fn of(group: Group) -> Self {
        let (mut limits, mut steps) = (Vec::new(), Vec::new());
        group.lay(&mut limits, &mut steps);
        let end = steps.len();
        for exit in steps.iter_mut().flat_map(PlanStep::exits) {
            *exit = (*exit).min(end);
        }
        Self { limits: limits.into(), steps: steps.into() }
    }

    /// Whether it is one limit on requests that applies to every request.
    pub(crate) fn is_one(&self) -> bool {
        matches!(&*self.limits, [only] if self.steps.len() == 1 && only.is_unconditional() && only.bandwidth.is_none())
    }
}

impl PlanStep {
    fn exits(&mut self) -> [&mut usize; 2] {
        [&mut self.matched, &mut self.missed]
    }
}

impl Group {
    /// Appends the steps of this group. Exits that lead out of the group stay
    /// [`MATCHED`] and [`MISSED`].
    fn lay(self, limits: &mut Vec<Limit>, steps: &mut Vec<PlanStep>) {
        if !self.only_if.is_empty() {
            let matched = steps.len() + 1;
            steps.push(PlanStep { what: What::Gate(self.only_if), matched, missed: MISSED });
        }
        match self.choose {
            MemberChoice::Conditions(choose) => lay_in_turn(choose, self.members, limits, steps),
            MemberChoice::Function(select) => lay_selected(select, self.members, limits, steps),
        }
    }
}

impl GroupMember {
    fn lay(self, limits: &mut Vec<Limit>, steps: &mut Vec<PlanStep>) {
        match self {
            Self::Limit(limit) => {
                steps.push(PlanStep { what: What::Limit(limits.len()), matched: MATCHED, missed: MISSED });
                limits.push(*limit);
            }
            Self::Group(group) => group.lay(limits, steps),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Limit(_) => false,
            Self::Group(group) => group.members.iter().all(Self::is_empty),
        }
    }
}

/// Appends members that are checked one after the other.
fn lay_in_turn(
    choose: Choose,
    members: Vec<GroupMember>,
    limits: &mut Vec<Limit>,
    steps: &mut Vec<PlanStep>,
) {
    let mut members = members.into_iter().filter(|member| !member.is_empty()).peekable();
    while let Some(member) = members.next() {
        let begin = steps.len();
        member.lay(limits, steps);
        let (end, is_last) = (steps.len(), members.peek().is_none());
        for exit in steps[begin..].iter_mut().flat_map(PlanStep::exits) {
            *exit = match (*exit, choose) {
                (MATCHED | MISSED, Choose::All) if is_last => MATCHED,
                (MATCHED | MISSED, Choose::All) => end,
                (MISSED, Choose::First) if !is_last => end,
                (exit, _) => exit,
            };
        }
    }
}

/// Appends members that a function chooses: a step that chooses, then all members, each with exits to the last step, which continues
/// to the next chosen member.
fn lay_selected(
    select: Box<dyn Select>,
    members: Vec<GroupMember>,
    limits: &mut Vec<Limit>,
    steps: &mut Vec<PlanStep>,
) {
    let choice = steps.len();
    steps.push(PlanStep { what: What::Next(choice), matched: MATCHED, missed: MISSED });
    let mut laid = Vec::with_capacity(members.len());
    for member in members {
        let (begin, first) = (steps.len(), limits.len());
        if member.is_empty() {
            // It has no step of its own and is skipped.
            steps.push(PlanStep { what: What::Gate(Vec::new()), matched: MATCHED, missed: MISSED });
        } else {
            member.lay(limits, steps);
        }
        laid.push(Laid { begin, limits: first..limits.len() });
    }
    let next = steps.len();
    for exit in steps[choice + 1..].iter_mut().flat_map(PlanStep::exits).filter(|exit| **exit >= MISSED) {
        *exit = next;
    }
    steps[choice] = PlanStep { what: What::Select(select, laid.into()), matched: next, missed: MISSED };
    steps.push(PlanStep { what: What::Next(choice), matched: MATCHED, missed: MATCHED });
}

impl fmt::Debug for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({}, {})", self.matched, self.missed)
    }
}
