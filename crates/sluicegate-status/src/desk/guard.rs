//! Access to the page: [`Guard`].
//!
//! There are two kinds of pages and nothing in between: one whose visitors all have names and may act, and one whose visitors have
//! none and may look at numbers.

use sluicegate_tower::key::RequestView;

/// Decides which visitors may see the page, and which of them may act on it.
pub(super) enum Guard {
    /// Only those whom this names, by the name that it gives them; they may act.
    Who(Box<Who>),
    /// Everybody; nobody may act, and keys are digests.
    ReadOnly,
}

type Who = dyn Fn(RequestView<'_>) -> Option<String> + Send + Sync;

/// One who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Visitor {
    /// May act, and is named in events.
    Operator(String),
    /// May look at numbers.
    Reader,
}

impl Visitor {
    /// The name of one who may act.
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
