//! Selects members of a group by one function: [`Select`].
//!
//! Conditions of limits are checked one after the other, so a thousand limits need a thousand checks. One function that knows
//! all conditions, like a router with all routes, finds the limits that apply without checking the others.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::key::RequestView;

/// Finds all members of a [`Group`](crate::limits::Group) that apply to a request at once. Implemented by closures that
/// return [`Selected`], or anything that converts into it.
///
/// Members are identified by their indices, from 0 in the order of their addition.
///
/// ```
/// use std::collections::HashMap;
/// use sluicegate_core::{MemoryStore, Policy};
/// use sluicegate_tower::key::RequestView;
/// use sluicegate_tower::limits::{Group, Limits};
///
/// let store = MemoryStore::new();
/// let places = HashMap::from([("/login", 0), ("/search", 1)]);
/// let by_path = Group::select(move |request: RequestView<'_>| places.get(request.path()).copied())
///     .and(Policy::gcra("login", "5/min").on(&store)?)
///     .and(Policy::gcra("search", "100/min").on(&store)?);
/// let limits = Limits::builder(by_path).build()?;
/// # let _ = limits;
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
pub trait Select: Send + Sync + 'static {
    /// The members that apply.
    fn select(&self, request: RequestView<'_>) -> Selected;

    /// The reason why a member does not apply, for [explanations](crate::limits::Limits::explain). It is called for each member, and
    /// returns `None` for members that apply. Default: always `None`.
    fn why_not(&self, request: RequestView<'_>, member: usize) -> Option<String> {
        _ = (request, member);
        None
    }

    /// Whether a member applies to every request, so that more can be checked before the first one comes. Default: false.
    fn is_certain(&self, member: usize) -> bool {
        _ = member;
        false
    }
}

impl<F, S> Select for F
where
    F: Fn(RequestView<'_>) -> S + Send + Sync + 'static,
    S: Into<Selected>,
{
    fn select(&self, request: RequestView<'_>) -> Selected {
        self(request).into()
    }
}

/// For a selector shared with other code, for example to explain its choices.
impl<S: Select + ?Sized> Select for Arc<S> {
    #[inline]
    fn select(&self, request: RequestView<'_>) -> Selected {
        (**self).select(request)
    }

    fn why_not(&self, request: RequestView<'_>, member: usize) -> Option<String> {
        (**self).why_not(request, member)
    }

    fn is_certain(&self, member: usize) -> bool {
        (**self).is_certain(member)
    }
}

/// The indices of members that apply to a request. Members apply in the order of the group, each once; indices without a member are
/// ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selected(SmallVec<[u32; 6]>);

impl Selected {
    /// Adds the member at this index.
    #[inline]
    pub fn push(&mut self, member: usize) {
        if let Ok(member) = u32::try_from(member) {
            self.0.push(member);
        }
    }

    /// The indices below this count, in the order of the group and each once.
    #[inline]
    pub(crate) fn among(&mut self, count: usize) -> &[u32] {
        if self.0.len() > 1 && !self.0.is_sorted_by(|one, next| one < next) {
            self.0.sort_unstable();
            self.0.dedup();
        }
        while self.0.last().is_some_and(|last| *last as usize >= count) {
            self.0.pop();
        }
        &self.0
    }
}

impl FromIterator<usize> for Selected {
    fn from_iter<I: IntoIterator<Item = usize>>(members: I) -> Self {
        let mut selected = Self::default();
        members.into_iter().for_each(|member| selected.push(member));
        selected
    }
}

impl From<Option<usize>> for Selected {
    fn from(member: Option<usize>) -> Self {
        member.into_iter().collect()
    }
}

impl From<Vec<usize>> for Selected {
    fn from(members: Vec<usize>) -> Self {
        members.into_iter().collect()
    }
}
