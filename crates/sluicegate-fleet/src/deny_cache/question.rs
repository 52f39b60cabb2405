//! One ask of a request, as the cache sees it: the refusals that answer it, and the conclusions from its answer for similar asks.

use std::time::Duration;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::policy::PolicyQuota;
use sluicegate_core::store::{Ask, Mode, QuotaStatus};
use smallvec::SmallVec;

/// A key under a policy, as a randomly keyed hash of 128 bits, so that memory per key does not depend on its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub(super) u128);

/// The reports that the cache had seen.
///
/// If the cache was cleared since, or the key's latest report has a higher number when an answer comes, the key has changed since the
/// question, and the answer may be older than the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of times that the cache was cleared.
    pub(super) clears: u64,
    /// The number of reports about all keys.
    pub(super) reports: u64,
}

/// Around leases, a quota refuses for at least this part of the time in which all of it comes back. Units that come back meanwhile are not
/// lost, and one call takes them all instead of one call each.
const LUMP_PART: u64 = 20;

/// An ask that a refusal may answer.
///
/// One refusal answers two questions about one bucket only if the second asks for no less than the first: costs are compared by quota,
/// as are the longest waits.
#[derive(Clone, Debug)]
pub(super) struct Question {
    place: u8,
    pub(super) id: Id,
    /// The number of the quotas that the key brings; 0 for none.
    pub(super) quotas: u64,
    /// The reports that the cache knew of when it was asked.
    pub(super) mark: Mark,
    /// The cost of each quota that `costs` does not name.
    cost: u64,
    /// The costs by quota, if they differ.
    costs: SmallVec<[u64; 2]>,
    /// The longest wait for a turn.
    pub(super) patience_us: u64,
    /// Whether it takes fewer units if fewer are left.
    takes: bool,
    /// Whether it only checks that the key of another ask is not suspended.
    pub(super) looks: bool,
    /// Whether one more unit may be leased, so that it asks for many at once, and held units may decide it.
    pub(super) leases: bool,
    /// The window of each quota that counts two windows, and 0 for other quotas.
    windows_us: SmallVec<[u64; 2]>,
}

impl Question {
    /// The question of the ask at this index. `None` if it is not a question, or a peek, which needs the store's numbers; a look that only
    /// checks whether the key of a spend is suspended is a question.
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

    pub(super) fn place(&self) -> usize {
        usize::from(self.place)
    }

    /// The window of a quota whose units come back by the counts of two windows; 0 for any other quota.
    fn window_us(&self, quota: u8) -> u64 {
        self.windows_us.get(usize::from(quota)).copied().unwrap_or(0)
    }

    /// Whether the units of a quota come back by the counts of two windows.
    pub(super) fn is_of_windows(&self, quota: u8) -> bool {
        self.window_us(quota) > 0
    }

    /// The longest time by which a refusal is prolonged, so that one call takes all units that have come back: a part of the time in
    /// which all of it comes back, but not beyond the end of a window, because unused units are lost with it.
    pub(super) fn lump_us(&self, quota: u8, reset_us: u64) -> u64 {
        // Units that are counted in this window are forgotten with the next.
        let window_us = self.window_us(quota);
        let rest_us = if reset_us > window_us { reset_us - window_us } else { reset_us };
        rest_us.min(reset_us / LUMP_PART)
    }

    /// The smallest sufficient number of units of a quota.
    pub(super) fn cost_of(&self, quota: u8) -> u64 {
        let cost = self.costs.get(usize::from(quota)).copied().unwrap_or(self.cost);
        if self.takes { cost.min(1) } else { cost }
    }

    /// The smallest cost of a quota that this refusal implies.
    pub(super) fn refused_cost(&self, status: &QuotaStatus) -> u64 {
        // A store that cannot split a cost has refused all of it, and its answer does not cover smaller costs.
        let is_whole = self.takes && status.remaining() > 0;
        if is_whole { self.cost } else { self.cost_of(quota_of(status)) }
    }
}

/// The index of a quota in its policy.
pub(super) fn quota_of(status: &QuotaStatus) -> u8 {
    u8::try_from(status.quota_index()).unwrap_or(u8::MAX)
}

/// Whole microseconds, rounded up, so that no wait is too short.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}
