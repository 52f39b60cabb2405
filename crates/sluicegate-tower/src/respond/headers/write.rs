//! Writing the fields of a response.
//!
//! One pass for both families, after the service or the responder has written its own fields: ours
//! are joined with theirs, or replace them in a refusal. Lines about policies are prepared once per
//! set of policies; what is left is formatted per response.

use std::time::Duration;

use http::header::{Entry, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sluicegate_core::policy::PolicyQuota;

use crate::respond::decided::{Described, Shown};
use crate::respond::headers::drafts::{self, Draft};
use crate::respond::headers::join::{Left, Lines, expose};
use crate::respond::headers::lines::{ceil_seconds, number, policy_line, standings_line, tightest};
use crate::respond::headers::spring;
use crate::respond::headers::{
    Already, ENVOY, HeaderFields, LIMIT, LegacyReset, RATELIMIT, RATELIMIT_POLICY, REMAINING, RESET, Style,
    come_back_after, has_any, repeat_wait, set,
};

/// Adds the chosen fields for a decision; `refused_for` is the wait of a refusal, in seconds. `prepared` is the value of
/// `RateLimit-Policy`, where it is known: not if layers stack, or if limits were asked that seldom meet.
pub(crate) fn write(
    headers: &mut HeaderMap,
    style: &Style,
    shown: Shown<'_>,
    refused_for: Option<u64>,
    prepared: Option<Option<HeaderValue>>,
    already: Already,
) {
    if !style.shows() && refused_for.is_none() {
        return;
    }
    let (has_legacy, has_ietf) = (style.chosen.legacy(), style.lists(!shown.decided.is_allowed()));
    if has_legacy && has_ietf {
        // Room for all that a response gets: a map that grows hashes and moves what it has again.
        headers.reserve(8);
    }
    let refused_for = refused_for.map(|seconds| tell_wait(headers, style, seconds));
    let theirs_are_there = if has_ietf {
        insert_lists(headers, (shown, refused_for), prepared, already)
    } else {
        has_legacy && already != Already::Replaced && has_any(headers, &[RATELIMIT])
    };
    let theirs = if theirs_are_there { join_lists(headers, has_ietf, shown, refused_for) } else { None };
    if let Some(standing) = shown.status.filter(|_| has_legacy) {
        let reset = |after: Duration| match style.reset {
            LegacyReset::Delta => ceil_seconds(after),
            LegacyReset::Epoch => ceil_seconds(shown.at(after)),
        };
        let numbers = match theirs.filter(|theirs| theirs.remaining <= standing.remaining()) {
            Some(Left { limit, remaining, available_after }) => Numbers {
                limit,
                remaining,
                reset: available_after.map(|after| reset(Duration::from_secs(after))),
            },
            None => Numbers {
                limit: Some(standing.capacity()),
                remaining: standing.remaining(),
                reset: Some(reset(standing.reset_after())),
            },
        };
        numbers.write(headers, already);
    }
    match style.chosen {
        HeaderFields::Draft6 => Draft::Six.write(headers, shown, refused_for, already),
        HeaderFields::Draft7 => Draft::Seven.write(headers, shown, refused_for, already),
        HeaderFields::Spring => spring::write(headers, shown, already),
        HeaderFields::AllOnRefusal
        | HeaderFields::All
        | HeaderFields::Legacy
        | HeaderFields::Ietf
        | HeaderFields::None => {}
    }
    if style.exposes {
        expose_ours(headers, style);
    }
}

/// When a refused request may come back: in seconds, which are returned.
#[inline(never)]
fn tell_wait(headers: &mut HeaderMap, style: &Style, seconds: u64) -> u64 {
    let seconds = come_back_after(headers, seconds);
    repeat_wait(headers, style);
    if style.tells_envoy {
        headers.insert(ENVOY, HeaderValue::from_static("true"));
    }
    seconds
}

/// Cold, as the families that few choose, so that the code of the others stays together: a processor waits longer for code that it
/// has not at hand than it takes to run it.
#[cold]
fn expose_ours(headers: &mut HeaderMap, style: &Style) {
    let ours = [LIMIT, REMAINING, RESET].into_iter().chain(spring::FIELDS).chain(drafts::FIELDS);
    let ours = ours.chain([RATELIMIT_POLICY, RATELIMIT, RETRY_AFTER]).chain(style.wait_also_in.clone());
    expose(headers, ours);
}

fn quota<'a>((_, quota): Described<'a>) -> &'a PolicyQuota {
    quota
}

/// Adds both lists. Says whether there are lists of others, which the new ones have then not replaced.
#[inline(never)]
fn insert_lists(
    headers: &mut HeaderMap,
    (shown, refused_for): (Shown<'_>, Option<u64>),
    prepared: Option<Option<HeaderValue>>,
    already: Already,
) -> bool {
    let policies = prepared.unwrap_or_else(|| policy_line(shown.quotas().map(quota)));
    let lines = [policies, standings_line(shown.quotas(), refused_for)];
    if already != Already::Replaced && has_any(headers, &[RATELIMIT_POLICY, RATELIMIT]) {
        return insert_missing(headers, lines);
    }
    replace_lists(headers, lines);
    false
}

/// Adds those lists of which there are none of others. Says whether one was left out.
#[cold]
fn insert_missing(headers: &mut HeaderMap, lines: [Option<HeaderValue>; 2]) -> bool {
    let mut theirs_are_there = false;
    for (name, line) in [RATELIMIT_POLICY, RATELIMIT].into_iter().zip(lines) {
        match (headers.entry(name), line) {
            (_, None) => {}
            (Entry::Vacant(empty), Some(line)) => drop(empty.insert(line)),
            (Entry::Occupied(_), Some(_)) => theirs_are_there = true,
        }
    }
    theirs_are_there
}

/// Both lists anew, as far as there is something to say.
pub(super) fn replace_lists(headers: &mut HeaderMap, lines: [Option<HeaderValue>; 2]) {
    for (name, line) in [RATELIMIT_POLICY, RATELIMIT].into_iter().zip(lines) {
        if let Some(line) = line {
            headers.insert(name, line);
        }
    }
}

/// Makes one list of theirs and ours, if the response gets ours, and says where the tightest of their quotas stands that we
/// have a looser one of the same name beside.
#[cold]
fn join_lists(
    headers: &mut HeaderMap,
    has_ietf: bool,
    shown: Shown<'_>,
    refused_for: Option<u64>,
) -> Option<Left> {
    let lines = Lines::of(headers);
    let theirs = lines.read();
    // Looked for once for each of ours: theirs may be as many as a field has room for.
    let tighter: Vec<(&str, Left)> = shown
        .quotas()
        .filter_map(|(_, quota)| {
            let ours = tightest(shown.quotas(), quota.label())?;
            let left =
                theirs.tighter(quota.label(), ours.remaining(), ceil_seconds(ours.available_after()))?;
            Some((quota.label(), left))
        })
        .collect();
    if has_ietf {
        let is_told = |quota: &PolicyQuota| !tighter.iter().any(|(label, _)| *label == quota.label());
        let told = || shown.quotas().filter(|(_, quota)| is_told(quota));
        let ours = [policy_line(told().map(quota)), standings_line(told(), refused_for)];
        let both = theirs.join(ours, |member| told().any(|(_, quota)| member.is_called(quota.label())));
        replace_lists(headers, both);
    }
    tighter.into_iter().map(|(_, left)| left).min_by_key(|left| left.remaining)
}

/// The numbers in `X-RateLimit-*`.
struct Numbers {
    limit: Option<u64>,
    remaining: u64,
    reset: Option<u64>,
}

impl Numbers {
    /// A service's own that leave less are not loosened.
    fn write(self, headers: &mut HeaderMap, already: Already) {
        let limit_before = set_number(headers, LIMIT, self.limit);
        if let Some(theirs) = set_number(headers, REMAINING, Some(self.remaining))
            && is_kept(theirs, (headers, limit_before), already, self.remaining)
        {
            return;
        }
        set_number(headers, RESET, self.reset);
    }
}

/// A call, so that its code is at hand for the second field.
#[inline(never)]
fn set_number(headers: &mut HeaderMap, name: HeaderName, value: Option<u64>) -> Option<HeaderValue> {
    set(headers, name, value.map(number))
}

/// Whether theirs leave less, and are the numbers to show: they are put back then.
#[cold]
fn is_kept(
    theirs: HeaderValue,
    (headers, limit_before): (&mut HeaderMap, Option<HeaderValue>),
    already: Already,
    remaining: u64,
) -> bool {
    if spring::units(&theirs, headers).is_some_and(|theirs| already.leaves_less(theirs, remaining)) {
        headers.insert(REMAINING, theirs);
        set(headers, LIMIT, limit_before);
        return true;
    }
    spring::remove(headers);
    false
}
