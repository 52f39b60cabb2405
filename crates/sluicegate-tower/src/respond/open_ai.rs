//! The body of a refusal in the format of OpenAI's API, for its clients.

use std::fmt::{self, Write as _};

use http::StatusCode;

use crate::respond::problem::Escaped;
use crate::respond::refusal::{Refusal, RefusalReason};

/// Writes the error that clients of that API read: its type is the policy without room, such as `tokens`, and its message has the wait in
/// the words that some clients search for.
#[cold]
pub(super) fn write(body: &mut String, refusal: &Refusal<'_>) -> fmt::Result {
    body.push_str(r#"{"error":{"message":""#);
    message(&mut Escaped(body), refusal)?;
    let (kind, code) = match (refusal.reason(), refusal.status()) {
        (RefusalReason::Exceeded(_) | RefusalReason::Suspended(_), _)
        | (_, StatusCode::TOO_MANY_REQUESTS) => {
            (policy(refusal).unwrap_or("requests"), Some("rate_limit_exceeded"))
        }
        (_, StatusCode::UNAUTHORIZED) => ("invalid_request_error", Some("invalid_api_key")),
        (_, status) if status.is_server_error() => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    write!(body, r#"","type":"{kind}","param":null,"code":"#)?;
    match code {
        Some(code) => write!(body, r#""{code}"}}}}"#),
        None => body.write_str("null}}"),
    }
}

/// The name of the policy without room, or of the limit on concurrent requests.
fn policy<'a>(refusal: &Refusal<'a>) -> Option<&'a str> {
    match (refusal.decided(), refusal.standing()) {
        (Some(decided), Some(standing)) => {
            decided.policies.get(standing.policy_index()).map(|policy| policy.name())
        }
        _ => refusal.violated().next(),
    }
}

fn message(text: &mut impl fmt::Write, refusal: &Refusal<'_>) -> fmt::Result {
    match (refusal.reason(), refusal.standing(), policy(refusal)) {
        (RefusalReason::Exceeded(_), Some(standing), Some(policy)) => write!(
            text,
            "Rate limit reached for {policy}: Limit {}, Remaining {}. Please try again in {}s.",
            standing.capacity(),
            standing.remaining(),
            refusal.retry_after_seconds().unwrap_or(1),
        ),
        _ => refusal.say(text),
    }
}
