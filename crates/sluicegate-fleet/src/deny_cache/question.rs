//! One ask of a request, as the cache sees it: whose refusal would answer it, and what an answer says about others like it.

use std::time::Duration;

use sluicegate_core::store::{Ask, Mode, QuotaStatus};
use smallvec::SmallVec;

/// A key under a policy, by a hash of 128 bits that is keyed at random: memory per key does not depend on its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub(super) u128);

/// Which reports the cache had heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(pub(super) u64, pub(super) u32);

/// An ask that a refusal may answer.
#[derive(Clone, Debug)]
pub(super) struct Question {
    place: u8,
    pub(super) id: Id,
    /// The refusals that the cache knew of when it was asked.
    pub(super) mark: Mark,
    cost: u64,
    costs: SmallVec<[u64; 2]>,
    /// How long it would wait for a turn.
    patience_us: u64,
    /// Whether it takes less if there is less.
    takes: bool,
    /// Whether it only looks whether the key of another ask is suspended.
    looks: bool,
}

impl Question {
    /// That of the ask at this place; None if it is no question, or a peek, which wants to know how the key stands. A look whether
    /// the key of an ask that spends is suspended is a question.
    pub(super) fn new(place: u8, ask: &Ask<'_>, spends: bool, id: Id, mark: Mark) -> Option<Self> {
        let looks = ask.mode() == Mode::Peek;
        let patience_us = match ask.mode() {
            Mode::Spend | Mode::Take => 0,
            Mode::Reserve { longest } => micros(longest),
            Mode::Peek if spends && ask.policy().policy().is_of_suspension() => 0,
            _ => return None,
        };
        let takes = ask.mode() == Mode::Take;
        Some(Self { place, id, mark, cost: ask.cost(), costs: ask.costs().into(), patience_us, takes, looks })
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

    /// The fewest units of a quota that would do.
    pub(super) fn cost_of(&self, quota: u8) -> u64 {
        let cost = self.costs.get(usize::from(quota)).copied().unwrap_or(self.cost);
        if self.takes { cost.min(1) } else { cost }
    }

    /// The least cost that a quota has refused by refusing this.
    pub(super) fn refused_cost(&self, status: &QuotaStatus) -> u64 {
        // A store that cannot part a cost has refused all of it, and said nothing about less.
        let is_whole = self.takes && status.remaining() > 0;
        let quota = u8::try_from(status.quota_index()).unwrap_or(u8::MAX);
        if is_whole { self.cost } else { self.cost_of(quota) }
    }
}

/// Whole microseconds, rounded up: no wait is told too short.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}
