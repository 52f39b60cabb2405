//! Limits that are chosen together ([`Group`]), and the types that convert into one limit or into several.

use std::fmt;

use sluicegate_core::RateLimiter;

use crate::key::RequestView;
use crate::limits::limit::Limit;
use crate::limits::predicate::Predicate;
use crate::limits::select::Select;

/// How a [`Group`] chooses among its members.
///
/// Members are checked in order. Under [`First`](Self::First), conditions of limits after the first match
/// are not evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choose {
    /// All members with conditions that hold apply.
    All,
    /// Only the first member with conditions that hold applies.
    First,
}

/// Limits that all apply, or only the first that matches; groups can be nested.
///
/// Only [`only_if`](Limit::only_if) decides whether a limit matches: a limit that matches but asks nothing, for example
/// because its tier is unlimited, is still the first.
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
/// // All clients have 1,000 a minute; of the other limits, one applies to each request.
/// let layer = RateLimitLayer::builder(Policy::gcra("flood", "1000/min").on(&store)?)
///     .and(Group::new(Choose::First).and(login).and(writes).and(rest))
///     .build()?;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a group does nothing until it is put into a layer"]
pub struct Group {
    pub(super) choose: MemberChoice,
    pub(super) only_if: Vec<Predicate>,
    pub(super) members: Vec<GroupMember>,
}

/// The way in which members are chosen.
pub(super) enum MemberChoice {
    Conditions(Choose),
    Function(Box<dyn Select>),
}

#[derive(Debug)]
pub(super) enum GroupMember {
    Limit(Box<Limit>),
    Group(Group),
}

impl Group {
    /// A group without members, which does nothing yet.
    pub fn new(choose: Choose) -> Self {
        Self::by(MemberChoice::Conditions(choose))
    }

    /// A group with members chosen by one function: it returns the indices of all members that apply at once, instead of
    /// checks of each limit's conditions. Conditions of the members have to hold as well.
    pub fn select(select: impl Select) -> Self {
        Self::by(MemberChoice::Function(Box::new(select)))
    }

    fn by(choose: MemberChoice) -> Self {
        Self { choose, only_if: Vec::new(), members: Vec::new() }
    }

    /// Adds a limit or a group after the existing members.
    pub fn and(mut self, member: impl IntoGroup) -> Self {
        let mut member = member.into_group();
        let member = match member.members.pop() {
            Some(only) if member.members.is_empty() && member.is_as(&only) => only,
            last => {
                member.members.extend(last);
                GroupMember::Group(member)
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

    /// Whether the group is equivalent to its only member. A nested group may fail to match; a group with `All` never does.
    fn is_as(&self, only: &GroupMember) -> bool {
        let matches_alike = match self.choose {
            MemberChoice::Conditions(Choose::First) => true,
            MemberChoice::Conditions(Choose::All) => matches!(only, GroupMember::Limit(_)),
            MemberChoice::Function(_) => false,
        };
        self.only_if.is_empty() && matches_alike
    }

    /// All limits in it, in their order.
    pub(crate) fn limits(&self) -> Box<dyn Iterator<Item = &Limit> + '_> {
        Box::new(self.members.iter().flat_map(|member| match member {
            GroupMember::Limit(limit) => Box::new(std::iter::once(&**limit)),
            GroupMember::Group(group) => group.limits(),
        }))
    }

    /// The limits that apply to every request.
    pub(crate) fn certain(&self) -> Box<dyn Iterator<Item = &Limit> + '_> {
        let is_certain = |place: &usize| match &self.choose {
            MemberChoice::Conditions(choose) => *choose == Choose::All,
            MemberChoice::Function(select) => select.is_certain(*place),
        };
        let members = self.members.iter().enumerate().filter(|_| self.only_if.is_empty());
        Box::new(members.filter(move |(place, _)| is_certain(place)).flat_map(|(_, member)| match member {
            GroupMember::Limit(limit) => Box::new(limit.is_unconditional().then_some(&**limit).into_iter()),
            GroupMember::Group(group) => group.certain(),
        }))
    }
}

impl From<Limit> for Group {
    fn from(limit: Limit) -> Self {
        Self { members: vec![GroupMember::Limit(Box::new(limit))], ..Self::new(Choose::All) }
    }
}

impl From<RateLimiter> for Group {
    fn from(limiter: RateLimiter) -> Self {
        Limit::new(limiter).into()
    }
}

sluicegate_core::debug_as!(Group { choose, members });

impl fmt::Debug for MemberChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conditions(choose) => choose.fmt(f),
            Self::Function(_) => f.write_str("Select"),
        }
    }
}

/// A [`RateLimiter`](sluicegate_core::RateLimiter), which counts peer addresses, a [`Limit`](crate::Limit), which has a key of its
/// own, or a [`Group`] of limits.
///
/// Every type that is `Into<Group>` implements it. It exists for a better message of the compiler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no limit",
    label = "not a `RateLimiter`, a `Limit` or a `Group`",
    note = "a policy is a limit when it is on a store: `Policy::gcra(\"api\", \"5/min\").on(&store)?`",
    note = "mind the `?`: `on` returns a `Result`, since the quota may be unreadable or the name taken"
)]
pub trait IntoGroup {
    /// The limit, as a group of its own.
    fn into_group(self) -> Group;
}

#[diagnostic::do_not_recommend]
impl<L: Into<Group>> IntoGroup for L {
    fn into_group(self) -> Group {
        self.into()
    }
}

/// A [`RateLimiter`](sluicegate_core::RateLimiter), which counts peer addresses, or a [`Limit`], which has a key of its own.
///
/// Every type that is `Into<Limit>` implements it. It exists for a better message of the compiler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no limit",
    label = "not a `RateLimiter` or a `Limit`",
    note = "a policy is a limit when it is on a store: `Policy::gcra(\"api\", \"5/min\").on(&store)?`",
    note = "mind the `?`: `on` returns a `Result`, since the quota may be unreadable or the name taken",
    note = "a `Group` may hold limits that cannot be decided together: give it to `builder`, whose `build` says so"
)]
pub trait IntoLimit {
    /// The limit.
    fn into_limit(self) -> Limit;
}

#[diagnostic::do_not_recommend]
impl<L: Into<Limit>> IntoLimit for L {
    fn into_limit(self) -> Limit {
        self.into()
    }
}
