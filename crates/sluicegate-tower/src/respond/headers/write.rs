//! Writing the fields of a response.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{Entry, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::QuotaStatus;

use crate::rate_limit::decided::Decided;
use crate::respond::headers::join::{Left, Lines, expose};
use crate::respond::headers::lines::{ceil_seconds, number, policy_line, standings_line, tightest};
use crate::respond::headers::prepared::Prepared;
use crate::respond::headers::{
    Already, ENVOY, HeaderFields, LIMIT, LegacyReset, RATELIMIT, RATELIMIT_POLICY, REMAINING, RESET, Style,
    come_back_after, hides, is_hidden, shown, whole_number,
};

/// Adds the chosen fields for a decision; `refused_for` is the wait of a refusal, in seconds. The lines that are `prepared`
/// are used if the decision is on exactly these policies: not if layers stack, or if limits were asked that seldom meet.
pub(crate) fn write(
    headers: &mut HeaderMap,
    style: Style,
    decided: &Decided,
    refused_for: Option<u64>,
    prepared: Option<&Prepared>,
    already: Already,
) {
    let prepared = prepared.filter(|prepared| Arc::ptr_eq(&decided.policies, &prepared.policies));
    if !style.shows() && refused_for.is_none() {
        return;
    }
    if style.chosen == HeaderFields::All {
        // Room for all that a response gets: a map that grows hashes and moves what it has again.
        headers.reserve(8);
    }
    let refused_for = refused_for.map(|seconds| come_back_after(headers, seconds));
    if refused_for.is_some() && style.tells_envoy {
        headers.insert(ENVOY, HeaderValue::from_static("true"));
    }
    let hides = prepared.map_or_else(|| hides(decided), |prepared| prepared.has_hidden);
    let described = || {
        let standings = decided.quotas().iter();
        let standings = standings.filter(move |standing| !hides || !is_hidden(decided, standing));
        standings.filter_map(|standing| Some((standing, decided.quota_of(standing)?)))
    };
    let theirs_are_there = if style.ietf() {
        let policies = match prepared {
            Some(prepared) => prepared.policy_line.clone(),
            None => policy_line(described().map(quota)),
        };
        insert_lists(headers, [policies, standings_line(described(), refused_for)], already)
    } else {
        style.legacy() && already != Already::Replaced && headers.contains_key(RATELIMIT)
    };
    let theirs = theirs_are_there.then(|| join_lists(headers, style, described, refused_for)).flatten();
    let deciding = if hides { shown(decided) } else { Some(decided.deciding()) };
    if let Some(standing) = deciding.filter(|_| style.legacy()) {
        let limit = || prepared?.limits.get(standing.policy_index())?.get(standing.quota_index()).cloned();
        let numbers = match theirs.filter(|theirs| theirs.remaining <= standing.remaining()) {
            Some(Left { limit, remaining, available_after }) => Numbers {
                limit: limit.map(number),
                remaining,
                reset_after: available_after.map(Duration::from_secs),
            },
            None => Numbers {
                limit: Some(limit().unwrap_or_else(|| number(standing.capacity()))),
                remaining: standing.remaining(),
                reset_after: Some(standing.reset_after()),
            },
        };
        numbers.write(headers, style.reset, already);
    }
    if style.exposes {
        let ours = [LIMIT, REMAINING, RESET, RATELIMIT_POLICY, RATELIMIT, RETRY_AFTER];
        expose(headers, &ours);
    }
}

type Described<'a> = (&'a QuotaStatus, &'a PolicyQuota);

fn quota<'a>((_, quota): Described<'a>) -> &'a PolicyQuota {
    quota
}

/// Whether there are lists of others, which the new ones have then not replaced.
fn insert_lists(headers: &mut HeaderMap, lines: [Option<HeaderValue>; 2], already: Already) -> bool {
    let mut theirs_are_there = false;
    for (name, line) in [RATELIMIT_POLICY, RATELIMIT].into_iter().zip(lines) {
        match (headers.entry(name), line) {
            (_, None) => {}
            (Entry::Vacant(empty), Some(line)) => drop(empty.insert(line)),
            (Entry::Occupied(mut theirs), Some(line)) if already == Already::Replaced => {
                drop(theirs.insert(line))
            }
            (Entry::Occupied(_), Some(_)) => theirs_are_there = true,
        }
    }
    theirs_are_there
}

/// Makes one list of theirs and ours, if the style has lists, and says where the tightest of their quotas stands that we
/// have a looser one of the same name beside.
#[cold]
fn join_lists<'a, I>(
    headers: &mut HeaderMap,
    style: Style,
    described: impl Fn() -> I,
    refused_for: Option<u64>,
) -> Option<Left>
where
    I: Iterator<Item = Described<'a>> + Clone,
{
    let lines = Lines::of(headers);
    let theirs = lines.read();
    // Looked for once for each of ours: theirs may be as many as a field has room for.
    let tighter: Vec<(&str, Left)> = described()
        .filter_map(|(_, quota)| {
            let ours = tightest(described(), quota.label())?;
            let left =
                theirs.tighter(quota.label(), ours.remaining(), ceil_seconds(ours.available_after()))?;
            Some((quota.label(), left))
        })
        .collect();
    if style.ietf() {
        let is_told = |quota: &PolicyQuota| !tighter.iter().any(|(label, _)| *label == quota.label());
        let told = || described().filter(|(_, quota)| is_told(quota));
        let ours = [policy_line(told().map(quota)), standings_line(told(), refused_for)];
        let both = theirs.join(ours, |member| told().any(|(_, quota)| member.is_called(quota.label())));
        for (name, line) in [RATELIMIT_POLICY, RATELIMIT].into_iter().zip(both) {
            if let Some(line) = line {
                headers.insert(name, line);
            }
        }
    }
    tighter.into_iter().map(|(_, left)| left).min_by_key(|left| left.remaining)
}

/// The numbers in `X-RateLimit-*`.
struct Numbers {
    limit: Option<HeaderValue>,
    remaining: u64,
    reset_after: Option<Duration>,
}

impl Numbers {
    /// A service's own that leave less are not loosened.
    fn write(self, headers: &mut HeaderMap, reset: LegacyReset, already: Already) {
        let limit_before = set(headers, LIMIT, self.limit);
        match headers.insert(REMAINING, number(self.remaining)) {
            Some(theirs) if leaves_less(&theirs, already, self.remaining) => {
                headers.insert(REMAINING, theirs);
                set(headers, LIMIT, limit_before);
            }
            _ => drop(set(headers, RESET, self.reset_after.map(|after| number(seconds(reset, after))))),
        }
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) -> Option<HeaderValue> {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    }
}

/// Whether theirs are the numbers to show.
fn leaves_less(theirs: &HeaderValue, already: Already, remaining: u64) -> bool {
    whole_number(theirs).is_some_and(|theirs| match already {
        Already::Replaced => false,
        Already::Theirs => theirs <= remaining,
        // What a layer of ours says is left is left here, or less.
        Already::Both => theirs < remaining,
    })
}

fn seconds(kind: LegacyReset, after: Duration) -> u64 {
    ceil_seconds(match kind {
        LegacyReset::Delta => after,
        // A clock before 1970 is not a clock.
        LegacyReset::Epoch => {
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(after)
        }
    })
}
