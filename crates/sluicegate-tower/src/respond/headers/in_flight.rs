//! The fields of limits on concurrent requests.

use http::header::HeaderMap;
use sluicegate_in_flight::InFlight;

use crate::respond::headers::HeaderFields;
use crate::respond::headers::ietf::replace_lists;
use crate::respond::headers::join::{ListFields, expose};
use crate::respond::headers::lines::FieldLine;
use crate::respond::headers::style::Form;

/// Lets scripts of other origins read all fields about limits that the response has.
pub(crate) fn expose_all(headers: &mut HeaderMap) {
    expose(headers, HeaderFields::names().iter());
}

/// Adds the state of a key, after the lists of other layers.
pub(crate) fn say_in_flight(
    headers: &mut HeaderMap,
    form: Form,
    is_refusal: bool,
    in_flight: &InFlight,
    remaining: u64,
) {
    if !form.lists[usize::from(is_refusal)] {
        return;
    }
    let (mut policy, mut standing) = (FieldLine::default(), FieldLine::default());
    policy.name(in_flight.name());
    policy.number(";q=", in_flight.permits());
    policy.text(";qu=\"concurrent-requests\"");
    standing.name(in_flight.name());
    standing.number(";r=", remaining);
    let lines = ListFields::of(headers);
    let both = lines.read().join([policy.value(), standing.value()], |_| false);
    replace_lists(headers, both);
}
