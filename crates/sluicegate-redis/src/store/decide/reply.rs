//! Reads the script's reply as decisions.
//!
//! The short reply has the state found in each bucket and whether the ask passes. The rules of the core, which the memory store uses as
//! well, derive the statuses, so both stores report the same numbers. A verdict that differs from the rules' verdict is valid but
//! [counted](sluicegate_core::store::StoreStatus::disagreements). A reply that is not exactly of the expected form is a
//! `Protocol` error; nothing is guessed.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::Value;
use sluicegate_core::algorithm::{Balance, NEVER, Rule, SlidingLog, Slot, State};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Judged, Mode, QuotaStatus, Trace, judge};
use sluicegate_core::{Decision, StoreError};
use smallvec::SmallVec;

use super::ask::KeyAsk;

/// The reply to a request whose deadline had passed.
const EXPIRED: f64 = 2.0;

/// The reply of the script: the time, then its numbers for one request after the other.
///
/// The requests of the call read it front to back, in their order. If one cannot be read, all requests
/// after it get errors as well.
pub(super) struct ScriptReply<'a> {
    pub(super) now_us: u64,
    /// The part of the slots that has replied.
    pub(super) part: usize,
    numbers: std::vec::IntoIter<f64>,
    /// Counts the quotas for which the script's verdict differs from their rules' verdict.
    disagreements: &'a AtomicU64,
}

/// The statuses of a request's quotas, and the states in which their buckets were found.
#[derive(Default)]
struct RequestStatuses {
    quotas: SmallVec<[QuotaStatus; 4]>,
    traces: Vec<Trace>,
    /// The delay of each ask, by its index.
    delays: SmallVec<[(u8, u64); 2]>,
}

impl<'a> ScriptReply<'a> {
    /// # Errors
    /// When it is not a reply of the script.
    pub(super) fn read(reply: &Value, disagreements: &'a AtomicU64) -> Result<Self, StoreError> {
        Self::parsed(reply, disagreements).ok_or_else(not_ours)
    }

    fn parsed(reply: &Value, disagreements: &'a AtomicU64) -> Option<Self> {
        let Value::BulkString(bytes) = reply else { return None };
        let (doubles, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return None;
        }
        let numbers: Vec<f64> = doubles.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let mut reply = Self { now_us: 0, part: 0, numbers: numbers.into_iter(), disagreements };
        reply.now_us = reply.next()?;
        Some(reply)
    }

    /// The decision of the next request, with these asks.
    ///
    /// # Errors
    /// When the reply does not fit these asks, or they were not carried out because their deadline had passed.
    pub(super) fn decision(&mut self, asks: &[KeyAsk]) -> Result<Decision, StoreError> {
        if self.numbers.as_slice().first() == Some(&EXPIRED) {
            self.numbers.next();
            return Err(StoreError::new(StoreErrorKind::Timeout).in_part(self.part).unsent());
        }
        self.next_decision(asks).ok_or_else(not_ours)
    }

    fn next_decision(&mut self, asks: &[KeyAsk]) -> Option<Decision> {
        let mut told = RequestStatuses::default();
        let keeps =
            |ask: &KeyAsk| ask.prepared.gives_back || ask.marked_us.is_some() || ask.mode == Mode::Lease;
        let keeps = asks.iter().any(keeps);
        let delay_us = match self.next()? {
            0 => self.short(asks, keeps, &mut told)?,
            _ => self.long(asks, &mut told)?,
        };
        let decision = judge(self.now_us, delay_us, told.quotas);
        let is_kept = decision.is_allowed() && (delay_us > 0 || keeps);
        Some(if is_kept { decision.with_traces(told.traces).with_delays(told.delays) } else { decision })
    }

    /// Reads a short reply: the buckets as they were found and the script's verdicts, from which the rules derive the decision. It
    /// `keeps` the states in which they were found, if a receipt needs them.
    fn short(&mut self, asks: &[KeyAsk], keeps: bool, told: &mut RequestStatuses) -> Option<u64> {
        let mut found = SmallVec::<[FoundBucket; 4]>::new();
        for ask in asks {
            let first = found.len();
            for (rule, cost) in ask.prepared.rules.iter().zip(&ask.costs) {
                let (bucket, agrees) = FoundBucket::of(self.numbers()?, ask.mode, rule, *cost, self.now_us);
                found.push(bucket);
                if !agrees {
                    // Relaxed: it is only a count.
                    self.disagreements.fetch_add(1, Ordering::Relaxed);
                }
            }
            if ask.mode == Mode::Lease {
                for (found, rule) in found[first..].iter_mut().zip(&ask.prepared.rules) {
                    let [until_us, aux] = self.numbers()?;
                    found.floor = rule.is_level().then(|| rule.of_words([until_us, aux, 0]));
                }
            }
        }
        let granted = found.iter().all(|found| found.opens_us <= self.now_us);
        let (mut first, now_us) = (0, self.now_us);
        for (place, ask) in asks.iter().enumerate() {
            let mode = if granted { ask.mode } else { Mode::Peek };
            let quotas = ask.prepared.rules.len();
            let (own, behind) = found.get(first..)?.split_at_checked(quotas)?;
            first += quotas;
            // A lease after it gets the units that all of its quotas have left.
            let lease = asks.get(place + 1).filter(|next| granted && next.is_behind(ask));
            let leased = lease.map_or(0, |lease| units(lease, behind, now_us));
            let units = if ask.mode == Mode::Lease { units(ask, own, now_us) } else { 0 };
            for ((quota, rule), found) in (0_u8..).zip(&ask.prepared.rules).zip(own) {
                let cost = if ask.mode == Mode::Lease { units } else { ask.costs[usize::from(quota)] };
                let (status, trace) = found.after((ask.at, quota), rule, mode, [cost, leased], now_us);
                told.quotas.push(status);
                if keeps {
                    told.traces.push(trace);
                }
            }
        }
        // A request that waits takes the long way.
        Some(0)
    }

    /// Reads a long reply, which has all results.
    fn long(&mut self, asks: &[KeyAsk], told: &mut RequestStatuses) -> Option<u64> {
        let delay_us = self.next()?;
        for ask in asks {
            // A newer version of the policy decides by its own rules, possibly more or fewer.
            let quotas = u8::try_from(self.next()?).ok()?;
            told.delays.push((ask.at, self.next()?));
            for quota in 0..quotas {
                let [passed, never] = self.numbers()?;
                let balance = Balance::told(self.numbers()?);
                let [available_us, took] = self.numbers()?;
                let [birth, given, found] = self.numbers()?;
                let (before, after) = (self.numbers()?, self.numbers()?);
                let status = QuotaStatus::of((ask.at, quota), balance);
                let status = if passed >= 2 { status.provisional() } else { status };
                let status = match (passed % 2, never) {
                    (1, _) => status.with_more_after_us(available_us),
                    (0, 1) => status.impossible(),
                    _ => status.refused_for_us(available_us),
                };
                told.quotas.push(status.spending(took));
                let rule =
                    ask.prepared.rules.get(usize::from(quota)).or_else(|| ask.prepared.rules.first())?;
                let (before, after) = (rule.of_words(before), rule.of_words(after));
                let mut trace = Trace { found, given, birth, before, after, floor: None };
                if ask.mode == Mode::Lease {
                    let [until_us, aux] = self.numbers()?;
                    let is_bounded = took > 0 && rule.is_level();
                    trace.floor = is_bounded.then(|| rule.of_words([until_us, aux, 0]));
                }
                told.traces.push(trace);
            }
        }
        Some(delay_us)
    }

    fn numbers<const COUNT: usize>(&mut self) -> Option<[u64; COUNT]> {
        let mut numbers = [0; COUNT];
        for number in &mut numbers {
            *number = self.next()?;
        }
        Some(numbers)
    }

    /// A whole number in the range that the script writes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is in the range of those"
    )]
    fn next(&mut self) -> Option<u64> {
        let number = self.numbers.next()?;
        (0.0..=9_007_199_254_740_991.0).contains(&number).then_some(number as u64)
    }
}

/// The error for a reply that is not the script's, or a connection that is out of step.
fn not_ours() -> StoreError {
    StoreError::with_source(StoreErrorKind::Protocol, "the reply is not that of the sluicegate script")
}

/// A bucket in the state that the short way found.
pub(super) struct FoundBucket {
    state: State,
    log: FoundLog,
    /// When there is room for the cost.
    pub(super) opens_us: u64,
    birth: u64,
    given: u64,
    /// The latest end of an earlier lease, if this is a lease from a bucket that drains.
    pub(super) floor: Option<State>,
}

/// The units that a lease gets from quotas in this state: the fewest that any of the quotas has left.
pub(super) fn units(lease: &KeyAsk, found: &[FoundBucket], now_us: u64) -> u64 {
    let left =
        lease.prepared.rules.iter().zip(found).map(|(rule, found)| rule.remaining(found.state, now_us));
    left.chain(lease.costs.iter().copied()).min().unwrap_or(0)
}

/// The numbers of a sliding log that a status needs.
///
/// The log itself stays in Redis, since it may have thousands of entries: these three numbers are
/// enough for a status.
#[derive(Clone, Copy, Default)]
struct FoundLog {
    newest_us: u64,
    sum: u64,
    oldest_us: u64,
}

impl FoundBucket {
    /// The bucket with these numbers from the script, for a request with a cost; and whether the script's verdict is
    /// the rule's verdict. The script's verdict counts, because the script has spent by it.
    pub(super) fn of(
        [till, a, b, refused_until_us, birth, given]: [u64; 6],
        mode: Mode,
        rule: &Rule,
        cost: u64,
        now_us: u64,
    ) -> (Self, bool) {
        let (state, log) = match rule.log() {
            Some(_) => (State::REST, FoundLog { newest_us: till, sum: a, oldest_us: b }),
            None => (rule.of_words([till, a, b]), FoundLog::default()),
        };
        let opens_us = match rule.log() {
            _ if matches!(mode, Mode::Charge | Mode::Lease) => now_us,
            Some(rule) if cost > rule.limit() => NEVER,
            Some(rule) if log.sum.saturating_add(cost) > rule.limit() => refused_until_us.max(now_us + 1),
            Some(_) => now_us,
            None => rule.slot(state, now_us, cost).opens_us,
        };
        let (passes, agrees) = (refused_until_us == 0, (refused_until_us == 0) == (opens_us <= now_us));
        let opens_us = if passes { now_us } else { opens_us.max(now_us + 1) };
        (Self { state, log, opens_us, birth, given, floor: None }, agrees)
    }

    /// The status of a quota after this ask, with this many units leased after it. The script has done the same.
    pub(super) fn after(
        &self,
        at: (u8, u8),
        rule: &Rule,
        mode: Mode,
        [cost, leased]: [u64; 2],
        now_us: u64,
    ) -> (QuotaStatus, Trace) {
        // Whether the ask passes depends only on when there is room, in every mode.
        let judged = Judged::new(rule, Mode::Peek, Slot::at(self.opens_us), now_us);
        let is_born = self.log.sum == 0 && self.state.until_us <= now_us;
        let (birth, given) = if is_born { (now_us, 0) } else { (self.birth, self.given) };
        let trace = Trace { given, birth, before: self.state, ..Trace::default() };
        if let Some(of) = rule.log() {
            let room = of.ceiling().saturating_sub(self.log.sum);
            let took = match mode {
                Mode::Charge => cost.min(room),
                mode if mode.spends() => cost,
                _ => 0,
            };
            let (log, period_us) = (self.log.and(took, now_us, of), of.period_us().get());
            let rests_us = if log.sum > 0 { log.newest_us.saturating_add(period_us) } else { now_us };
            let balance = rule.balance(State::new(rests_us, log.sum), now_us);
            let status = judged.status(at, balance, now_us, |_| log.oldest_us.saturating_add(period_us));
            let trace = Trace { found: self.log.sum, after: State::new(log.newest_us, 0), ..trace };
            return (status.spending(took), trace);
        }
        let (after, took) = match mode {
            Mode::Charge => rule.charge(self.state, now_us, cost),
            mode if mode.spends() || mode == Mode::Lease => {
                (rule.spend(self.state, now_us, now_us, cost), cost)
            }
            _ => (self.state, 0),
        };
        let end = if leased > 0 { rule.spend(after, now_us, now_us, leased) } else { after };
        let opens_us = |cost| rule.slot(end, now_us, cost).opens_us;
        let status = judged.status(at, rule.balance(end, now_us), now_us, opens_us);
        let floor = self.floor.filter(|_| took > 0);
        (status.spending(took), Trace { found: rule.level(self.state, now_us), after, floor, ..trace })
    }
}

impl FoundLog {
    fn and(self, took: u64, now_us: u64, rule: &SlidingLog) -> Self {
        if took == 0 {
            return self;
        }
        let newest_us = self.newest_us.max(now_us);
        let is_only = self.sum == 0 || rule.is_one_entry(self.oldest_us, newest_us);
        let oldest_us = if is_only { newest_us } else { self.oldest_us };
        Self { newest_us, sum: self.sum.saturating_add(took), oldest_us }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate_core::Policy;
    use sluicegate_core::limiter::Inherit;

    use super::*;
    use crate::store::prepared::Prepared;

    #[test]
    fn the_verdict_of_the_script_counts_and_one_that_the_rules_would_not_give_is_counted() {
        let policy = Policy::gcra("any", "1/s").build().expect("it is possible");
        let prepared = Prepared::new("rl", &policy, Inherit::Spent, 0, 0).expect("the rules can be told");
        let asks = [KeyAsk::probe("one".to_owned(), Arc::new(prepared)).with_mode(Mode::Spend)];
        let (empty, full) = (0.0, 9_000_000.0);
        for (until_us, refused_until_us, is_allowed, differs) in
            [(empty, 0.0, true, 0), (full, 1.0, false, 0), (empty, 1.0, false, 1), (full, 0.0, true, 1)]
        {
            let numbers = [8_000_000.0_f64, 0.0, until_us, 0.0, 0.0, refused_until_us, 0.0, 0.0];
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let disagreements = AtomicU64::new(0);
            let mut reply =
                ScriptReply::read(&Value::BulkString(bytes), &disagreements).expect("it is the script's");
            let decision = reply.decision(&asks).expect("it fits the asks");
            assert_eq!(decision.is_allowed(), is_allowed, "{numbers:?}");
            assert_eq!(disagreements.into_inner(), differs, "{numbers:?}");
        }
    }
}
