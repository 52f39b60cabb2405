//! Limits that are chosen together: [`Group`].

use std::fmt;

use sluicegate_core::RateLimiter;

use crate::key::RequestView;
use crate::limits::into_group::IntoGroup;
use crate::limits::limit::Limit;
use crate::limits::predicate::Predicate;

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
    choose: Choose,
    only_if: Vec<Predicate>,
    members: Vec<Member>,
}

enum Member {
    Limit(Box<Limit>),
    Group(Group),
}

impl Group {
    /// A group without members, which does nothing yet.
    pub fn new(choose: Choose) -> Self {
        Self { choose, only_if: Vec::new(), members: Vec::new() }
    }

    /// Adds a limit or a group behind those that are there.
    pub fn and(mut self, member: impl IntoGroup) -> Self {
        let mut member = member.into_group();
        let member = match member.members.pop() {
            Some(only) if member.members.is_empty() && member.only_if.is_empty() => only,
            last => {
                member.members.extend(last);
                Member::Group(member)
            }
        };
        self.members.push(member);
        self
    }

    /// Applies the members only to requests of which `applies` is true. With several such conditions, all must hold.
    pub fn only_if(mut self, applies: impl Fn(RequestView<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.only_if.push(Box::new(applies));
        self
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
        let is_certain = self.choose == Choose::All && self.only_if.is_empty();
        Box::new(self.members.iter().filter(move |_| is_certain).flat_map(|member| match member {
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
        Plan { limits: limits.into(), steps: steps.into() }
    }

    /// Puts the steps of this group behind those that are there. Exits that its surroundings decide on are left as
    /// [`MATCHED`] and [`MISSED`].
    fn lay(self, limits: &mut Vec<Limit>, steps: &mut Vec<Step>) {
        if !self.only_if.is_empty() {
            let matched = steps.len() + 1;
            steps.push(Step { what: What::Gate(self.only_if), matched, missed: MISSED });
        }
        let mut members = self.members.into_iter().filter(|member| !member.is_empty()).peekable();
        while let Some(member) = members.next() {
            let begin = steps.len();
            match member {
                Member::Limit(limit) => {
                    steps.push(Step { what: What::Limit(limits.len()), matched: MATCHED, missed: MISSED });
                    limits.push(*limit);
                }
                Member::Group(group) => group.lay(limits, steps),
            }
            let (end, is_last) = (steps.len(), members.peek().is_none());
            for exit in steps[begin..].iter_mut().flat_map(Step::exits) {
                *exit = match (*exit, self.choose) {
                    (MATCHED | MISSED, Choose::All) if is_last => MATCHED,
                    (MATCHED | MISSED, Choose::All) => end,
                    (MISSED, Choose::First) if !is_last => end,
                    (exit, _) => exit,
                };
            }
        }
    }
}

impl Member {
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
        Self { choose: Choose::All, only_if: Vec::new(), members: vec![Member::Limit(Box::new(limit))] }
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

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => limit.fmt(f),
            Self::Group(group) => group.fmt(f),
        }
    }
}
