//! Buckets as the script found them, and the statuses that the core's rules derive: [`FoundBucket`].

use sluicegate_core::algorithm::{NEVER, Rule, SlidingLog, Slot, State};
use sluicegate_core::store::{Judged, Mode, QuotaStatus, Trace};

use super::ask::KeyAsk;

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
