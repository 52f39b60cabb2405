//! One ask of a request, as the cache sees it: whose refusal would answer it, and what an answer says about others like it.

use std::time::Duration;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::{Ask, Mode, QuotaStatus};
use smallvec::SmallVec;

/// A key under a policy, by a hash of 128 bits that is keyed at random: memory per key does not depend on its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub(super) u128);

/// Which reports the cache had heard of.
///
/// If all was forgotten since, or the key's latest report has a higher number when an answer comes, something has happened to the key
/// since the question, and the answer may be older than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The times at which all was forgotten.
    pub(super) clears: u64,
    /// The reports about all keys.
    pub(super) reports: u64,
}

/// Around leases a quota refuses at least for this part of the time in which all of it comes back. Units that come back meanwhile are
/// not lost, and one call takes them all instead of one each.
const LUMP_PART: u64 = 20;

/// An ask that a refusal may answer.
///
/// Two questions about one bucket are answered by the same refusal only if the second wants no less than the first: costs are compared
/// by quota, and so is how long each would wait.
#[derive(Clone, Debug)]
pub(super) struct Question {
    place: u8,
    pub(super) id: Id,
    /// Which quotas of its own the key brings; 0 for none.
    pub(super) quotas: u64,
    /// The refusals that the cache knew of when it was asked.
    pub(super) mark: Mark,
    /// Of each quota that `costs` does not name.
    cost: u64,
    /// By quota, where they differ.
    costs: SmallVec<[u64; 2]>,
    /// How long it would wait for a turn.
    patience_us: u64,
    /// Whether it takes less if there is less.
    takes: bool,
    /// Whether it only looks whether the key of another ask is suspended.
    looks: bool,
    /// Whether a unit more may be leased, so that it asks for many at once.
    leases: bool,
    /// By quota, the window of one that counts the last two, and 0 for another one; none if there is no such quota.
    windows_us: SmallVec<[u64; 2]>,
}

impl Question {
    /// That of the ask at this place; None if it is no question, or a peek, which wants to know how the key stands. A look whether
    /// the key of an ask that spends is suspended is a question.
    pub(super) fn new(
        place: u8,
        ask: &Ask<'_>,
        spends: bool,
        (id, quotas): (Id, u64),
        mark: Mark,
    ) -> Option<Self> {
        let looks = ask.mode() == Mode::Peek;
        let patience_us = match ask.mode() {
            Mode::Spend | Mode::Take => 0,
            Mode::Reserve { longest } => micros(longest),
            Mode::Peek if spends && ask.policy().policy().is_of_suspension() => 0,
            _ => return None,
        };
        let (takes, policy) = (ask.mode() == Mode::Take, ask.numbers());
        // Units of a key that brings quotas of its own are not leased.
        let can_lease = ask.own().is_none() && policy.quotas().iter().all(|of| of.rule().can_lease());
        let leases = patience_us == 0 && can_lease;
        let counts_two = |of: &PolicyQuota| matches!(of.rule(), Rule::SlidingCounter(_));
        let window_us = |of| if counts_two(of) { micros(of.quota().period()) } else { 0 };
        let windows_us = match policy.quotas().iter().any(counts_two) {
            true => policy.quotas().iter().map(window_us).collect(),
            false => SmallVec::new(),
        };
        let (cost, costs) = (ask.cost(), ask.costs().into());
        Some(Self { place, id, quotas, mark, cost, costs, patience_us, takes, looks, leases, windows_us })
    }

    pub(super) fn looks(&self) -> bool {
        self.looks
    }

    pub(super) fn place(&self) -> usize {
        usize::from(self.place)
    }

    pub(super) fn patience_us(&self) -> u64 {
        self.patience_us
    }

    /// Whether it may be decided by units that are leased.
    pub(super) fn leases(&self) -> bool {
        self.leases
    }

    /// The window of a quota whose units come back by the counts of two windows; 0 for another one.
    fn window_us(&self, quota: u8) -> u64 {
        self.windows_us.get(usize::from(quota)).copied().unwrap_or(0)
    }

    /// Whether the units of a quota come back by the counts of two windows.
    pub(super) fn is_of_windows(&self, quota: u8) -> bool {
        self.window_us(quota) > 0
    }

    /// How long a refusal may be prolonged, so that one call takes all that has come back until then: a part of the time in which
    /// all of it comes back, and not beyond the end of a window, with which units are lost that nobody has asked for.
    pub(super) fn lump_us(&self, quota: u8, reset_us: u64) -> u64 {
        // Units that are counted in this window are forgotten with the next.
        let window_us = self.window_us(quota);
        let rest_us = if reset_us > window_us { reset_us - window_us } else { reset_us };
        rest_us.min(reset_us / LUMP_PART)
    }

    /// The fewest units of a quota that would do.
    pub(super) fn cost_of(&self, quota: u8) -> u64 {
        let cost = self.costs.get(usize::from(quota)).copied().unwrap_or(self.cost);
        if self.takes { cost.min(1) } else { cost }
    }

    /// The least cost that a quota has refused by refusing this.
    pub(super) fn refused_cost(&self, status: &QuotaStatus) -> u64 {
        // A store that cannot part a cost has refused all of it, and said nothing about less.
        let is_whole = self.takes && status.remaining() > 0;
        if is_whole { self.cost } else { self.cost_of(quota_of(status)) }
    }
}

/// The place of a quota in its policy.
pub(super) fn quota_of(status: &QuotaStatus) -> u8 {
    u8::try_from(status.quota_index()).unwrap_or(u8::MAX)
}

/// Whole microseconds, rounded up: no wait is told too short.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}
