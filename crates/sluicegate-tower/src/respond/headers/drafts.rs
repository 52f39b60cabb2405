//! The fields of earlier drafts, which clients of other limiters read: [`Draft`].
//!
//! They tell of one quota, and of the policies without names. So they cannot be joined with those of a service behind the
//! layer, and the tighter ones of the two are told.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::respond::decided::Shown;
use crate::respond::headers::lines::{Line, ceil_seconds, number, window};
use crate::respond::headers::{Already, RATELIMIT, RATELIMIT_POLICY, set, whole_number};

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Those that no other family has.
pub(super) const FIELDS: [HeaderName; 3] = [LIMIT, REMAINING, RESET];

/// A draft that came before the one that the lists are of.
#[derive(Clone, Copy)]
pub(super) enum Draft {
    /// A field for each number.
    Six,
    /// A dictionary of them.
    Seven,
}

impl Draft {
    /// A service's own fields that leave less are not loosened.
    #[cold]
    pub(super) fn write(
        self,
        headers: &mut HeaderMap,
        shown: Shown<'_>,
        refused_for: Option<u64>,
        already: Already,
    ) {
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
        for (name, value) in FIELDS.into_iter().zip(numbers).chain(lists) {
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
