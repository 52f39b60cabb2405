//! The lists of the draft: `RateLimit-Policy` and `RateLimit`, joined with those of others.

use http::header::{Entry, HeaderMap, HeaderValue};
use sluicegate_core::policy::PolicyQuota;
use smallvec::SmallVec;

use crate::respond::decided::{Described, Shown, ceil_seconds};
use crate::respond::headers::join::{Left, Lines};
use crate::respond::headers::lines::{policy_line, standings_line, tightest};
use crate::respond::headers::style::{RATELIMIT, RATELIMIT_POLICY};

/// Writes both lists. Where there are lists of others, ours are joined with them; says then where the tightest of their quotas
/// stands that we have a looser one of the same name beside.
#[inline(never)]
pub(super) fn write_lists(
    headers: &mut HeaderMap,
    (shown, refused_for): (Shown<'_>, Option<u64>),
    prepared: Option<Option<HeaderValue>>,
    theirs_are_there: bool,
) -> Option<Left> {
    let policies = prepared.unwrap_or_else(|| policy_line(&mut shown.quotas().map(quota)));
    let lines = [policies, standings_line(&told(shown, &[]), refused_for)];
    if !theirs_are_there {
        replace_lists(headers, lines);
        return None;
    }
    if insert_missing(headers, lines) { join_lists(headers, true, (shown, refused_for)) } else { None }
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
pub(super) fn join_lists(
    headers: &mut HeaderMap,
    gets_ours: bool,
    (shown, refused_for): (Shown<'_>, Option<u64>),
) -> Option<Left> {
    let lines = Lines::of(headers);
    let theirs = lines.read();
    // Looked for once for each of ours: theirs may be as many as a field has room for.
    let all = told(shown, &[]);
    let tighter: Vec<(&str, Left)> = all
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

/// The quotas that are shown, without those of which theirs is tighter.
fn told<'a>(shown: Shown<'a>, tighter: &[(&str, Left)]) -> SmallVec<[Described<'a>; 4]> {
    let mut told = SmallVec::new();
    for (standing, quota) in shown.quotas() {
        if !tighter.iter().any(|(label, _)| *label == quota.label()) {
            told.push((standing, quota));
        }
    }
    told
}

fn quota<'a>((_, quota): Described<'a>) -> &'a PolicyQuota {
    quota
}
