//! The fields of earlier drafts, for clients of other limiters.
//!
//! They show one quota, and the policies without names. So they cannot be joined with the fields of the inner
//! service, and the tighter of the two are sent.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::respond::decided::{Shown, ceil_seconds};
use crate::respond::headers::join::{dictionary, whole_number};
use crate::respond::headers::lines::{FieldLine, window};
use crate::respond::headers::style::{Already, RATELIMIT, RATELIMIT_POLICY};
use crate::respond::headers::write::{number, set};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// The fields that no other family has.
pub(super) static FIELDS: [HeaderName; 3] = [LIMIT, REMAINING, RESET];

/// Writes the fields of draft 6, one for each number, or of draft 7, which has a dictionary of the numbers.
#[cold]
pub(super) fn write<const SIX: bool>(
    headers: &mut HeaderMap,
    shown: Shown<'_>,
    refused_for: Option<u64>,
    already: Already,
) {
    let Some(standing) = shown.status else { return };
    let (limit, remaining) = (standing.capacity(), standing.remaining());
    if left::<SIX>(headers).is_some_and(|theirs| already.leaves_less(theirs, remaining)) {
        return;
    }
    // If a response has `Retry-After`, the drafts require the reset to be the same moment.
    let reset = refused_for.unwrap_or_else(|| ceil_seconds(standing.reset_after()));
    let mut told = FieldLine::default();
    for (name, value) in [("limit=", limit), ("remaining=", remaining), ("reset=", reset)] {
        told.next_item();
        told.number(name, value);
    }
    let (numbers, told) = match SIX {
        true => ([limit, remaining, reset].map(|value| Some(number(value))), None),
        false => ([None, None, None], told.value()),
    };
    let lists = [(RATELIMIT_POLICY, policies(shown)), (RATELIMIT, told)];
    // A field without a value is removed: the service's own field is about another quota than the one shown now.
    for (name, value) in FIELDS.iter().cloned().zip(numbers).chain(lists) {
        set(headers, name, value);
    }
}

/// The remaining units in the fields of the response.
fn left<const SIX: bool>(headers: &HeaderMap) -> Option<u64> {
    if SIX {
        return whole_number(headers.get(REMAINING)?);
    }
    dictionary(headers).map(|theirs| theirs.remaining)
}

/// `100;w=60, 1000;w=3600`: the quotas with windows of whole seconds.
fn policies(shown: Shown<'_>) -> Option<HeaderValue> {
    let mut line = FieldLine::default();
    for (_, quota) in shown.quotas() {
        if let (units, Some(seconds)) = window(quota) {
            line.next_item();
            line.number("", units);
            line.number(";w=", seconds);
        }
    }
    line.value()
}
