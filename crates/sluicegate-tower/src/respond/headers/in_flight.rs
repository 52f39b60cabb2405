//! The fields of limits on how many at once.

use http::header::{HeaderMap, HeaderValue};
use sluicegate_core::in_flight::InFlight;

use crate::respond::headers::join::Lines;
use crate::respond::headers::{HeaderFields, RATELIMIT, RATELIMIT_POLICY};

/// Says where a key stands, behind what other layers have said.
pub(crate) fn say_in_flight(
    headers: &mut HeaderMap,
    fields: HeaderFields,
    in_flight: &InFlight,
    remaining: u64,
) {
    if !matches!(fields, HeaderFields::All | HeaderFields::Ietf) {
        return;
    }
    let (name, permits) = (in_flight.name(), in_flight.permits());
    let ours =
        [format!("\"{name}\";q={permits};qu=\"concurrent-requests\""), format!("\"{name}\";r={remaining}")];
    // Names consist of characters that are always a valid value.
    let ours = ours.map(|line| HeaderValue::try_from(line).ok());
    let lines = Lines::of(headers);
    let both = lines.read().join(ours, |_| false);
    for (name, line) in [RATELIMIT_POLICY, RATELIMIT].into_iter().zip(both) {
        if let Some(line) = line {
            headers.insert(name, line);
        }
    }
}
