//! Limits that are chosen together: [`Group`].

use std::fmt;
use std::ops::Range;

use sluicegate_core::RateLimiter;

use crate::key::RequestView;
use crate::limits::into_group::IntoGroup;
use crate::limits::limit::{Limit, Plain};
use crate::limits::predicate::Predicate;
use crate::limits::select::Select;

/// How a [`Group`] chooses among its members.
///
/// The question is asked at each member in order, and conditions of limits behind the first match
/// are not even evaluated under [`First`](Self::First).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choose {
    /// All members whose conditions hold apply.
    All,
    /// The first member whose conditions hold applies, and no other.
    First,
}

/// Limits of which all apply, or only the first that matches; groups may stand in groups.
///
/// Whether a limit matches is said by its [`only_if`](Limit::only_if) alone: one that matches and then asks nothing, because
/// its tier is unlimited say, is still the first.
///
/// ```
/// use http::Method;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::{Limit, RateLimitLayer};
/// use sluicegate_tower::limits::{Choose, Group, method_in, path_in};
///
/// let store = MemoryStore::new();
/// let login = Limit::new(Policy::sliding_log("login", "5/min").on(&store)?).only_if(path_in(["/login"])?);
/// let writes = Limit::new(Policy::gcra("writes", "20/min").on(&store)?).only_if(method_in([Method::POST]));
/// let rest = Policy::gcra("rest", "200/min").on(&store)?;
///
/// // Everybody has 1,000 a minute; of the others, each request meets one.
/// let layer = RateLimitLayer::builder(Policy::gcra("flood", "1000/min").on(&store)?)
///     .and(Group::new(Choose::First).and(login).and(writes).and(rest))
///     .build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a group does nothing until it is put into a layer"]
pub struct Group {
    choose: By,
    only_if: Vec<Predicate>,
    members: Vec<Member>,
}

/// How members are chosen.
enum By {
    Conditions(Choose),
    Function(Box<dyn Select>),
}

enum Member {
    Limit(Box<Limit>),
    Group(Group),
}

impl Group {
    /// A group without members, which does nothing yet.
    pub fn new(choose: Choose) -> Self {
        Self::by(By::Conditions(choose))
    }

    /// A group whose members are chosen by one function: instead of asking each limit about its conditions, the function names
    /// the places of those that apply, all of them at once. Conditions of the members hold besides.
    pub fn select(select: impl Select) -> Self {
        Self::by(By::Function(Box::new(select)))
    }

    fn by(choose: By) -> Self {
        Self { choose, only_if: Vec::new(), members: Vec::new() }
    }

    /// Adds a limit or a group behind those that are there.
    pub fn and(mut self, member: impl IntoGroup) -> Self {
        let mut member = member.into_group();
        let member = match member.members.pop() {
            Some(only) if member.members.is_empty() && member.is_as(&only) => only,
            last => {
                member.members.extend(last);
                Member::Group(member)
            }
        };
        self.members.push(member);
        self
    }

    /// Applies the members only to requests for which `applies` is true. With several such conditions, all must hold.
    pub fn only_if(mut self, applies: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.only_if.push(Box::new(applies));
        self
    }

    /// Whether it is nothing more than its only member. Of a group in it that may not match, one of which all apply always does.
    fn is_as(&self, only: &Member) -> bool {
        let matches_alike = match self.choose {
            By::Conditions(Choose::First) => true,
            By::Conditions(Choose::All) => matches!(only, Member::Limit(_)),
            By::Function(_) => false,
        };
        self.only_if.is_empty() && matches_alike
    }

    /// All limits in it, in their order.
    pub(crate) fn limits(&self) -> Box<dyn Iterator<Item = &Limit> + '_> {
        Box::new(self.members.iter().flat_map(|member| match member {
            Member::Limit(limit) => Box::new(std::iter::once(&**limit)),
            Member::Group(group) => group.limits(),
        }))
    }

    /// The limits that apply to every request.
    pub(crate) fn certain(&self) -> Box<dyn Iterator<Item = &Limit> + '_> {
        let is_certain = |place: &usize| match &self.choose {
            By::Conditions(choose) => *choose == Choose::All,
            By::Function(select) => select.is_certain(*place),
        };
        let members = self.members.iter().enumerate().filter(|_| self.only_if.is_empty());
        Box::new(members.filter(move |(place, _)| is_certain(place)).flat_map(|(_, member)| match member {
            Member::Limit(limit) => Box::new(limit.is_unconditional().then_some(&**limit).into_iter()),
            Member::Group(group) => group.certain(),
        }))
    }

    /// The limits, and the order in which a request meets them. Groups are laid out flat, each step
    /// with its two exits, so that no request walks a tree.
    pub(crate) fn into_plan(self) -> Plan {
        let (mut limits, mut steps) = (Vec::new(), Vec::new());
        self.lay(&mut limits, &mut steps);
        let end = steps.len();
        for exit in steps.iter_mut().flat_map(Step::exits) {
            *exit = (*exit).min(end);
        }
        let plain = if let ([only], 1) = (&*limits, steps.len()) { only.plain() } else { None };
        Plan { limits: limits.into(), steps: steps.into(), plain }
    }

    /// Puts the steps of this group behind those that are there. Exits that its surroundings decide on are left as
    /// [`MATCHED`] and [`MISSED`].
    fn lay(self, limits: &mut Vec<Limit>, steps: &mut Vec<Step>) {
        if !self.only_if.is_empty() {
            let matched = steps.len() + 1;
            steps.push(Step { what: What::Gate(self.only_if), matched, missed: MISSED });
        }
        match self.choose {
            By::Conditions(choose) => lay_in_turn(choose, self.members, limits, steps),
            By::Function(select) => lay_selected(select, self.members, limits, steps),
        }
    }
}

/// Members that are asked one after the other.
fn lay_in_turn(choose: Choose, members: Vec<Member>, limits: &mut Vec<Limit>, steps: &mut Vec<Step>) {
    let mut members = members.into_iter().filter(|member| !member.is_empty()).peekable();
    while let Some(member) = members.next() {
        let begin = steps.len();
        member.lay(limits, steps);
        let (end, is_last) = (steps.len(), members.peek().is_none());
        for exit in steps[begin..].iter_mut().flat_map(Step::exits) {
            *exit = match (*exit, choose) {
                (MATCHED | MISSED, Choose::All) if is_last => MATCHED,
                (MATCHED | MISSED, Choose::All) => end,
                (MISSED, Choose::First) if !is_last => end,
                (exit, _) => exit,
            };
        }
    }
}

/// Members that a function chooses: a step that chooses, then all members, each with its exits to the last step, which leads to
/// the next member that was chosen.
fn lay_selected(
    select: Box<dyn Select>,
    members: Vec<Member>,
    limits: &mut Vec<Limit>,
    steps: &mut Vec<Step>,
) {
    let choice = steps.len();
    steps.push(Step { what: What::Next(choice), matched: MATCHED, missed: MISSED });
    let mut laid = Vec::with_capacity(members.len());
    for member in members {
        let (begin, first) = (steps.len(), limits.len());
        if member.is_empty() {
            // It has no step of its own, and is passed by.
            steps.push(Step { what: What::Gate(Vec::new()), matched: MATCHED, missed: MISSED });
        } else {
            member.lay(limits, steps);
        }
        laid.push(Laid { begin, limits: first..limits.len() });
    }
    let next = steps.len();
    for exit in steps[choice + 1..].iter_mut().flat_map(Step::exits).filter(|exit| **exit >= MISSED) {
        *exit = next;
    }
    steps[choice] = Step { what: What::Select(select, laid.into()), matched: next, missed: MISSED };
    steps.push(Step { what: What::Next(choice), matched: MATCHED, missed: MATCHED });
}

impl Member {
    fn lay(self, limits: &mut Vec<Limit>, steps: &mut Vec<Step>) {
        match self {
            Self::Limit(limit) => {
                steps.push(Step { what: What::Limit(limits.len()), matched: MATCHED, missed: MISSED });
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

/// The exit of a step whose group matches, and of one whose group does not, for as long as it is open where they lead.
const MATCHED: usize = usize::MAX;
const MISSED: usize = usize::MAX - 1;

/// The limits of a group in their order, and the way from one to the next.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) limits: Box<[Limit]>,
    pub(crate) steps: Box<[Step]>,
    /// If there is a single limit, of which requests differ in nothing but their keys.
    pub(crate) plain: Option<Plain>,
}

/// A limit or the conditions of a group, and where a request goes from there.
pub(crate) struct Step {
    pub(crate) what: What,
    /// The next step if the conditions hold.
    pub(crate) matched: usize,
    /// The next step if they do not.
    pub(crate) missed: usize,
}

pub(crate) enum What {
    /// The limit in this place.
    Limit(usize),
    Gate(Vec<Predicate>),
    /// A function chooses among these members.
    Select(Box<dyn Select>, Box<[Laid]>),
    /// To the next member that was chosen in that step.
    Next(usize),
}

/// Where a member is.
pub(crate) struct Laid {
    /// Its first step.
    pub(crate) begin: usize,
    pub(crate) limits: Range<usize>,
}

impl Step {
    fn exits(&mut self) -> [&mut usize; 2] {
        [&mut self.matched, &mut self.missed]
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({}, {})", self.matched, self.missed)
    }
}

impl From<Limit> for Group {
    fn from(limit: Limit) -> Self {
        Self { members: vec![Member::Limit(Box::new(limit))], ..Self::new(Choose::All) }
    }
}

impl From<RateLimiter> for Group {
    fn from(limiter: RateLimiter) -> Self {
        Limit::new(limiter).into()
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("choose", &self.choose)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conditions(choose) => choose.fmt(f),
            Self::Function(_) => f.write_str("Select"),
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => limit.fmt(f),
            Self::Group(group) => group.fmt(f),
        }
    }
}
