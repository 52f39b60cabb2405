//! Existing fields of a response, to be joined with ours.
//!
//! They come from an inner layer of ours, or from the service itself, such as an API behind
//! a gateway. Of two quotas with one name, the one that leaves less is shown.

use std::cmp::Reverse;

use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderName, HeaderValue};

use crate::respond::headers::list::{ListMember, add, members, one_line};
use crate::respond::headers::style::{RATELIMIT, RATELIMIT_POLICY};

pub(super) const REPLENISH_RATE: HeaderName = HeaderName::from_static("x-ratelimit-replenish-rate");
pub(super) const BURST_CAPACITY: HeaderName = HeaderName::from_static("x-ratelimit-burst-capacity");
pub(super) const REQUESTED_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-requested-tokens");

/// The fields of Spring. If they are there, `X-RateLimit-Remaining` is a number of tokens.
pub(super) static OF_TOKENS: [HeaderName; 3] = [REPLENISH_RATE, BURST_CAPACITY, REQUESTED_TOKENS];

/// The lines of `RateLimit-Policy` and `RateLimit` that a response has.
#[derive(Debug, Default)]
pub(super) struct ListFields([String; 2]);

/// The quotas that a response already names.
#[derive(Debug, Default)]
pub(crate) struct Theirs<'a> {
    policies: Vec<ListMember<'a>>,
    standings: Vec<ListMember<'a>>,
}

/// The state of one of their quotas.
#[derive(Clone, Copy, Debug)]
pub(super) struct TheirQuota {
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: u64,
    pub(crate) available_after: Option<u64>,
}

/// The numbers in the dictionary of draft 7, `limit=100, remaining=3, reset=5`, which names no quota.
pub(super) fn dictionary(headers: &HeaderMap) -> Option<TheirQuota> {
    let line = one_line(headers.get_all(RATELIMIT).iter())?;
    let number = |name| line.split(',').find_map(|item| item.trim().strip_prefix(name)?.parse().ok());
    let (limit, available_after) = (number("limit="), number("reset="));
    Some(TheirQuota { limit, remaining: number("remaining=")?, available_after })
}

impl ListFields {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self(
            [RATELIMIT_POLICY, RATELIMIT]
                .map(|name| one_line(headers.get_all(name).iter()).unwrap_or_default()),
        )
    }

    /// Parses the lists. An unreadable line counts as empty: joined with ours, it would make ours unreadable.
    pub(crate) fn read(&self) -> Theirs<'_> {
        let [policies, standings] = &self.0;
        let read = |line| members(line).unwrap_or_default();
        Theirs { policies: read(policies), standings: read(standings) }
    }
}

impl Theirs<'_> {
    /// Their quota of this name, if it leaves less than ours of the same name, which has `remaining` units and
    /// more after `available_after` seconds. Theirs is then shown in every field.
    pub(super) fn tighter(&self, label: &str, remaining: u64, available_after: u64) -> Option<TheirQuota> {
        let named = self.standings.iter().filter(|member| member.is_called(label));
        let left = named.filter_map(|member| Some((member.number("r")?, Reverse(member.number("t")))));
        let (least, Reverse(after)) = left.min()?;
        if (least, Reverse(after.unwrap_or(0))) >= (remaining, Reverse(available_after)) {
            return None;
        }
        let policy = self.policies.iter().find(|policy| policy.is_called(label));
        let limit = policy.and_then(|policy| policy.number("q"));
        Some(TheirQuota { limit, remaining: least, available_after: after })
    }

    /// Both lists, theirs first. Our quotas replace theirs with the same name.
    pub(crate) fn join(
        &self,
        ours: [Option<HeaderValue>; 2],
        is_ours: impl Fn(&ListMember<'_>) -> bool,
    ) -> [Option<HeaderValue>; 2] {
        let [policies, standings] = ours;
        let join = |theirs: &[ListMember<'_>], ours: Option<HeaderValue>| {
            let mut line = String::new();
            for member in theirs.iter().filter(|member| !is_ours(member)) {
                add(&mut line, member.text);
            }
            if line.is_empty() {
                return ours;
            }
            if let Some(ours) = ours.as_ref().and_then(|ours| ours.to_str().ok()) {
                add(&mut line, ours);
            }
            // Members that were read, and ours, are always a valid value.
            HeaderValue::from_str(&line).ok().or(ours)
        };
        [join(&self.policies, policies), join(&self.standings, standings)]
    }
}

/// The units in `X-RateLimit-Remaining`, which counts tokens if the other fields are Spring's.
pub(super) fn units(remaining: &HeaderValue, headers: &HeaderMap) -> Option<u64> {
    let per_unit = headers.get(REQUESTED_TOKENS).and_then(whole_number).unwrap_or(1).max(1);
    Some(whole_number(remaining)? / per_unit)
}

/// Removes Spring's fields of a quota that is no longer shown.
#[cold]
pub(super) fn remove_tokens(headers: &mut HeaderMap) {
    for name in &OF_TOKENS {
        headers.remove(name);
    }
}

pub(super) fn whole_number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

/// Lets scripts of other origins also read these fields, if the response has them.
#[cold]
pub(super) fn expose<'a>(headers: &mut HeaderMap, names: impl Iterator<Item = &'a HeaderName>) {
    let lines = headers.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter();
    let mut line = one_line(lines.filter(|line| line.to_str().is_ok())).unwrap_or_default();
    for name in names.filter(|name| headers.contains_key(*name)) {
        let is_named = line.split(',').any(|named| named.trim().eq_ignore_ascii_case(name.as_str()));
        if !is_named {
            add(&mut line, name.as_str());
        }
    }
    if let Ok(line) = HeaderValue::from_str(&line)
        && !line.is_empty()
    {
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, line);
    }
}
