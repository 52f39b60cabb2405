//! The header fields that tell a client where it stands.

mod join;
pub(crate) mod lines;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CACHE_CONTROL, Entry, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sluicegate_core::{Decision, Outcome, PolicyQuota, Standing};

use crate::headers::join::{expose, join, renew};
use crate::headers::lines::{ceil_seconds, number, policy_line, standings_line};
use crate::layer::plan::Plan;

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
///
/// Seconds are rounded up, what remains is rounded down. Quotas of hidden policies are in none of them.
///
/// Where the service behind the layer sets such fields itself, as a gateway to a limited API does, the lists become one
/// list of both, and of the `X-RateLimit-*` fields those stay that leave less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Headers {
    /// Both families. The default.
    All,
    /// Only `X-RateLimit-*`.
    Legacy,
    /// Only `RateLimit-Policy` and `RateLimit`.
    Ietf,
    /// Neither.
    None,
}

/// What `X-RateLimit-Reset` is. Services differ, and clients cannot tell by looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LegacyReset {
    /// Whole seconds from now, as Envoy has it. The default.
    Delta,
    /// The second of Unix time, as GitHub has it, by the wall clock of this machine.
    Epoch,
}

/// How the fields of a layer look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) chosen: Headers,
    pub(crate) reset: LegacyReset,
    /// Whether scripts of other origins may read them.
    pub(crate) exposes: bool,
    /// Whether Envoy is told not to try again.
    pub(crate) tells_envoy: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { chosen: Headers::All, reset: LegacyReset::Delta, exposes: false, tells_envoy: false }
    }
}

impl Style {
    /// Whether there are fields on responses that are not refusals.
    #[inline]
    pub(crate) fn shows(self) -> bool {
        self.chosen != Headers::None
    }

    fn legacy(self) -> bool {
        matches!(self.chosen, Headers::All | Headers::Legacy)
    }

    fn ietf(self) -> bool {
        matches!(self.chosen, Headers::All | Headers::Ietf)
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

/// Adds the chosen fields for a decision. What `plan` has ready is used if the decision is on exactly its policies: not
/// if layers stack, or a limit was skipped.
pub(crate) fn write(
    headers: &mut HeaderMap,
    style: Style,
    decision: &Decision,
    plan: &Plan,
    already: Already,
) {
    let is_planned = decision.policies().is_some_and(|policies| Arc::ptr_eq(policies, &plan.policies));
    let refused_for = retry_after(decision);
    if !style.shows() && refused_for.is_none() {
        return;
    }
    if style.chosen == Headers::All {
        // Room for all that a response gets: a map that grows hashes and moves what it has again.
        headers.reserve(8);
    }
    let hides = if is_planned { plan.has_hidden } else { hides(decision) };
    let deciding = if hides { shown(decision) } else { Some(decision.deciding()) };
    if let Some(standing) = deciding.filter(|_| style.legacy()) {
        let planned = || plan.limits.get(standing.policy_index())?.get(standing.quota_index());
        let limit = if is_planned { planned().cloned() } else { None };
        let limit_before = headers.insert(LIMIT, limit.unwrap_or_else(|| number(standing.limit())));
        match headers.insert(REMAINING, number(standing.remaining())) {
            Some(theirs) if leaves_less(&theirs, already, standing) => {
                headers.insert(REMAINING, theirs);
                match limit_before {
                    Some(limit) => headers.insert(LIMIT, limit),
                    None => headers.remove(LIMIT),
                };
            }
            _ => drop(headers.insert(RESET, number(reset(style.reset, standing.reset_after())))),
        }
    }
    if let Some(seconds) = refused_for {
        come_back_after(headers, seconds);
        if style.tells_envoy {
            headers.insert(ENVOY, HeaderValue::from_static("true"));
        }
    }
    if style.ietf() {
        let described = || {
            let standings = decision.standings().iter();
            let standings = standings.filter(move |standing| !hides || !is_hidden(decision, standing));
            standings.filter_map(|standing| Some((standing, decision.quota_of(standing)?)))
        };
        let policies = if is_planned {
            plan.policy_line.clone()
        } else {
            policy_line(described().map(|(_, quota)| quota))
        };
        for (name, line) in [(RATELIMIT_POLICY, policies), (RATELIMIT, standings_line(described()))] {
            let Some(line) = line else { continue };
            match headers.entry(name) {
                Entry::Vacant(empty) => drop(empty.insert(line)),
                Entry::Occupied(mut theirs) => {
                    let both = match already {
                        Already::Replaced => line,
                        Already::Theirs => join(theirs.iter(), &line),
                        Already::Both => renew(theirs.iter(), &line),
                    };
                    theirs.insert(both);
                }
            }
        }
    }
    if style.exposes {
        let ours = [LIMIT, REMAINING, RESET, RATELIMIT_POLICY, RATELIMIT, RETRY_AFTER];
        expose(headers, &ours);
    }
}

/// Says that a refused request may be tried again after so many seconds, or after more if that is what it says.
pub(crate) fn come_back_after(headers: &mut HeaderMap, seconds: u64) {
    let said = headers.get(RETRY_AFTER).and_then(whole_number);
    if said.is_none_or(|said| said < seconds) {
        headers.insert(RETRY_AFTER, number(seconds));
    }
}

/// A refusal is for this moment and this client: no cache may keep it (RFC 6585, section 4).
pub(crate) fn forbid_caching(headers: &mut HeaderMap) {
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Whole seconds after which a refused request may be tried again: at least 1, and never before the wait is over.
pub(crate) fn retry_after(decision: &Decision) -> Option<u64> {
    decision.retry_after().map(|wait| ceil_seconds(wait).max(1))
}

/// The standing whose numbers clients see: that of the quota that decided, if its policy is not hidden; otherwise the
/// tightest of those that are not.
pub(crate) fn shown(decision: &Decision) -> Option<&Standing> {
    if !hides(decision) {
        return Some(decision.deciding());
    }
    let strictness = |standing: &&Standing| match decision.outcome() {
        Outcome::Allowed => (true, 0, standing.remaining(), Reverse(standing.reset_after())),
        _ => {
            let wait = standing.available_after().as_micros();
            (standing.passed(), u128::MAX - wait, standing.remaining(), Reverse(standing.reset_after()))
        }
    };
    let visible = decision.standings().iter().filter(|standing| !is_hidden(decision, standing));
    visible.min_by_key(strictness)
}

/// The names of the quotas that refused, for the body.
pub(crate) fn violated(decision: &Decision) -> impl Iterator<Item = &str> {
    let refused = decision.standings().iter().filter(|standing| !standing.passed());
    refused
        .filter(|standing| decision.outcome() != Outcome::Allowed && !is_hidden(decision, standing))
        .filter_map(|standing| decision.quota_of(standing))
        .map(PolicyQuota::label)
}

fn hides(decision: &Decision) -> bool {
    decision.policies().is_some_and(|policies| policies.iter().any(|policy| policy.is_hidden()))
}

fn is_hidden(decision: &Decision, standing: &Standing) -> bool {
    decision.policy_of(standing).is_some_and(|policy| policy.is_hidden())
}

/// Whether theirs are the numbers to show: a service's own that leave less are not loosened.
fn leaves_less(theirs: &HeaderValue, already: Already, standing: &Standing) -> bool {
    whole_number(theirs).is_some_and(|theirs| match already {
        Already::Replaced => false,
        Already::Theirs => theirs <= standing.remaining(),
        // What a layer of ours says is left is left here, or less.
        Already::Both => theirs < standing.remaining(),
    })
}

fn whole_number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

fn reset(kind: LegacyReset, after: Duration) -> u64 {
    ceil_seconds(match kind {
        LegacyReset::Delta => after,
        // A clock before 1970 is not a clock.
        LegacyReset::Epoch => {
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(after)
        }
    })
}
