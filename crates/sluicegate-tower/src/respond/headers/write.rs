//! Writes the fields of a response, including the numbers of `X-RateLimit-*`.
//!
//! One pass writes all forms, after the service or the responder has written its own fields: ours are joined with theirs, or replace
//! them in a refusal. The lists and the rarer forms are written elsewhere.

use std::time::Duration;

use http::header::{CACHE_CONTROL, Entry, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sluicegate_core::store::QuotaStatus;

use crate::respond::decided::{MOST, Shown};
use crate::respond::headers::digits;
use crate::respond::headers::ietf::{join_lists, write_lists};
use crate::respond::headers::join::{TheirQuota, dictionary, expose, remove_tokens, units, whole_number};
use crate::respond::headers::style::{Already, Form, LIMIT, LISTS, NUMBERS, REMAINING, RESET, Style};

const ENVOY: HeaderName = HeaderName::from_static("x-envoy-ratelimited");
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Adds the chosen fields for a decision; `refused_for` is the wait of a refusal, in seconds. `policy_line` returns the value of
/// `RateLimit-Policy`.
pub(crate) fn write(
    headers: &mut HeaderMap,
    style: &Style,
    shown: Shown<'_>,
    refused_for: Option<u64>,
    policy_line: &dyn Fn() -> Option<HeaderValue>,
    already: Already,
) {
    let Form { legacy, lists, own, .. } = style.form;
    let lists = lists[usize::from(!shown.decided.is_allowed())];
    if !legacy && !lists && own.is_none() && refused_for.is_none() {
        return;
    }
    if legacy && lists {
        // Reserves room for all fields at once, because a map that grows rehashes its entries.
        headers.reserve(8);
    }
    let refused_for = refused_for.map(|seconds| tell_wait(headers, style, seconds));
    let is_there = |names| (legacy || lists) && already != Already::Replaced && has_any(headers, names);
    let (theirs_are_there, numbers_are_there) = (is_there(&LISTS), is_there(&NUMBERS));
    let nameless = if theirs_are_there { tighter_dictionary(headers, shown, already) } else { None };
    let theirs = if nameless.is_some() {
        nameless
    } else if lists {
        write_lists(headers, (shown, refused_for), policy_line(), theirs_are_there)
    } else if theirs_are_there {
        join_lists(headers, false, (shown, refused_for))
    } else {
        None
    };
    if legacy && let Some(standing) = shown.status {
        let stands_at = shown.decided.stands_at();
        let numbers = match theirs.filter(|theirs| theirs.remaining <= standing.remaining()) {
            Some(TheirQuota { limit, remaining, available_after }) => LegacyNumbers {
                limit,
                remaining,
                reset: available_after.map(|after| style.reset(stands_at, Duration::from_secs(after))),
            },
            None => LegacyNumbers::of(standing, style, stands_at),
        };
        if numbers_are_there || already == Already::Replaced {
            numbers.join(headers, already);
        } else {
            numbers.add(headers);
        }
    }
    if let Some(write_own) = own {
        write_own(headers, shown, refused_for, already);
    }
    if !style.exposes.is_empty() {
        expose(headers, style.exposes.iter().chain(&style.wait_also_in));
    }
}

/// Adds `X-RateLimit-*` to the response to an admitted request, if the layer has these fields alone and the response has no field about
/// limits. Returns whether it has added them.
#[inline]
pub(crate) fn add_numbers(
    headers: &mut HeaderMap,
    style: &Style,
    status: &QuotaStatus,
    stands_at: Duration,
) -> bool {
    let adds = style.is_numbers_alone() && !has_any(headers, &NUMBERS) && !has_any(headers, &LISTS);
    if adds {
        LegacyNumbers::of(status, style, stands_at).add(headers);
    }
    adds
}

/// Their quota in the dictionary of draft 7, which cannot be joined with our list, if it leaves less than ours: it then stays.
#[cold]
fn tighter_dictionary(headers: &HeaderMap, shown: Shown<'_>, already: Already) -> Option<TheirQuota> {
    let ours = shown.status?.remaining();
    dictionary(headers).filter(|theirs| already.leaves_less(theirs.remaining, ours))
}

/// The numbers in `X-RateLimit-*`.
struct LegacyNumbers {
    limit: Option<u64>,
    remaining: u64,
    reset: Option<u64>,
}

impl LegacyNumbers {
    #[inline]
    fn of(status: &QuotaStatus, style: &Style, stands_at: Duration) -> Self {
        let reset = Some(style.reset(stands_at, status.reset_after()));
        Self { limit: Some(status.capacity()), remaining: status.remaining(), reset }
    }

    /// Adds the fields to a response that has none of them.
    fn add(self, headers: &mut HeaderMap) {
        if let Some(limit) = self.limit {
            headers.append(LIMIT, number(limit));
        }
        headers.append(REMAINING, number(self.remaining));
        if let Some(reset) = self.reset {
            headers.append(RESET, number(reset));
        }
    }

    /// Writes the fields, unless the service's own fields leave less.
    #[cold]
    fn join(self, headers: &mut HeaderMap, already: Already) {
        let limit_before = set_number(headers, LIMIT, self.limit);
        if let Some(theirs) = set_number(headers, REMAINING, Some(self.remaining))
            && is_kept(theirs, (headers, limit_before), already, self.remaining)
        {
            return;
        }
        set_number(headers, RESET, self.reset);
    }
}

fn set_number(headers: &mut HeaderMap, name: HeaderName, value: Option<u64>) -> Option<HeaderValue> {
    set(headers, name, value.map(number))
}

/// Whether their numbers leave less and are kept: then they are put back.
#[cold]
fn is_kept(
    theirs: HeaderValue,
    (headers, limit_before): (&mut HeaderMap, Option<HeaderValue>),
    already: Already,
    remaining: u64,
) -> bool {
    if units(&theirs, headers).is_some_and(|theirs| already.leaves_less(theirs, remaining)) {
        headers.insert(REMAINING, theirs);
        set(headers, LIMIT, limit_before);
        return true;
    }
    remove_tokens(headers);
    false
}

/// A number as a field value, without an allocation if it is a usual one.
#[inline]
pub(super) fn number(number: u64) -> HeaderValue {
    digits::kept(number).unwrap_or_else(|| written(number))
}

#[cold]
fn written(number: u64) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    // `HeaderValue::from(number)` would allocate twice.
    HeaderValue::from_str(digits.format(number.min(MOST))).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// Sets a field to this value, or removes it; returns the old value.
pub(super) fn set(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: Option<HeaderValue>,
) -> Option<HeaderValue> {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    }
}

/// Whether a response has one of these fields. A scan of the few fields of a usual response is faster than a look-up, which hashes
/// the name.
#[inline]
fn has_any(headers: &HeaderMap, names: &[HeaderName]) -> bool {
    if headers.len() > 8 {
        names.iter().any(|name| headers.contains_key(name))
    } else {
        headers.keys().any(|name| names.contains(name))
    }
}

/// Writes the seconds after which a refused request may retry, and returns them.
#[inline(never)]
fn tell_wait(headers: &mut HeaderMap, style: &Style, seconds: u64) -> u64 {
    let seconds = come_back_after(headers, seconds);
    repeat_wait(headers, style);
    if style.tells_envoy {
        headers.insert(ENVOY, HeaderValue::from_static("true"));
    }
    seconds
}

/// Sets `Retry-After` to this many seconds, unless the response already has a larger number. Returns the number that the
/// response has afterwards.
pub(crate) fn come_back_after(headers: &mut HeaderMap, seconds: u64) -> u64 {
    match headers.entry(RETRY_AFTER) {
        Entry::Vacant(empty) => _ = empty.insert(number(seconds)),
        Entry::Occupied(mut said) => match whole_number(said.get()) {
            Some(said) if said >= seconds => return said,
            _ => _ = said.insert(number(seconds)),
        },
    }
    seconds
}

/// Repeats the wait of a refusal in the configured field.
pub(crate) fn repeat_wait(headers: &mut HeaderMap, style: &Style) {
    if let Some(name) = &style.wait_also_in
        && let Some(wait) = headers.get(RETRY_AFTER).cloned()
    {
        headers.insert(name, wait);
    }
}

/// A refusal is for this moment and this client: no cache may keep it (RFC 6585, section 4).
pub(crate) fn forbid_caching(headers: &mut HeaderMap) {
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, NO_STORE);
    }
}
