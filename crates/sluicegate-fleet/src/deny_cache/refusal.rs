//! A cached refusal: the costs that it refuses, its end, and its numbers at a later time.
//!
//! # Never longer than the store
//! A refusal that outlasts the store's own would refuse requests that may pass. So its end counts from before its call was sent, which is
//! not after the moment of the decision, and it covers only questions that the store would refuse as well: questions with at least the
//! refused cost and at most its patience. Around leases it may be prolonged, up to a twentieth of the time in which all units come back and
//! never beyond a window: one call then takes all units that have come back meanwhile.
//!
//! # Never shorter than it is kept
//! A client that waits for its `retry_after`, without other requests meanwhile, passes. So the answer of the store includes the extra wait
//! added here, and each later answer includes the longest wait to which any instance may have prolonged its own refusal. Once the store's
//! own wait is over, others may have spent the units that came back: then the wait is that of a key that has just spent its capacity, as an
//! estimate.

use sluicegate_core::algorithm::{Drain, Refill};
use sluicegate_core::policy::{Policy, PolicyQuota};
use sluicegate_core::store::{DecidedBy, QuotaStatus};
use sluicegate_core::{Algorithm, Decision};
use smallvec::SmallVec;

use super::question::{Question, micros, quota_of};

/// A store's answer about one key under one policy.
#[derive(Clone, Debug)]
pub(super) struct CachedRefusal {
    /// The moment before the call was sent. Refusals end by this time, so that none is kept beyond the moment at which the store would
    /// admit.
    sent_us: u64,
    /// The moment after the answer came. Waits count from this time, so that none is too short.
    received_us: u64,
    /// The moment of the store's decision, by its own clock.
    at_us: u64,
    /// The number of the quotas that the key has brought; 0 for none.
    quotas: u64,
    /// The end for every question, by the clock of the cache; one of its lines may end before that.
    pub(super) ends_us: u64,
    /// A line for each quota of the policy, also for quotas that have passed the cost, because an answer shows all of them.
    lines: SmallVec<[QuotaRefusal; 1]>,
}

/// The status of one quota.
#[derive(Clone, Copy, Debug)]
struct QuotaRefusal {
    status: QuotaStatus,
    refused: Option<RefusedCost>,
}

/// A cost without room in a quota.
#[derive(Clone, Copy, Debug)]
struct RefusedCost {
    /// Costs of this many units or more are refused.
    cost: u64,
    /// The longest requested wait for a turn that was too short.
    patience_us: u64,
    /// The wait since the call was sent, in microseconds; `u64::MAX` for a cost that can never pass.
    wait_us: u64,
    /// The part of the wait in which no request can spend the cost: all of it, unless it is prolonged.
    sure_us: u64,
}

/// Settings for how refusals are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    /// The longest time that a refusal is kept.
    pub(super) longest_us: u64,
    /// Whether units are requested in lumps, as around leases.
    pub(super) in_lumps: bool,
}

/// The times of a call, by the clock of the cache.
///
/// The decision was made at some moment between the two. Each use takes the safe moment: refusals end early by the first, and waits are
/// long by the second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) sent_us: u64,
    pub(super) received_us: u64,
}

impl QuotaRefusal {
    fn quota(&self) -> u8 {
        quota_of(&self.status)
    }

    /// Whether it may be in debt, and so refuse a cost of 0 as well.
    fn is_used_up(&self) -> bool {
        self.status.remaining() == 0
    }
}

impl RefusedCost {
    /// The least cost that a quota refuses from now on: the cost that it has refused, or one unit more than remains. Its answer gives
    /// the end. `None` if others may give back units in a moment.
    fn of(question: &Question, status: &QuotaStatus, keep: Keep, is_leased: bool) -> Option<Self> {
        if status.is_provisional() && !status.is_impossible() {
            return None;
        }
        let told_us = micros(status.available_after());
        let wait_us = match keep.in_lumps && told_us > 0 && question.leases {
            true => told_us.max(question.lump_us(quota_of(status), micros(status.reset_after()))),
            false => told_us,
        };
        // The rest of a lease does not know the units that others have spent since.
        let sure_us = if is_leased { 0 } else { told_us };
        if status.passed() {
            let cost = status.remaining().saturating_add(1);
            return (wait_us > 0).then_some(Self { cost, patience_us: 0, wait_us, sure_us });
        }
        let (wait_us, sure_us) =
            if status.is_impossible() { (u64::MAX, u64::MAX) } else { (wait_us, sure_us) };
        let cost = question.refused_cost(status);
        Some(Self { cost, patience_us: question.patience_us, wait_us, sure_us })
    }

    /// Whether a question has at least this cost and at most this patience.
    fn covers(&self, question: &Question, quota: u8) -> bool {
        question.cost_of(quota) >= self.cost && question.patience_us <= self.patience_us
    }
}

impl CachedRefusal {
    /// The refusals that follow from this answer for similar questions, if a question like this one is refused from now on: because this
    /// question was, or because it has left too few units.
    pub(super) fn of(
        question: &Question,
        decision: &Decision,
        times: impl FnOnce() -> Times,
        keep: Keep,
    ) -> Option<Self> {
        let own = || decision.quotas().iter().filter(|status| status.policy_index() == question.place());
        let leaves_enough = |status: &QuotaStatus| status.remaining() >= question.cost_of(quota_of(status));
        if decision.is_allowed() && own().all(leaves_enough) {
            return None;
        }
        // The rest of a lease does not cover higher costs, nor the time when the counts of two windows pass the next unit.
        let is_leased = decision.decided_by() == DecidedBy::Lease;
        let is_known = |status: &QuotaStatus| {
            !is_leased || (status.remaining() == 0 && !question.is_of_windows(quota_of(status)))
        };
        let refused = |status: &QuotaStatus| {
            RefusedCost::of(question, status, keep, is_leased).filter(|_| is_known(status))
        };
        let lines: SmallVec<[QuotaRefusal; 1]> =
            own().map(|status| QuotaRefusal { status: *status, refused: refused(status) }).collect();
        let refuses_again = |line: &QuotaRefusal| {
            let left = !decision.is_allowed() || !leaves_enough(&line.status);
            line.refused.filter(|refused| left && refused.covers(question, line.quota()))
        };
        let wait_us = lines.iter().filter_map(refuses_again).map(|refused| refused.wait_us).max()?;
        let Times { sent_us, received_us } = times();
        let ends_us = sent_us.saturating_add(wait_us.min(keep.longest_us));
        let at_us = decision.at_us();
        let quotas = question.quotas;
        (wait_us > 0).then_some(Self { sent_us, received_us, at_us, quotas, ends_us, lines })
    }

    /// The quotas with refusals that are kept longer than the store's wait, and the extra time of each.
    pub(super) fn prolonged(&self) -> impl Iterator<Item = (u8, u64)> {
        let prolonged = |line: &QuotaRefusal| {
            let refused =
                line.refused.filter(|refused| refused.wait_us > micros(line.status.available_after()))?;
            (!line.status.is_impossible()).then_some((line.quota(), refused.wait_us))
        };
        self.lines.iter().filter_map(prolonged)
    }

    /// The wait from now on of a client after this refusal of a quota, and whether it is an estimate.
    fn wait_us(
        &self,
        (line, refused): (&QuotaRefusal, RefusedCost),
        question: &Question,
        of: Option<&PolicyQuota>,
        now_us: u64,
    ) -> (u64, bool) {
        let passed_us = now_us.saturating_sub(self.received_us);
        let rest_us = refused.wait_us.saturating_sub(passed_us);
        if refused.sure_us == refused.wait_us {
            return (rest_us, false);
        }
        let reset_us = micros(line.status.reset_after()).saturating_sub(passed_us);
        if now_us < self.sent_us.saturating_add(refused.sure_us) {
            return (rest_us.max(question.lump_us(line.quota(), reset_us)), false);
        }
        let Some(rule) = of.map(PolicyQuota::rule) else { return (rest_us, true) };
        let at_us = self.at_us(now_us);
        let spent = rule.holding(rule.capacity(), at_us);
        let lump_us = question.lump_us(line.quota(), rule.reset_after_us(spent, at_us));
        // The counts of two windows may all be in one: the expected wait is far shorter.
        let cost_us = match question.is_of_windows(line.quota()) {
            true => 0,
            false => {
                rule.slot(spent, at_us, refused.cost.min(rule.capacity())).opens_us.saturating_sub(at_us)
            }
        };
        (rest_us.max(lump_us).max(cost_us), true)
    }

    /// Whether it refuses this question now.
    pub(super) fn refuses(&self, question: &Question, now_us: u64) -> bool {
        // Nothing is known about the key under other quotas.
        let is_its = self.quotas == question.quotas;
        is_its
            && now_us < self.ends_us
            && self.lines.iter().any(|line| self.line_refuses(line, question, now_us))
    }

    /// The moment of a decision from this refusal now, by the store's clock.
    pub(super) fn at_us(&self, now_us: u64) -> u64 {
        self.at_us.saturating_add(now_us.saturating_sub(self.received_us))
    }

    /// The statuses of the quotas that it knows, for this question. The remaining units are those of the answer; waits are shorter by the
    /// time that has passed. A cost above the remaining units and below a refused cost gets the wait of the refused cost.
    pub(super) fn statuses(
        &self,
        question: &Question,
        policy: &Policy,
        now_us: u64,
    ) -> impl Iterator<Item = QuotaStatus> {
        let place = u8::try_from(question.place()).unwrap_or(u8::MAX);
        let status = move |line: &QuotaRefusal| {
            let (capacity, quota) = (line.status.capacity(), line.quota());
            let passed_us = now_us.saturating_sub(self.received_us);
            let reset_us = micros(line.status.reset_after()).saturating_sub(passed_us);
            let status = QuotaStatus::at_rest((place, quota), capacity)
                .with_remaining(line.status.remaining())
                .with_reset_after_us(reset_us);
            let cost = question.cost_of(quota);
            match line.refused {
                _ if cost > capacity => status.impossible(),
                Some(refused)
                    if refused.covers(question, quota)
                        || cost > line.status.remaining()
                        || line.is_used_up() =>
                {
                    let of = policy.quotas().get(usize::from(quota));
                    let (wait_us, is_estimate) = self.wait_us((line, refused), question, of, now_us);
                    let more = cost.saturating_sub(refused.cost);
                    let more_us = of.and_then(|of| more_us(of, more));
                    let until_all_us = reset_us.max(wait_us);
                    let cost_us = more_us.map_or(until_all_us, |more_us| wait_us.saturating_add(more_us));
                    let patience_us = refused.patience_us.saturating_sub(question.patience_us);
                    let status = if is_estimate { status.provisional() } else { status };
                    match cost_us.min(until_all_us).saturating_add(patience_us) {
                        0 => status,
                        wait_us => status.refused_for_us(wait_us),
                    }
                }
                _ => status,
            }
        };
        self.lines.iter().map(status)
    }

    fn line_refuses(&self, line: &QuotaRefusal, question: &Question, now_us: u64) -> bool {
        line.refused.is_some_and(|refused| {
            refused.covers(question, line.quota()) && now_us < self.sent_us.saturating_add(refused.wait_us)
        })
    }
}

/// The extra wait of a cost that is higher by this many units, rounded up. It is known if units come back one by one at the quota's
/// rate; otherwise it is `None`, and the wait lasts until the whole capacity is back, which is certainly enough.
fn more_us(of: &PolicyQuota, more: u64) -> Option<u64> {
    let is_even = matches!(
        of.algorithm(),
        Algorithm::Gcra | Algorithm::TokenBucket(Refill::Greedy) | Algorithm::LeakyBucket(Drain::Meter)
    );
    if more == 0 {
        return Some(0);
    }
    let (limit, period_us) = (of.quota().limit(), micros(of.quota().period()));
    let more_us = (u128::from(more) * u128::from(period_us)).div_ceil(u128::from(limit.max(1)));
    is_even.then(|| u64::try_from(more_us).unwrap_or(u64::MAX))
}
