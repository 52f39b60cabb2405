//! The choices of a layer about its fields: [`Style`], the [`Form`] among them, and the names that several forms share.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName};

use crate::respond::decided::{Shown, ceil_seconds};

pub(crate) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The names of `X-RateLimit-*`, and of the lists.
pub(super) static NUMBERS: [HeaderName; 3] = [LIMIT, REMAINING, RESET];
pub(super) static LISTS: [HeaderName; 2] = [RATELIMIT_POLICY, RATELIMIT];

/// The fields of a form, and a function for fields that no other form has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Whether it has `X-RateLimit-*`.
    pub(super) legacy: bool,
    /// Whether it has `RateLimit-Policy` and `RateLimit`: on a response to an admitted request, and on a refusal.
    pub(super) lists: [bool; 2],
    /// Writes the other fields.
    pub(super) own: Option<WriteOwn>,
    /// The names of fields that no other form has.
    pub(super) names: &'static [HeaderName],
    /// The body of refusals, by the default responder.
    pub(crate) body: BodyForm,
}

/// The format of the default responder's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyForm {
    #[default]
    Problem,
    /// The format of OpenAI's API.
    OpenAi,
}

/// Writes the fields of a form; the seconds are the number of `Retry-After`, for a refusal.
pub(super) type WriteOwn = fn(&mut HeaderMap, Shown<'_>, Option<u64>, Already);

impl Form {
    /// No field at all.
    pub(super) const NOTHING: Self =
        Self { legacy: false, lists: [false; 2], own: None, names: &[], body: BodyForm::Problem };

    /// Only fields of its own.
    pub(super) const fn own(write: WriteOwn, names: &'static [HeaderName]) -> Self {
        Self { own: Some(write), names, ..Self::NOTHING }
    }

    /// With this body of refusals.
    pub(super) const fn with_body(self, body: BodyForm) -> Self {
        Self { body, ..self }
    }

    /// Whether there are fields on responses that are not refusals.
    pub(crate) fn shows(self) -> bool {
        self.legacy || self.lists[0] || self.own.is_some()
    }
}

/// The meaning of `X-RateLimit-Reset`. Services differ, and clients cannot detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LegacyReset {
    /// Whole seconds from now, as in Envoy. The default.
    Delta,
    /// The second of Unix time, as at GitHub, by the clock of the store, which has to count from the Unix epoch.
    Epoch,
}

/// The settings for the fields of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub(crate) form: Form,
    pub(crate) reset: LegacyReset,
    /// The fields that scripts of other origins may read, if a response has them.
    pub(crate) exposes: Vec<HeaderName>,
    /// Whether Envoy is told not to retry.
    pub(crate) tells_envoy: bool,
    /// A field that repeats `Retry-After`.
    pub(crate) wait_also_in: Option<HeaderName>,
}

impl Style {
    /// This form, with default settings.
    pub(crate) const fn of(form: Form) -> Self {
        Self { form, reset: LegacyReset::Delta, exposes: Vec::new(), tells_envoy: false, wait_also_in: None }
    }

    /// The number of `X-RateLimit-Reset` for a time after the moment of the numbers, which is given since the epoch of the store's clock.
    pub(super) fn reset(&self, stands_at: Duration, after: Duration) -> u64 {
        match self.reset {
            LegacyReset::Delta => ceil_seconds(after),
            LegacyReset::Epoch => ceil_seconds(stands_at.saturating_add(after)),
        }
    }

    /// Whether the response to an admitted request has `X-RateLimit-*`, and no other field about limits.
    #[inline]
    pub(super) fn is_numbers_alone(&self) -> bool {
        let Form { legacy, lists: [on_pass, _], own, .. } = &self.form;
        *legacy && !on_pass && own.is_none() && self.exposes.is_empty()
    }

    /// Whether a refusal has `Retry-After`, `X-RateLimit-*`, the two lists, and no other field about limits.
    pub(super) fn is_usual(&self) -> bool {
        let Self { form, exposes, tells_envoy, wait_also_in, .. } = self;
        let Form { legacy, lists: [_, on_refusal], own, .. } = form;
        *legacy
            && *on_refusal
            && own.is_none()
            && exposes.is_empty()
            && !tells_envoy
            && wait_also_in.is_none()
    }
}

/// The origin of existing rate limit fields of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Already {
    /// A responder; our fields replace its fields.
    Replaced,
    /// The service.
    Theirs,
    /// An inner layer of ours, with a decision that is part of the written one, and the inner service.
    Both,
}

impl Already {
    /// Whether to show their number of units left, `theirs`, instead of our `remaining`.
    pub(super) fn leaves_less(self, theirs: u64, remaining: u64) -> bool {
        match self {
            Self::Replaced => false,
            Self::Theirs => theirs <= remaining,
            // The written decision includes the other layer's, so it never leaves more.
            Self::Both => theirs < remaining,
        }
    }
}
