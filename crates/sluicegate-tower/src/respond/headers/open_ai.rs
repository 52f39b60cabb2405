//! The fields of OpenAI's API, for its clients: three for each policy, ending in its name.
//!
//! With policies `requests` and `tokens` they equal the API's own. A reset has the same format, in hours, minutes and seconds.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sluicegate_core::store::QuotaStatus;

use crate::respond::decided::{Shown, ceil_seconds};
use crate::respond::headers::join::whole_number;
use crate::respond::headers::style::Already;
use crate::respond::headers::write::number;

/// The fields of the two policies that clients look for.
pub(super) static FIELDS: [HeaderName; 6] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// Writes the state of each visible policy: its quota with the fewest units left.
#[cold]
pub(super) fn write(headers: &mut HeaderMap, shown: Shown<'_>, _: Option<u64>, already: Already) {
    for (place, policy) in shown.decided.policies.iter().enumerate() {
        let statuses =
            shown.quotas().map(|(status, _)| status).filter(|status| status.policy_index() == place);
        if let Some(status) = statuses.min_by_key(|status| status.remaining()) {
            write_policy(headers, policy.name(), status, already);
        }
    }
}

/// Writes the fields of a policy, unless the service's own fields have fewer units left.
fn write_policy(headers: &mut HeaderMap, policy: &str, status: &QuotaStatus, already: Already) {
    let named = |word: &str| format!("x-ratelimit-{word}-{policy}").parse::<HeaderName>();
    let (Ok(limit), Ok(remaining), Ok(reset)) = (named("limit"), named("remaining"), named("reset")) else {
        return;
    };
    let theirs = headers.get(&remaining).and_then(whole_number);
    if theirs.is_some_and(|theirs| already.leaves_less(theirs, status.remaining())) {
        return;
    }
    headers.insert(limit, number(status.capacity()));
    headers.insert(remaining, number(status.remaining()));
    if let Ok(span) = HeaderValue::from_str(&span(ceil_seconds(status.reset_after()))) {
        headers.insert(reset, span);
    }
}

/// `1h0m9s`, `6m0s`, `45s`.
fn span(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}
