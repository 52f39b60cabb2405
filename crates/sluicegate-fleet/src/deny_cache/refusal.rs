//! A refusal that is kept, the questions that it refuses, and its numbers at a later time.
//!
//! A store that has refused a cost at a moment refuses it, and each higher cost, until its own `retry_after`, if nothing is given back; the cache
//! is told of everything that is. So a refusal covers questions with at least its cost and at most its patience, ends by the moment before its
//! call was sent, and counts waits from the moment after its answer: it never outlasts the store's, and no wait is too short.

use std::time::Duration;

use sluicegate_core::algorithm::{Drain, Refill};
use sluicegate_core::policy::{Policy, PolicyQuota};
use sluicegate_core::store::{Ask, Mode, QuotaStatus};
use sluicegate_core::{Algorithm, Decision};
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

/// An ask that a refusal may answer: costs are compared by quota, as are the longest waits.
#[derive(Clone, Debug)]
pub(super) struct Question {
    ask_index: u8,
    pub(super) id: Id,
    /// The number of the quotas that the key brings; 0 for none.
    quotas: u64,
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
    /// Whether other limits decide the request, too, so that no held unit of a lease decides it.
    is_joint: bool,
}

impl Question {
    /// The question of an ask among as many asks that spend. `None` if it is not a question, or a peek, which needs the store's numbers; a look
    /// that only checks whether the key of a spend is suspended is a question.
    pub(super) fn new(
        ask_index: u8,
        ask: &Ask<'_>,
        spends: usize,
        bucket: (Id, u64),
        mark: Mark,
    ) -> Option<Self> {
        let (id, quotas) = bucket;
        let patience_us = match ask.mode() {
            Mode::Spend | Mode::Take => 0,
            Mode::Reserve { longest } => micros(longest),
            Mode::Peek if spends > 0 && ask.policy().policy().is_of_suspension() => 0,
            _ => return None,
        };
        let (takes, looks, is_joint) = (ask.mode() == Mode::Take, ask.mode() == Mode::Peek, spends > 1);
        let (cost, costs) = (ask.cost(), ask.costs().into());
        Some(Self { ask_index, id, quotas, mark, cost, costs, patience_us, takes, looks, is_joint })
    }

    pub(super) fn ask_index(&self) -> usize {
        usize::from(self.ask_index)
    }

    /// The smallest sufficient number of units of a quota.
    fn cost_of(&self, quota: u8) -> u64 {
        let cost = self.costs.get(usize::from(quota)).copied().unwrap_or(self.cost);
        if self.takes { cost.min(1) } else { cost }
    }
}

/// A store's answer about one key under one policy.
#[derive(Clone, Debug)]
pub(super) struct CachedRefusal {
    sent_us: u64,
    received_us: u64,
    /// The moment of the store's decision, by its own clock.
    at_us: u64,
    /// The number of the quotas that the key has brought; 0 for none.
    quotas: u64,
    /// Whether other limits have decided the request, too: around leases, held units may let a request of this limit alone pass.
    is_joint: bool,
    /// The end for every question, by the clock of the cache; one of its lines may end before that.
    pub(super) ends_us: u64,
    /// A line for each quota of the policy, also for quotas that have passed the cost, because an answer shows all of them.
    lines: SmallVec<[QuotaRefusal; 1]>,
}

/// The status of one quota, and the costs that it refuses.
#[derive(Clone, Copy, Debug)]
struct QuotaRefusal {
    status: QuotaStatus,
    /// Costs of this many units or more are refused.
    cost: u64,
    /// The longest requested wait for a turn that was too short.
    patience_us: u64,
    /// The wait in microseconds: 0 if nothing is known to be refused, and `u64::MAX` for a cost that can never pass.
    wait_us: u64,
}

/// How refusals are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    /// The longest time that a refusal is kept.
    pub(super) longest_us: u64,
    /// Whether the store leases, so that held units may let a cost pass which the store would refuse.
    pub(super) is_around_leases: bool,
}

/// The times of a call, by the clock of the cache. The decision was made at some moment between the two.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTimes {
    pub(super) sent_us: u64,
    pub(super) received_us: u64,
}

impl QuotaRefusal {
    /// The costs that a quota refuses from now on: those from the cost that it has refused, or from one unit more than remains. None are
    /// known if others may give back units in a moment, and of a cost that has passed if units are held besides.
    fn of(question: &Question, status: QuotaStatus, keep: Keep) -> Self {
        let quota = quota_of(&status);
        let wait_us = match micros(status.available_after()) {
            _ if status.is_impossible() => u64::MAX,
            _ if status.is_provisional() || status.passed() && keep.is_around_leases => 0,
            wait_us => wait_us,
        };
        let (cost, patience_us) = if status.passed() {
            (status.remaining().saturating_add(1), 0)
        } else if question.takes && status.remaining() > 0 {
            // A store that cannot split a cost has refused all of it, and its answer does not cover smaller costs.
            (question.cost, question.patience_us)
        } else {
            (question.cost_of(quota), question.patience_us)
        };
        Self { status, cost, patience_us, wait_us }
    }

    fn quota(&self) -> u8 {
        quota_of(&self.status)
    }

    /// Whether a question has at least this cost and at most this patience.
    fn covers(&self, question: &Question) -> bool {
        self.wait_us > 0
            && question.cost_of(self.quota()) >= self.cost
            && question.patience_us <= self.patience_us
    }

    /// The status for a question after some time. The remaining units are those of the answer; waits are shorter by that time.
    fn status_after(&self, passed_us: u64, question: &Question, policy: &Policy) -> QuotaStatus {
        let (quota, cost) = (self.quota(), question.cost_of(self.quota()));
        let reset_us = micros(self.status.reset_after()).saturating_sub(passed_us);
        let status = QuotaStatus::at_rest((question.ask_index, quota), self.status.capacity())
            .with_remaining(self.status.remaining())
            .with_reset_after_us(reset_us);
        if cost > self.status.capacity() {
            return status.impossible();
        }
        // Without units it may be in debt, and so refuse a cost of 0 as well.
        let is_short = cost > self.status.remaining() || self.status.remaining() == 0;
        if self.wait_us == 0 || !self.covers(question) && !is_short {
            return status;
        }
        let rest_us = self.wait_us.saturating_sub(passed_us);
        let until_all_us = reset_us.max(rest_us);
        let more = cost.saturating_sub(self.cost);
        let of = policy.quotas().get(usize::from(quota));
        let more_us = of.and_then(|of| time_of_units_us(of, more));
        let cost_us =
            more_us.map_or(until_all_us, |more_us| rest_us.saturating_add(more_us).min(until_all_us));
        match cost_us.saturating_add(self.patience_us.saturating_sub(question.patience_us)) {
            0 => status,
            wait_us => status.refused_for_us(wait_us),
        }
    }
}

impl CachedRefusal {
    /// The refusal that follows from this answer, if a question like this one is refused from now on: because this question was, or because
    /// it has left too few units.
    pub(super) fn of(
        question: &Question,
        decision: &Decision,
        times: impl FnOnce() -> CallTimes,
        keep: Keep,
    ) -> Option<Self> {
        let own = decision.quotas().iter().filter(|status| status.policy_index() == question.ask_index());
        let lines: SmallVec<[QuotaRefusal; 1]> =
            own.map(|status| QuotaRefusal::of(question, *status, keep)).collect();
        let wait_us = lines.iter().filter(|line| line.covers(question)).map(|line| line.wait_us).max()?;
        let CallTimes { sent_us, received_us } = times();
        let ends_us = sent_us.saturating_add(wait_us.min(keep.longest_us));
        let (at_us, quotas) = (decision.at_us(), question.quotas);
        let is_joint = question.is_joint && keep.is_around_leases;
        Some(Self { sent_us, received_us, at_us, quotas, is_joint, ends_us, lines })
    }

    /// Whether it refuses this question now.
    pub(super) fn refuses(&self, question: &Question, now_us: u64) -> bool {
        // Nothing is known about the key under other quotas.
        let is_its = self.quotas == question.quotas && (question.is_joint || !self.is_joint);
        let refuses =
            |line: &QuotaRefusal| line.covers(question) && now_us < self.sent_us.saturating_add(line.wait_us);
        is_its && now_us < self.ends_us && self.lines.iter().any(refuses)
    }

    /// The moment of a decision from this refusal now, by the store's clock.
    pub(super) fn at_us(&self, now_us: u64) -> u64 {
        self.at_us.saturating_add(now_us.saturating_sub(self.received_us))
    }

    /// The statuses of the quotas that it knows, for this question.
    pub(super) fn statuses(
        &self,
        question: &Question,
        policy: &Policy,
        now_us: u64,
    ) -> impl Iterator<Item = QuotaStatus> {
        let passed_us = now_us.saturating_sub(self.received_us);
        self.lines.iter().map(move |line| line.status_after(passed_us, question, policy))
    }
}

/// The time in which this many units come back, rounded up. It is known if they come back one by one at the quota's rate; otherwise a
/// higher cost than the refused one waits until the whole capacity is back, which is certainly enough.
fn time_of_units_us(of: &PolicyQuota, units: u64) -> Option<u64> {
    let is_even = matches!(
        of.algorithm(),
        Algorithm::Gcra | Algorithm::TokenBucket(Refill::Greedy) | Algorithm::LeakyBucket(Drain::Meter)
    );
    let (limit, period_us) = (of.quota().limit(), micros(of.quota().period()));
    let us = (u128::from(units) * u128::from(period_us)).div_ceil(u128::from(limit.max(1)));
    (is_even || units == 0).then(|| u64::try_from(us).unwrap_or(u64::MAX))
}

/// The index of a quota in its policy.
fn quota_of(status: &QuotaStatus) -> u8 {
    u8::try_from(status.quota_index()).unwrap_or(u8::MAX)
}

/// Whole microseconds, rounded up, so that no wait is too short.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}
