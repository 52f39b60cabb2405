//! The fields of earlier drafts, which clients of other limiters read: [`Draft`].
//!
//! They tell of one quota, and of the policies without names. So they cannot be joined with those of a service behind the
//! layer, and the tighter ones of the two are told.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::respond::decided::{Shown, ceil_seconds};
use crate::respond::headers::join::whole_number;
use crate::respond::headers::lines::{Line, window};
use crate::respond::headers::style::{Already, RATELIMIT, RATELIMIT_POLICY};
use crate::respond::headers::write::{number, set};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Those that no other family has.
pub(super) static FIELDS: [HeaderName; 3] = [LIMIT, REMAINING, RESET];

/// Draft 6: a field for each number.
#[cold]
pub(super) fn write_six(
    headers: &mut HeaderMap,
    shown: Shown<'_>,
    refused_for: Option<u64>,
    already: Already,
) {
    Draft::Six.write(headers, shown, refused_for, already);
}

/// Draft 7: a dictionary of them.
#[cold]
pub(super) fn write_seven(
    headers: &mut HeaderMap,
    shown: Shown<'_>,
    refused_for: Option<u64>,
    already: Already,
) {
    Draft::Seven.write(headers, shown, refused_for, already);
}

/// A draft that came before the one that the lists are of.
#[derive(Clone, Copy)]
enum Draft {
    Six,
    Seven,
}

impl Draft {
    /// A service's own fields that leave less are not loosened.
    fn write(self, headers: &mut HeaderMap, shown: Shown<'_>, refused_for: Option<u64>, already: Already) {
        let Some(standing) = shown.status else { return };
        let (limit, remaining) = (standing.capacity(), standing.remaining());
        if self.left(headers).is_some_and(|theirs| already.leaves_less(theirs, remaining)) {
            return;
        }
        // Where a response has `Retry-After`, the drafts want the reset to be the same moment.
        let reset = refused_for.unwrap_or_else(|| ceil_seconds(standing.reset_after()));
        let mut told = Line::default();
        for (name, value) in [("limit=", limit), ("remaining=", remaining), ("reset=", reset)] {
            told.next_item();
            told.number(name, value);
        }
        let (numbers, told) = match self {
            Self::Six => ([limit, remaining, reset].map(|value| Some(number(value))), None),
            Self::Seven => ([None, None, None], told.value()),
        };
        let lists = [(RATELIMIT_POLICY, policies(shown)), (RATELIMIT, told)];
        // Where there is nothing to say, a service's own are of another quota than the one that is told now.
        for (name, value) in FIELDS.iter().cloned().zip(numbers).chain(lists) {
            set(headers, name, value);
        }
    }

    /// The units that a response says already are left.
    fn left(self, headers: &HeaderMap) -> Option<u64> {
        match self {
            Self::Six => whole_number(headers.get(REMAINING)?),
            Self::Seven => {
                let mut items = headers.get(RATELIMIT)?.to_str().ok()?.split(',');
                items.find_map(|item| item.trim().strip_prefix("remaining=")?.parse().ok())
            }
        }
    }
}

/// `100;w=60, 1000;w=3600`: the quotas whose windows can be said.
fn policies(shown: Shown<'_>) -> Option<HeaderValue> {
    let mut line = Line::default();
    for (_, quota) in shown.quotas() {
        if let (units, Some(seconds)) = window(quota) {
            line.next_item();
            line.number("", units);
            line.number(";w=", seconds);
        }
    }
    line.value()
}
