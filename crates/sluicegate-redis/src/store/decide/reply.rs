//! Reads the script's reply as decisions.
//!
//! The short way's reply says how each bucket was found, and the rules of the core say what that
//! comes to: the same functions as in memory, so that both homes report the same numbers. A reply
//! that is not exactly of the expected form is a `Protocol` error, and nothing is guessed.

use redis::Value;
use sluicegate_core::algorithm::{NEVER, Rule, SlidingLog, Slot, State};
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Balance, Judged, Mode, QuotaStatus, Trace, judge};
use sluicegate_core::{Decision, StoreError};
use smallvec::SmallVec;

use super::ask::KeyAsk;

/// The reply of the script: the time, and then its numbers for one request after the other.
///
/// Read front to back by the requests of the call, in their order. After one that could not be
/// read, those behind it cannot be read either, and get errors as well.
pub(super) struct Reply {
    now_us: u64,
    numbers: std::vec::IntoIter<f64>,
}

/// Where the quotas of a request stand, and how their buckets were.
#[derive(Default)]
struct Told {
    quotas: SmallVec<[QuotaStatus; 4]>,
    traces: Vec<Trace>,
}

impl Reply {
    /// # Errors
    /// When it is not a reply of the script.
    pub(super) fn read(reply: &Value) -> Result<Self, StoreError> {
        Self::parsed(reply).ok_or_else(not_ours)
    }

    fn parsed(reply: &Value) -> Option<Self> {
        let Value::BulkString(bytes) = reply else { return None };
        let (doubles, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return None;
        }
        let numbers: Vec<f64> = doubles.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let mut reply = Self { now_us: 0, numbers: numbers.into_iter() };
        reply.now_us = reply.next()?;
        Some(reply)
    }

    /// The decision of the next request, which asked this.
    ///
    /// # Errors
    /// When it is not one for these asks.
    pub(super) fn decision(&mut self, asks: &[KeyAsk]) -> Result<Decision, StoreError> {
        self.next_decision(asks).ok_or_else(not_ours)
    }

    fn next_decision(&mut self, asks: &[KeyAsk]) -> Option<Decision> {
        let mut told = Told::default();
        let delay_us = match self.next()? {
            0 => self.short(asks, &mut told)?,
            _ => self.long(asks, &mut told)?,
        };
        let decision = judge(self.now_us, delay_us, told.quotas);
        let keeps =
            |ask: &KeyAsk| ask.prepared.gives_back || ask.cross_slot.is_some() || ask.mode == Mode::Lease;
        let is_kept = decision.is_allowed() && (delay_us > 0 || asks.iter().any(keeps));
        Some(if is_kept { decision.with_traces(told.traces) } else { decision })
    }

    /// The buckets as they were found: the rules say what that comes to.
    ///
    /// The script has granted or refused already; the same rules on the same numbers come to the
    /// same answer here.
    fn short(&mut self, asks: &[KeyAsk], told: &mut Told) -> Option<u64> {
        let mut found = SmallVec::<[Found; 4]>::new();
        for ask in asks {
            let first = found.len();
            for (rule, cost) in ask.prepared.rules.iter().zip(&ask.costs) {
                found.push(self.found(ask.mode, rule, *cost)?);
            }
            if ask.mode == Mode::Lease {
                for (found, rule) in found[first..].iter_mut().zip(&ask.prepared.rules) {
                    let [until_us, aux] = self.numbers()?;
                    let is_level = rule.numbers().kind() == 1;
                    found.floor = is_level.then(|| rule.of_words([until_us, aux, 0]));
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
            // A lease behind it is what all of its asks find in the end.
            let lease = asks.get(place + 1).filter(|next| granted && next.is_behind(ask));
            let leased = lease.map_or(0, |lease| units(lease, behind, now_us));
            let units = if ask.mode == Mode::Lease { units(ask, own, now_us) } else { 0 };
            for ((quota, rule), found) in (0_u8..).zip(&ask.prepared.rules).zip(own) {
                let cost = if ask.mode == Mode::Lease { units } else { ask.costs[usize::from(quota)] };
                let (status, trace) = found.after((ask.at, quota), rule, mode, [cost, leased], now_us);
                told.quotas.push(status);
                told.traces.push(trace);
            }
        }
        // A request that waits takes the long way.
        Some(0)
    }

    fn found(&mut self, mode: Mode, rule: &Rule, cost: u64) -> Option<Found> {
        let [till, a, b, opens_us, birth, given] = self.numbers()?;
        let now_us = self.now_us;
        let (state, log) = match rule.log() {
            Some(_) => (State::REST, Log { newest_us: till, sum: a, oldest_us: b }),
            None => (rule.of_words([till, a, b]), Log::default()),
        };
        let opens_us = match rule.log() {
            _ if matches!(mode, Mode::Charge | Mode::Lease) => now_us,
            Some(log) if cost > log.limit() => NEVER,
            Some(_) => opens_us.max(now_us),
            None => rule.slot(state, now_us, cost).opens_us,
        };
        Some(Found { state, log, opens_us, birth, given, floor: None })
    }

    /// The script has said all.
    fn long(&mut self, asks: &[KeyAsk], told: &mut Told) -> Option<u64> {
        let delay_us = self.next()?;
        for ask in asks {
            // An instance with a newer version decides by its rules, of which there may be more or less.
            let quotas = u8::try_from(self.next()?).ok()?;
            for quota in 0..quotas {
                let [passed, never, capacity, remaining, resets_us, available_us, took, held] =
                    self.numbers()?;
                let [birth, given, found] = self.numbers()?;
                let (before, after) = (self.numbers()?, self.numbers()?);
                let status = QuotaStatus::at_rest((ask.at, quota), capacity)
                    .with_remaining(remaining)
                    .with_reset_after_us(resets_us);
                let status = if passed >= 2 { status.provisional() } else { status };
                let status = match (passed % 2, never) {
                    (1, _) => status.with_more_after_us(available_us),
                    (0, 1) => status.impossible(),
                    _ => status.refused_for_us(available_us),
                };
                told.quotas.push(status.spending(took));
                let rule =
                    ask.prepared.rules.get(usize::from(quota)).or_else(|| ask.prepared.rules.first())?;
                let [before, after] = [before, after].map(|words| rule.of_words(words));
                let mut trace = Trace { found, given, birth, before, after, held: held == 1, floor: None };
                if ask.mode == Mode::Lease {
                    let [until_us, aux] = self.numbers()?;
                    let is_bounded = took > 0 && rule.numbers().kind() == 1;
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

    /// A whole number of those that the script may write.
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

/// A bucket as the short way found it.
struct Found {
    state: State,
    log: Log,
    opens_us: u64,
    birth: u64,
    given: u64,
    /// Of a lease from a bucket that drains, the latest end of an earlier one.
    floor: Option<State>,
}

/// The units that a lease gets, which found its quotas so: the least that one of them has left.
fn units(lease: &KeyAsk, found: &[Found], now_us: u64) -> u64 {
    let left =
        lease.prepared.rules.iter().zip(found).map(|(rule, found)| rule.remaining(found.state, now_us));
    left.chain(lease.costs.iter().copied()).min().unwrap_or(0)
}

/// The numbers of a sliding log that a status needs.
///
/// A log itself stays in Redis, since it may have thousands of entries: three numbers of it are
/// enough for every number of a status.
#[derive(Clone, Copy, Default)]
struct Log {
    newest_us: u64,
    sum: u64,
    oldest_us: u64,
}

impl Found {
    /// Where a quota stands after this was asked, and this many units were leased behind it; the script has done the same.
    fn after(
        &self,
        at: (u8, u8),
        rule: &Rule,
        mode: Mode,
        [cost, leased]: [u64; 2],
        now_us: u64,
    ) -> (QuotaStatus, Trace) {
        // Whether it passes is a question of when there is room, whatever was asked.
        let judged = Judged::new(rule, Mode::Peek, Slot::at(self.opens_us), now_us);
        let is_born = self.log.sum == 0 && self.state.until_us <= now_us;
        let (birth, given) = if is_born { (now_us, 0) } else { (self.birth, self.given) };
        let trace = Trace { given, birth, before: self.state, ..Trace::default() };
        if let Some(rule) = rule.log() {
            let room = rule.ceiling().saturating_sub(self.log.sum);
            let took = match mode {
                Mode::Charge => cost.min(room),
                mode if mode.spends() => cost,
                _ => 0,
            };
            let (log, period_us) = (self.log.and(took, now_us, rule), rule.period_us().get());
            let rests_us = if log.sum > 0 { log.newest_us.saturating_add(period_us) } else { now_us };
            let balance = Balance {
                capacity: rule.limit(),
                remaining: rule.limit().saturating_sub(log.sum),
                reset_after_us: rests_us.saturating_sub(now_us),
            };
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
        let status = judged.status(at, Balance::of(rule, end, now_us), now_us, opens_us);
        let floor = self.floor.filter(|_| took > 0);
        (status.spending(took), Trace { found: rule.level(self.state, now_us), after, floor, ..trace })
    }
}

impl Log {
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

/// Something else answers to the script's name, or the connection is out of step.
fn not_ours() -> StoreError {
    StoreError::with_source(StoreErrorKind::Protocol, "the reply is not that of the sluicegate script")
}
