//! The header fields that show a client the state of its quotas: [`HeaderFields`], the list of all forms.
//!
//! A new form is a new file and a line in the list here.

mod digits;
mod drafts;
mod ietf;
#[cfg(feature = "in-flight")]
mod in_flight;
mod join;
pub(crate) mod lines;
pub(crate) mod list;
mod open_ai;
mod spring;
pub(crate) mod style;
pub(crate) mod whole;
pub(crate) mod write;

use std::fmt;
use std::str::FromStr;

use http::header::{HeaderName, RETRY_AFTER};
use sluicegate_core::ConfigError;

use crate::key::text::unreadable;
#[cfg(feature = "in-flight")]
pub(crate) use crate::respond::headers::in_flight::{expose_all, say_in_flight};
pub use crate::respond::headers::style::LegacyReset;
use crate::respond::headers::style::{BodyForm, Form, LISTS, NUMBERS};

/// The header fields of responses. Every refusal has `Retry-After` if a wait helps, whatever the choice.
///
/// - `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` describe the quota that decided;
///   [`LegacyReset`] sets the meaning of the reset.
/// - `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11) describe every quota.
/// - The fields of two earlier drafts, for clients that know these drafts, describe the quota that decided, and their
///   `RateLimit-Policy` every quota, without its name: see [`Draft6`](Self::Draft6) and [`Draft7`](Self::Draft7).
/// - The fields of Spring Cloud Gateway, for clients that know them, describe the quota that decided: `X-RateLimit-Remaining`,
///   `X-RateLimit-Replenish-Rate`, `X-RateLimit-Burst-Capacity` and `X-RateLimit-Requested-Tokens`.
/// - The fields of OpenAI's API, for its clients, describe every policy: see [`OpenAi`](Self::OpenAi).
///
/// Seconds are rounded up, remaining units are rounded down. No field shows quotas of hidden policies.
///
/// No `t` of a refusal is larger than its `Retry-After`: a quota that still has room has no `t` in that case.
///
/// If the inner service sets such fields itself, like a gateway to a limited API, the lists are joined
/// into one, and the `X-RateLimit-*` fields with fewer units left stay. Of two quotas with one name, all fields show the one
/// that leaves less. A malformed list of the service is replaced, since clients could
/// not read the joined one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFields {
    /// `X-RateLimit-*` on every response, and on refusals `RateLimit-Policy` and `RateLimit` as well. The default, because most
    /// responses are not refusals, and each field costs them time.
    #[default]
    AllOnRefusal,
    /// `X-RateLimit-*`, `RateLimit-Policy` and `RateLimit` on every response.
    All,
    /// Only `X-RateLimit-*`.
    Legacy,
    /// Only `RateLimit-Policy` and `RateLimit`.
    Ietf,
    /// Only the fields of draft-ietf-httpapi-ratelimit-headers-06: `RateLimit-Limit: 100`, `RateLimit-Remaining: 50`,
    /// `RateLimit-Reset: 30` and `RateLimit-Policy: 100;w=60`. The reset is the wait until the whole burst is back; on a refusal
    /// it is the number of `Retry-After`, as the draft requires. A quota of less than a second is not in `RateLimit-Policy`.
    Draft6,
    /// Only the fields of draft-ietf-httpapi-ratelimit-headers-07: the numbers of [`Draft6`](Self::Draft6) in one field,
    /// `RateLimit: limit=100, remaining=50, reset=30`, and `RateLimit-Policy: 100;w=60`.
    Draft7,
    /// Only the fields of Spring Cloud Gateway. Its rate is a whole number of tokens a second, so each unit of a slower quota, such as
    /// `5/min`, is several tokens, as in Spring's own settings: a rate of 1, a capacity of 60, and 12 requested tokens
    /// for each unit. `Requested-Tokens` is for one unit, whatever a request costs.
    Spring,
    /// Only the fields of OpenAI's API, three for each policy, which end in its name: `x-ratelimit-limit-tokens: 10000`,
    /// `x-ratelimit-remaining-tokens: 9500` and `x-ratelimit-reset-tokens: 1m30s` for the policy `tokens`. They describe the quota of the
    /// policy with the fewest units left.
    ///
    /// [`ProblemJson`](crate::respond::ProblemJson) then writes refusals in that API's format, for its clients: `{"error": {"message": ..,
    /// "type": "tokens", "param": null, "code": "rate_limit_exceeded"}}`, with the policy without room as the type.
    OpenAi,
    /// No fields.
    None,
}

impl HeaderFields {
    /// Every choice, the default first.
    pub const ALL: [Self; 9] = [
        Self::AllOnRefusal,
        Self::All,
        Self::Legacy,
        Self::Ietf,
        Self::Draft6,
        Self::Draft7,
        Self::Spring,
        Self::OpenAi,
        Self::None,
    ];

    /// The word and the fields of this choice.
    fn listed(self) -> (&'static str, Form) {
        let form = |legacy, lists| Form { legacy, lists, ..Form::NOTHING };
        match self {
            Self::AllOnRefusal => ("all-on-refusal", form(true, [false, true])),
            Self::All => ("all", form(true, [true; 2])),
            Self::Legacy => ("legacy", form(true, [false; 2])),
            Self::Ietf => ("ietf", form(false, [true; 2])),
            Self::Draft6 => ("draft-6", Form::own(drafts::write::<true>, &drafts::FIELDS)),
            Self::Draft7 => ("draft-7", Form::own(drafts::write::<false>, &[])),
            Self::Spring => ("spring", Form::own(spring::write, &join::OF_TOKENS)),
            Self::OpenAi => {
                ("openai", Form::own(open_ai::write, &open_ai::FIELDS).with_body(BodyForm::OpenAi))
            }
            Self::None => ("none", Form::NOTHING),
        }
    }

    fn word(self) -> &'static str {
        self.listed().0
    }

    pub(crate) fn form(self) -> Form {
        self.listed().1
    }

    /// The names of the fields of all forms.
    pub(crate) fn names() -> Vec<HeaderName> {
        let others = Self::ALL.iter().rev().flat_map(|fields| fields.form().names);
        NUMBERS.iter().chain(others).chain(&LISTS).chain([&RETRY_AFTER]).cloned().collect()
    }
}

/// The word that [`from_str`](Self::from_str) reads.
impl fmt::Display for HeaderFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for HeaderFields {
    type Err = ConfigError;

    /// Reads `all-on-refusal`, `all`, `legacy`, `ietf`, `draft-6`, `draft-7`, `spring`, `openai` or `none`.
    ///
    /// # Errors
    /// [`Unreadable`](sluicegate_core::error::ConfigErrorKind::Unreadable) for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if let Some(fields) = Self::ALL.into_iter().find(|fields| fields.word() == text) {
            return Ok(fields);
        }
        let words = Self::ALL.map(|fields| format!("{:?}", fields.word())).join(", ");
        Err(unreadable(
            text,
            &format!("does not say which header fields responses carry: use one of {words}"),
        ))
    }
}
