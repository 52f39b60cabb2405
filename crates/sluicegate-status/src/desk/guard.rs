//! Access to the page: [`Guard`].
//!
//! There are two kinds of pages and nothing in between: one whose visitors all have names and may act, and one whose visitors have no names
//! and may look at numbers.

use sluicegate_tower::key::RequestView;

/// Decides which visitors may see the page, and which of them may act on it.
pub(super) enum Guard {
    /// Only visitors for whom this returns a name; they may act.
    Who(Box<Who>),
    /// All visitors; nobody may act, and keys are digests.
    ReadOnly,
}

type Who = dyn Fn(RequestView<'_>) -> Option<String> + Send + Sync;

/// A visitor that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Visitor {
    /// May act, and is named in events.
    Operator(String),
    /// May look at numbers.
    Reader,
}

impl Visitor {
    /// The name of a visitor that may act.
    pub(super) fn operator(&self) -> Option<&str> {
        match self {
            Self::Operator(name) => Some(name),
            Self::Reader => None,
        }
    }
}

impl Guard {
    pub(super) fn visitor(&self, request: RequestView<'_>) -> Option<Visitor> {
        match self {
            Self::Who(who) => who(request).map(Visitor::Operator),
            Self::ReadOnly => Some(Visitor::Reader),
        }
    }
}
