//! The choices of a layer about its fields: [`Style`], the [`Form`] among them, and the names that several forms have.

use http::header::{HeaderMap, HeaderName};

use crate::respond::decided::Shown;

pub(crate) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Which fields a form has, and how those are written that no other form has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Whether it has `X-RateLimit-*`.
    pub(super) legacy: bool,
    /// Whether it has `RateLimit-Policy` and `RateLimit`: on a response to a request that was let through, and on a refusal.
    pub(super) lists: [bool; 2],
    /// Writes the others.
    pub(super) own: Option<WriteOwn>,
    /// The names of fields that no other form has.
    pub(super) names: &'static [HeaderName],
}

/// Writes the fields of a form; the seconds are those of `Retry-After`, if it is a refusal.
pub(super) type WriteOwn = fn(&mut HeaderMap, Shown<'_>, Option<u64>, Already);

impl Form {
    /// No field at all.
    pub(super) const NOTHING: Self = Self { legacy: false, lists: [false; 2], own: None, names: &[] };

    /// Only fields of its own.
    pub(super) const fn own(write: WriteOwn, names: &'static [HeaderName]) -> Self {
        Self { own: Some(write), names, ..Self::NOTHING }
    }

    /// Whether there are fields on responses that are not refusals.
    pub(crate) fn shows(self) -> bool {
        self.legacy || self.lists[0] || self.own.is_some()
    }
}

/// The meaning of `X-RateLimit-Reset`. Services differ, and clients cannot tell by looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LegacyReset {
    /// Whole seconds from now, as Envoy has it. The default.
    Delta,
    /// The second of Unix time, as GitHub has it, by the clock of the store, which has to count from there.
    Epoch,
}

/// How the fields of a layer look.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub(crate) form: Form,
    pub(crate) reset: LegacyReset,
    /// The fields that scripts of other origins may read, where a response has them.
    pub(crate) exposes: Vec<HeaderName>,
    /// Whether Envoy is told not to try again.
    pub(crate) tells_envoy: bool,
    /// A field that repeats `Retry-After`.
    pub(crate) wait_also_in: Option<HeaderName>,
}

impl Style {
    /// Nothing but this form.
    pub(crate) const fn of(form: Form) -> Self {
        Self { form, reset: LegacyReset::Delta, exposes: Vec::new(), tells_envoy: false, wait_also_in: None }
    }
}

/// Whose rate limit fields a response has already, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Already {
    /// Those of a responder, which ours replace.
    Replaced,
    /// Those of the service.
    Theirs,
    /// Those of a layer of ours, whose decision is part of the one that is written, and of the service behind it.
    Both,
}

impl Already {
    /// Whether `theirs`, that they say is left, is the number to show, where ours is `remaining`.
    pub(super) fn leaves_less(self, theirs: u64, remaining: u64) -> bool {
        match self {
            Self::Replaced => false,
            Self::Theirs => theirs <= remaining,
            // What a layer of ours says is left is left here, or less.
            Self::Both => theirs < remaining,
        }
    }
}
