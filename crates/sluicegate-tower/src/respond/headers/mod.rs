//! The header fields that tell a client where it stands.

mod drafts;
mod in_flight;
mod join;
pub(crate) mod lines;
pub(crate) mod list;
mod spring;
mod write;

use std::fmt;
use std::str::FromStr;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sluicegate_core::ConfigError;
use sluicegate_core::error::ConfigErrorKind;

pub(crate) use crate::respond::headers::in_flight::say_in_flight;
use crate::respond::headers::lines::number;
pub(crate) use crate::respond::headers::write::write;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const ENVOY: HeaderName = HeaderName::from_static("x-envoy-ratelimited");

/// Which header fields responses carry. `Retry-After` is on every refusal that a wait would help, whatever is chosen.
///
/// - `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` describe the quota that decided; what the
///   reset is, [`LegacyReset`] says.
/// - `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11) describe every quota.
/// - The fields of two earlier drafts, for clients that know those, describe the quota that decided, and `RateLimit-Policy` beside
///   them every quota, without its name: see [`Draft6`](Self::Draft6) and [`Draft7`](Self::Draft7).
/// - Those of Spring Cloud Gateway, for clients that know it, describe the quota that decided: `X-RateLimit-Remaining`,
///   `X-RateLimit-Replenish-Rate`, `X-RateLimit-Burst-Capacity` and `X-RateLimit-Requested-Tokens`.
///
/// Seconds are rounded up, what remains is rounded down. Quotas of hidden policies are in none of them.
///
/// No `t` of a refusal is beyond its `Retry-After`: where a quota that still has room would have such a one, it has none.
///
/// Where the service behind the layer sets such fields itself, as a gateway to a limited API does, the lists become one
/// list of both, and of the `X-RateLimit-*` fields those stay that leave less. Of two quotas of one name the one that leaves
/// less is told, in all fields. A list of the service that is not as the draft has it is replaced, since clients could
/// read nothing of the joined one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFields {
    /// `X-RateLimit-*` on every response, and on refusals `RateLimit-Policy` and `RateLimit` as well. The default: most
    /// responses are no refusals, and each field costs them time.
    #[default]
    AllOnRefusal,
    /// `X-RateLimit-*`, `RateLimit-Policy` and `RateLimit` on every response.
    All,
    /// Only `X-RateLimit-*`.
    Legacy,
    /// Only `RateLimit-Policy` and `RateLimit`.
    Ietf,
    /// Only those of draft-ietf-httpapi-ratelimit-headers-06: `RateLimit-Limit: 100`, `RateLimit-Remaining: 50`,
    /// `RateLimit-Reset: 30` and `RateLimit-Policy: 100;w=60`. The reset is the wait until the whole burst is back; of a refusal
    /// it is the number of `Retry-After`, as the draft has it. A quota of less than a second is not in `RateLimit-Policy`.
    Draft6,
    /// Only those of draft-ietf-httpapi-ratelimit-headers-07: the numbers of [`Draft6`](Self::Draft6) in one field,
    /// `RateLimit: limit=100, remaining=50, reset=30`, and `RateLimit-Policy: 100;w=60`.
    Draft7,
    /// Only those of Spring Cloud Gateway. Its rate is a whole number of tokens a second, so where a quota is slower than that, as
    /// `5/min` is, each of its units is several tokens, as in Spring's own settings: a rate of 1, a capacity of 60, and 12 tokens
    /// are requested for each unit. `Requested-Tokens` is for one unit, whatever a request costs.
    Spring,
    /// None of them.
    None,
}

impl HeaderFields {
    /// Every choice, the default first.
    pub const ALL: [Self; 8] = [
        Self::AllOnRefusal,
        Self::All,
        Self::Legacy,
        Self::Ietf,
        Self::Draft6,
        Self::Draft7,
        Self::Spring,
        Self::None,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::AllOnRefusal => "all-on-refusal",
            Self::All => "all",
            Self::Legacy => "legacy",
            Self::Ietf => "ietf",
            Self::Draft6 => "draft-6",
            Self::Draft7 => "draft-7",
            Self::Spring => "spring",
            Self::None => "none",
        }
    }

    /// Whether such a response has `X-RateLimit-*`.
    fn legacy(self) -> bool {
        matches!(self, Self::AllOnRefusal | Self::All | Self::Legacy)
    }

    /// Whether such a response has `RateLimit-Policy` and `RateLimit`.
    fn ietf(self, is_refusal: bool) -> bool {
        match self {
            Self::AllOnRefusal => is_refusal,
            Self::All | Self::Ietf => true,
            Self::Legacy | Self::Draft6 | Self::Draft7 | Self::Spring | Self::None => false,
        }
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

    /// Reads `all-on-refusal`, `all`, `legacy`, `ietf`, `draft-6`, `draft-7`, `spring` or `none`.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Unreadable`] for any other text.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if let Some(fields) = Self::ALL.into_iter().find(|fields| fields.word() == text) {
            return Ok(fields);
        }
        let shown: String = text.chars().take(64).collect();
        let words = Self::ALL.map(|fields| format!("{:?}", fields.word())).join(", ");
        let problem =
            format!("{shown:?} does not say which header fields responses carry: use one of {words}");
        Err(ConfigError::new(ConfigErrorKind::Unreadable, problem).at(0..text.len()))
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
    pub(crate) chosen: HeaderFields,
    pub(crate) reset: LegacyReset,
    /// Whether scripts of other origins may read them.
    pub(crate) exposes: bool,
    /// Whether Envoy is told not to try again.
    pub(crate) tells_envoy: bool,
    /// A field that repeats `Retry-After`.
    pub(crate) wait_also_in: Option<HeaderName>,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            chosen: HeaderFields::default(),
            reset: LegacyReset::Delta,
            exposes: false,
            tells_envoy: false,
            wait_also_in: None,
        }
    }
}

impl Style {
    /// Whether there are fields on responses that are not refusals.
    #[inline]
    pub(crate) fn shows(&self) -> bool {
        self.chosen != HeaderFields::None
    }

    /// Whether such a response has the lists of the draft.
    #[inline]
    pub(crate) fn lists(&self, is_refusal: bool) -> bool {
        self.chosen.ietf(is_refusal)
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
    fn leaves_less(self, theirs: u64, remaining: u64) -> bool {
        match self {
            Self::Replaced => false,
            Self::Theirs => theirs <= remaining,
            // What a layer of ours says is left is left here, or less.
            Self::Both => theirs < remaining,
        }
    }
}

/// Says that a refused request may be tried again after this many seconds, or after more if the response says that
/// already: after the seconds that are returned.
pub(crate) fn come_back_after(headers: &mut HeaderMap, seconds: u64) -> u64 {
    match headers.get(RETRY_AFTER).and_then(whole_number) {
        Some(said) if said >= seconds => said,
        _ => {
            headers.insert(RETRY_AFTER, number(seconds));
            seconds
        }
    }
}

/// Repeats the wait of a refusal in the field that is chosen for that.
pub(crate) fn repeat_wait(headers: &mut HeaderMap, style: &Style) {
    if let Some(name) = &style.wait_also_in
        && let Some(wait) = headers.get(RETRY_AFTER).cloned()
    {
        headers.insert(name, wait);
    }
}

/// A refusal is for this moment and this client: no cache may keep it (RFC 6585, section 4).
pub(crate) fn forbid_caching(headers: &mut HeaderMap) {
    const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
    if !has_any(headers, &[CACHE_CONTROL]) {
        headers.insert(CACHE_CONTROL, NO_STORE);
    }
}

/// Whether a response has one of these. Looked for by hand in the few fields that a usual response has: a map hashes the name first,
/// which takes longer.
#[inline]
fn has_any(headers: &HeaderMap, names: &[HeaderName]) -> bool {
    if headers.len() > 8 {
        names.iter().any(|name| headers.contains_key(name))
    } else {
        headers.keys().any(|name| names.contains(name))
    }
}

/// Gives a field this value, or none; says which it had.
fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) -> Option<HeaderValue> {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    }
}

fn whole_number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}
