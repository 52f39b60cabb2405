//! Writes all fields of a usual refusal at once.
//!
//! A map that gets its fields one by one hashes each name. The map here is a copy of one that has the names, and gets only values.

use std::mem;
use std::sync::LazyLock;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use crate::respond::decided::Shown;
use crate::respond::headers::ietf::standings;
use crate::respond::headers::style::{LIMIT, RATELIMIT, RATELIMIT_POLICY, REMAINING, RESET, Style};
use crate::respond::headers::write::{NO_STORE, number};

/// The fields, in the order in which [`write`](super::write::write) and its callers add them.
const NAMES: [HeaderName; 8] =
    [CONTENT_TYPE, CACHE_CONTROL, RETRY_AFTER, RATELIMIT_POLICY, RATELIMIT, LIMIT, REMAINING, RESET];

/// A map with these names. `None` if it has them in another order, because `http` promises none.
static NAMED: LazyLock<Option<HeaderMap>> = LazyLock::new(|| {
    let empty = HeaderValue::from_static("");
    let map: HeaderMap = NAMES.into_iter().map(|name| (name, empty.clone())).collect();
    map.keys().eq(&NAMES).then_some(map)
});

/// The fields of a refusal with this wait, in seconds, and a body of this type. `None` if it has other fields than these.
pub(crate) fn whole(
    style: &Style,
    shown: Shown<'_>,
    wait: Option<u64>,
    policy_line: &dyn Fn() -> Option<HeaderValue>,
    content_type: &HeaderValue,
) -> Option<HeaderMap> {
    if !style.is_usual() {
        return None;
    }
    let (wait, status) = (wait?, shown.status?);
    let (policies, standings) = (policy_line()?, standings(shown, Some(wait))?);
    let mut headers = NAMED.as_ref()?.clone();
    let mut places = headers.values_mut();
    // The empty texts are static: there is nothing to free.
    let mut fill = |value| places.next().map(|place| mem::forget(mem::replace(place, value)));
    fill(content_type.clone())?;
    fill(NO_STORE)?;
    fill(number(wait))?;
    fill(policies)?;
    fill(standings)?;
    fill(number(status.capacity()))?;
    fill(number(status.remaining()))?;
    fill(number(style.reset(shown.decided.stands_at(), status.reset_after())))?;
    Some(headers)
}
