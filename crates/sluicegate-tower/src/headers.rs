//! The header fields that tell a client where it stands.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sluicegate_core::{Decision, Outcome, Policy, PolicyQuota, Standing};
use smallvec::SmallVec;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Which header fields responses carry. `Retry-After` is on every refusal that a wait would help, whatever is chosen.
///
/// - `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` describe the quota that decided; the reset
///   is in seconds from now.
/// - `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11) describe every quota.
///
/// Seconds are rounded up, what remains is rounded down.
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

impl Headers {
    fn legacy(self) -> bool {
        matches!(self, Self::All | Self::Legacy)
    }

    fn ietf(self) -> bool {
        matches!(self, Self::All | Self::Ietf)
    }
}

/// Structured fields hold integers of at most 15 digits (RFC 9651, section 3.3.1).
pub(crate) const MOST: u64 = 999_999_999_999_999;

/// What can be said of a set of policies before any request: made once, and anew when a policy is replaced.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) policies: Arc<[Arc<Policy>]>,
    pub(crate) replacements: u64,
    policy_line: HeaderValue,
    /// `X-RateLimit-Limit` of each quota of each policy.
    limits: Box<[Box<[HeaderValue]>]>,
}

impl Plan {
    pub(crate) fn new(policies: Arc<[Arc<Policy>]>, replacements: u64) -> Self {
        let limit = |quota: &PolicyQuota| number(quota.rule().capacity());
        let limits = policies.iter().map(|policy| policy.quotas().iter().map(limit).collect()).collect();
        let quotas = policies.iter().flat_map(|policy| policy.quotas());
        let policy_line = policy_line(quotas);
        Self { policies, replacements, policy_line, limits }
    }
}

/// Adds the chosen fields for a decision. What `plan` has ready is used if the decision is on exactly its policies: not
/// if layers stack, or a limit was skipped.
pub(crate) fn write(headers: &mut HeaderMap, chosen: Headers, decision: &Decision, plan: &Plan) {
    let is_planned = decision.policies().is_some_and(|policies| Arc::ptr_eq(policies, &plan.policies));
    let refused_for = retry_after(decision);
    if chosen == Headers::None && refused_for.is_none() {
        return;
    }
    if chosen == Headers::All {
        // Room for all that a response gets: a map that grows hashes and moves what it has again.
        headers.reserve(8);
    }
    let deciding = decision.deciding();
    if chosen.legacy() {
        let limit =
            plan.limits.get(deciding.policy_index()).and_then(|quotas| quotas.get(deciding.quota_index()));
        let limit = limit.filter(|_| is_planned).cloned();
        headers.insert(LIMIT, limit.unwrap_or_else(|| number(decision.limit())));
        headers.insert(REMAINING, number(decision.remaining()));
        headers.insert(RESET, number(ceil_seconds(decision.reset_after())));
    }
    if let Some(seconds) = refused_for {
        headers.insert(RETRY_AFTER, number(seconds));
    }
    if chosen.ietf() {
        let described = || decision.standings().iter().filter_map(|s| Some((s, decision.quota_of(s)?)));
        headers.insert(
            RATELIMIT_POLICY,
            if is_planned {
                plan.policy_line.clone()
            } else {
                policy_line(described().map(|(_, quota)| quota))
            },
        );
        if let Some(line) = standings_line(described()) {
            headers.insert(RATELIMIT, line);
        }
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

pub(crate) fn ceil_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// How many numbers are kept as text: the seconds of an hour, and most limits.
const KEPT: usize = 4_096;

/// The numbers below `KEPT`, four digits each.
static DIGITS: [u8; KEPT * 4] = {
    let mut digits = [b'0'; KEPT * 4];
    let mut number = 0;
    while number < KEPT {
        let (mut rest, mut at) = (number, number * 4 + 3);
        while rest > 0 {
            digits[at] = b"0123456789"[rest % 10];
            (rest, at) = (rest / 10, at - 1);
        }
        number += 1;
    }
    digits
};

static TEXT: &str = match std::str::from_utf8(&DIGITS) {
    Ok(text) => text,
    Err(_) => panic!("digits are text"),
};

/// A number as a field value, without an allocation if it is a usual one.
fn number(number: u64) -> HeaderValue {
    match usize::try_from(number) {
        Ok(kept) if kept < KEPT => {
            let digits = if kept < 10 {
                1
            } else if kept < 100 {
                2
            } else if kept < 1_000 {
                3
            } else {
                4
            };
            HeaderValue::from_static(&TEXT[kept * 4 + 4 - digits..kept * 4 + 4])
        }
        // `HeaderValue::from(number)` would allocate twice.
        _ => {
            let mut digits = itoa::Buffer::new();
            HeaderValue::from_str(digits.format(number.min(MOST)))
                .unwrap_or_else(|_| HeaderValue::from_static("0"))
        }
    }
}

/// `"login";r=0;t=42, "day";r=7`. A quota that was asked twice is named once, where it is tightest.
fn standings_line<'a>(
    standings: impl Iterator<Item = (&'a Standing, &'a PolicyQuota)> + Clone,
) -> Option<HeaderValue> {
    // Put together on the stack and copied once it is whole: one allocation.
    let mut line: SmallVec<[u8; 128]> = SmallVec::new();
    for (index, (standing, quota)) in standings.clone().enumerate() {
        let label = quota.label();
        if standings.clone().take(index).any(|(_, earlier)| earlier.label() == label) {
            continue;
        }
        let same = standings.clone().skip(index).filter(|(_, other)| other.label() == label);
        let tightest = same.map(|(standing, _)| standing).min_by_key(|standing| {
            (standing.passed(), standing.remaining(), Reverse(standing.available_after()))
        });
        let standing = tightest.unwrap_or(standing);
        let mut digits = itoa::Buffer::new();
        line.extend_from_slice(if index == 0 { b"\"" } else { b", \"" });
        line.extend_from_slice(label.as_bytes());
        line.extend_from_slice(b"\";r=");
        line.extend_from_slice(digits.format(standing.remaining().min(MOST)).as_bytes());
        if !standing.available_after().is_zero() {
            line.extend_from_slice(b";t=");
            let seconds = ceil_seconds(standing.available_after());
            line.extend_from_slice(digits.format(seconds.min(MOST)).as_bytes());
        }
    }
    // Digits, policy names and punctuation of ours are always a valid value; an empty one is left out.
    if line.is_empty() { None } else { HeaderValue::from_bytes(&line).ok() }
}

/// `"login";q=5;w=60, "day";q=100;w=86400`
fn policy_line<'a>(quotas: impl Iterator<Item = &'a PolicyQuota>) -> HeaderValue {
    let mut line = String::new();
    let mut named: Vec<&str> = Vec::new();
    for quota in quotas {
        if named.contains(&quota.label()) {
            continue;
        }
        named.push(quota.label());
        let (units, seconds) = window(quota);
        let comma = if line.is_empty() { "" } else { ", " };
        line += &format!("{comma}\"{}\";q={}", quota.label(), units.min(MOST));
        if let Some(seconds) = seconds {
            line += &format!(";w={}", seconds.min(MOST));
        }
    }
    HeaderValue::from_str(&line).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A quota as so many units in so many whole seconds: a bucket is its burst in the time that refills it. Windows of
/// less than a second cannot be said.
fn window(policy_quota: &PolicyQuota) -> (u64, Option<u64>) {
    let (quota, capacity) = (policy_quota.quota(), policy_quota.rule().capacity());
    let millionths =
        quota.period().as_micros().saturating_mul(capacity.into()).div_ceil(quota.limit().max(1).into());
    let seconds = u64::try_from(millionths.div_ceil(1_000_000)).unwrap_or(u64::MAX);
    (capacity, (millionths >= 1_000_000).then_some(seconds))
}

/// The names of the quotas that refused, for the body.
pub(crate) fn violated(decision: &Decision) -> impl Iterator<Item = &str> {
    let refused = decision.standings().iter().filter(|standing| !standing.passed());
    refused
        .filter(|_| decision.outcome() != Outcome::Allowed)
        .filter_map(|s| decision.quota_of(s))
        .map(PolicyQuota::label)
}
