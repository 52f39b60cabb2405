//! The values of fields that are lists of quotas.
//!
//! They are written on the stack and copied once, because fields are written for every response.

use std::cmp::Reverse;

use http::HeaderValue;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::QuotaStatus;
use smallvec::SmallVec;

use crate::respond::decided::{MOST, ShownQuota, ceil_seconds};

/// A list of quotas, each a name and numbers. Built on the stack and copied when it is complete: one allocation.
pub(super) struct FieldLine {
    short: [u8; 128],
    length: usize,
    /// The whole text, once it does not fit into the array.
    long: Vec<u8>,
}

impl Default for FieldLine {
    fn default() -> Self {
        Self { short: [0; 128], length: 0, long: Vec::new() }
    }
}

impl FieldLine {
    pub(super) fn name(&mut self, label: &str) {
        self.next_item();
        self.text("\"");
        self.text(label);
        self.text("\"");
    }

    /// Starts the next item.
    pub(super) fn next_item(&mut self) {
        if self.length > 0 {
            self.text(", ");
        }
    }

    /// A parameter that is a number, after its name.
    pub(super) fn number(&mut self, name: &str, number: u64) {
        self.text(name);
        self.text(itoa::Buffer::new().format(number.min(MOST)));
    }

    #[inline]
    pub(super) fn text(&mut self, text: &str) {
        let begin = self.length;
        self.length += text.len();
        match self.short.get_mut(begin..self.length) {
            Some(place) => place.copy_from_slice(text.as_bytes()),
            None => self.write_long(begin, text),
        }
    }

    #[cold]
    fn write_long(&mut self, begin: usize, text: &str) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..begin]);
        }
        self.long.extend_from_slice(text.as_bytes());
    }

    /// The line as a value, which our digits, policy names and punctuation always are; `None` if the line is empty.
    pub(super) fn value(self) -> Option<HeaderValue> {
        let text = self.short.get(..self.length).unwrap_or(&self.long);
        if text.is_empty() { None } else { HeaderValue::from_bytes(text).ok() }
    }
}

/// `"login";r=0;t=42, "day";r=7`. A quota that was asked twice is listed once, with its tightest status.
///
/// With `longest`, the seconds of `Retry-After`, no `t` is larger: otherwise a quota that still has room would make a client wait
/// longer than necessary.
pub(super) fn standings_line(standings: &[ShownQuota<'_>], longest: Option<u64>) -> Option<HeaderValue> {
    let mut line = FieldLine::default();
    for (index, (standing, quota)) in standings.iter().enumerate() {
        let label = quota.label();
        if standings[..index].iter().any(|(_, earlier)| earlier.label() == label) {
            continue;
        }
        let standing = tightest(&standings[index..], label).unwrap_or(standing);
        line.name(label);
        line.number(";r=", standing.remaining());
        let seconds = ceil_seconds(standing.available_after());
        if seconds > 0 && longest.is_none_or(|longest| seconds <= longest) {
            line.number(";t=", seconds);
        }
    }
    line.value()
}

/// The tightest status of the quotas with this name.
pub(super) fn tightest<'a>(standings: &[ShownQuota<'a>], label: &str) -> Option<&'a QuotaStatus> {
    let same = standings.iter().filter(|(_, quota)| quota.label() == label);
    same.map(|(standing, _)| *standing)
        .min_by_key(|standing| (standing.passed(), standing.remaining(), Reverse(standing.available_after())))
}

/// `"login";q=5;w=60, "day";q=100;w=86400`; `None` if there are no quotas.
pub(crate) fn policy_line(quotas: &mut dyn Iterator<Item = &PolicyQuota>) -> Option<HeaderValue> {
    let (mut line, mut named) = (FieldLine::default(), SmallVec::<[&str; 4]>::new());
    for quota in quotas {
        let label = quota.label();
        if named.contains(&label) {
            continue;
        }
        named.push(label);
        let (units, seconds) = window(quota);
        line.name(label);
        line.number(";q=", units);
        if let Some(seconds) = seconds {
            line.number(";w=", seconds);
        }
    }
    line.value()
}

/// A quota as units in whole seconds: a bucket is its burst in the time that refills it. Windows of
/// less than a second cannot be expressed.
pub(super) fn window(policy_quota: &PolicyQuota) -> (u64, Option<u64>) {
    let (quota, capacity) = (policy_quota.quota(), policy_quota.rule().capacity());
    let millionths =
        quota.period().as_micros().saturating_mul(capacity.into()).div_ceil(quota.limit().max(1).into());
    let seconds = u64::try_from(millionths.div_ceil(1_000_000)).unwrap_or(u64::MAX);
    (capacity, (millionths >= 1_000_000).then_some(seconds))
}
