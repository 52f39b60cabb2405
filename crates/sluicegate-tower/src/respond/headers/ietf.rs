//! The lists of the draft: `RateLimit-Policy` and `RateLimit`, joined with those of others.

use http::header::{Entry, HeaderMap, HeaderValue};
use sluicegate_core::policy::PolicyQuota;
use smallvec::SmallVec;

use crate::respond::decided::{Shown, ShownQuota, ceil_seconds};
use crate::respond::headers::join::{ListFields, TheirQuota};
use crate::respond::headers::lines::{policy_line, standings_line, tightest};
use crate::respond::headers::style::{RATELIMIT, RATELIMIT_POLICY};

/// Writes both lists, joined with lists of others if there are any. Then returns the tightest of their quotas that shares a name
/// with a looser one of ours.
#[inline(never)]
pub(super) fn write_lists(
    headers: &mut HeaderMap,
    (shown, refused_for): (Shown<'_>, Option<u64>),
    policies: Option<HeaderValue>,
    theirs_are_there: bool,
) -> Option<TheirQuota> {
    let lines = [policies, standings(shown, refused_for)];
    if !theirs_are_there {
        replace_lists(headers, lines);
        return None;
    }
    if insert_missing(headers, lines) { join_lists(headers, true, (shown, refused_for)) } else { None }
}

/// The value of `RateLimit`; `None` if all quotas are hidden.
pub(super) fn standings(shown: Shown<'_>, refused_for: Option<u64>) -> Option<HeaderValue> {
    standings_line(&told(shown, &[]), refused_for)
}

/// Adds each list unless the response has such a list. Returns whether one was left out.
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

/// Replaces each list for which there is a new one.
pub(super) fn replace_lists(headers: &mut HeaderMap, [policies, standings]: [Option<HeaderValue>; 2]) {
    if let Some(line) = policies {
        headers.insert(RATELIMIT_POLICY, line);
    }
    if let Some(line) = standings {
        headers.insert(RATELIMIT, line);
    }
}

/// Merges our list into theirs, if the response gets ours, and returns the tightest of their quotas that shares a name with a
/// looser one of ours.
#[cold]
pub(super) fn join_lists(
    headers: &mut HeaderMap,
    gets_ours: bool,
    (shown, refused_for): (Shown<'_>, Option<u64>),
) -> Option<TheirQuota> {
    let lines = ListFields::of(headers);
    let theirs = lines.read();
    // Searched once for each of our quotas, because their list may be long.
    let all = told(shown, &[]);
    let tighter: Vec<(&str, TheirQuota)> = all
        .iter()
        .filter_map(|(_, quota)| {
            let ours = tightest(&all, quota.label())?;
            let left =
                theirs.tighter(quota.label(), ours.remaining(), ceil_seconds(ours.available_after()))?;
            Some((quota.label(), left))
        })
        .collect();
    if gets_ours {
        let told = told(shown, &tighter);
        let ours = [policy_line(&mut told.iter().copied().map(quota)), standings_line(&told, refused_for)];
        let both = theirs.join(ours, |member| told.iter().any(|(_, quota)| member.is_called(quota.label())));
        replace_lists(headers, both);
    }
    tighter.into_iter().map(|(_, left)| left).min_by_key(|left| left.remaining)
}

/// The shown quotas, without those for which their quota is tighter.
fn told<'a>(shown: Shown<'a>, tighter: &[(&str, TheirQuota)]) -> SmallVec<[ShownQuota<'a>; 4]> {
    let mut told = SmallVec::new();
    for (standing, quota) in shown.quotas() {
        if !tighter.iter().any(|(label, _)| *label == quota.label()) {
            told.push((standing, quota));
        }
    }
    told
}

fn quota<'a>((_, quota): ShownQuota<'a>) -> &'a PolicyQuota {
    quota
}
