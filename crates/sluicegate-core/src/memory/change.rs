//! The changes that an ask makes to a key's state.
//!
//! All asks of the decision have passed, so no code here refuses. Three things are
//! kept beside the state: the account (units given back), the reserved turns, and the trace,
//! which goes into the receipt and records the exact state before and after.

use super::bucket::Bucket;
use super::home::LockedSet;
use super::logs::{EntryRef, Shard};
use super::place::BucketCell;
use super::table::SlotWords;
use crate::algorithm::{Rule, Spent, State};
use crate::receipt::{Receipt, Trace};
use crate::store::Mode;

/// The result of an ask: the units that it has spent, and the state of its bucket before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effect {
    pub(super) spent: u64,
    pub(super) trace: Trace,
}

impl LockedSet<'_> {
    /// Whether the turn of the ask's receipt can be given up: it has not come, and no later turn depends on it.
    ///
    /// An entry of a log can be given up while it is found by its moment and another turn could take its place: turns come behind all others. Under a level, only the last turn can be given up: later turns were computed with it.
    pub(super) fn can_return(&mut self, cell: &BucketCell<'_>, now_us: u64) -> bool {
        let Some((receipt, trace, cost)) = returned(cell) else { return false };
        if cost == 0 {
            return true;
        }
        match self {
            LockedSet::Log(shard) => {
                let is_known = receipt.at_us() > now_us && is_of(cell.bucket, trace);
                is_known
                    && shard.is_of_last_period(cell.in_log(), entered(trace), now_us)
                    && shard.entered(cell.in_log(), entered(trace), now_us) >= cost
            }
            place => place.without_turn(cell, cost, now_us).is_some(),
        }
    }

    /// Carries out the ask; units that it spends depart at `at_us`.
    pub(super) fn change(&mut self, cell: &BucketCell<'_>, now_us: u64, at_us: u64) -> Effect {
        let (BucketCell { bucket, hash, ask, .. }, cost) = (*cell, cell.ask.cost());
        match ask.mode() {
            Mode::Spend | Mode::Reserve { .. } | Mode::Take => self.spend(cell, now_us, at_us, cost),
            Mode::Charge => self.charge(cell, now_us),
            Mode::Refund => {
                self.refund(cell, now_us);
                Effect::default()
            }
            Mode::Return => {
                self.give_up(cell, now_us);
                Effect::default()
            }
            Mode::Reset => {
                bucket.has_no_floor(hash);
                bucket.was_reset(now_us);
                self.reset(hash);
                Effect::default()
            }
            // A lease takes the units that the other asks leave.
            Mode::Peek | Mode::Lease => Effect::default(),
        }
    }

    fn spend(&mut self, cell: &BucketCell<'_>, now_us: u64, at_us: u64, cost: u64) -> Effect {
        let (bucket, rule) = (cell.bucket, &cell.by.rule);
        match self {
            LockedSet::Log(shard) => entering(cell, shard, now_us, at_us, cost),
            place => {
                let kept = place.kept(cell, now_us);
                let after = rule.spend(kept.state, now_us, at_us, cost);
                if at_us > now_us {
                    bucket.ahead.add(rule, kept.state, now_us, at_us, cost);
                    bucket.reaches(cell.hash, after.until_us);
                }
                Effect { spent: cost, trace: place.spent(cell, kept, after, now_us, at_us) }
            }
        }
    }

    fn charge(&mut self, cell: &BucketCell<'_>, now_us: u64) -> Effect {
        let (bucket, rule, cost) = (cell.bucket, &cell.by.rule, cell.ask.cost());
        match self {
            LockedSet::Log(shard) => {
                let room = rule.debt_ceiling().saturating_sub(shard.used(cell.in_log(), now_us));
                if cost > 0 {
                    shard.counts_by(cell.in_log(), now_us);
                }
                entering(cell, shard, now_us, now_us, cost.min(room))
            }
            place => {
                let kept = place.kept(cell, now_us);
                let (after, spent) = rule.charge(kept.state, now_us, cost);
                bucket.reaches(cell.hash, after.until_us);
                Effect { spent, trace: place.spent(cell, kept, after, now_us, now_us) }
            }
        }
    }

    /// Spends a refused cost, up to the capacity. A log keeps the newest units.
    pub(super) fn count_rejected(&mut self, cell: &BucketCell<'_>, now_us: u64) {
        let (rule, cost) = (&cell.by.rule, cell.ask.cost());
        match self {
            LockedSet::Log(shard) => {
                let most = shard.used(cell.in_log(), now_us).max(rule.capacity());
                entering(cell, shard, now_us, now_us, cost.min(rule.capacity()));
                shard.keep_newest(cell.hash, now_us, most);
            }
            place => {
                let kept = place.kept(cell, now_us);
                let after = rule.count_rejected(kept.state, now_us, cost);
                place.spent(cell, kept, after, now_us, now_us);
            }
        }
    }

    /// Stores the state after a spend, and returns its trace.
    pub(super) fn spent(
        &mut self,
        cell: &BucketCell<'_>,
        before: SlotWords,
        after: State,
        now_us: u64,
        at_us: u64,
    ) -> Trace {
        let BucketCell { bucket, hash, by, .. } = *cell;
        // A cost of 0 changes nothing. Any other cost also changes the quotas that the key is counted by.
        let is_other = self.entry(hash).plan != by.plan;
        let changes = if is_other { cell.ask.cost() > 0 } else { after != before.state };
        let after = if !changes {
            before
        } else {
            let account = bucket.account_of(&by.rule, &before, now_us);
            let after = SlotWords { state: after, account, plan: by.plan };
            self.put(cell, after, now_us);
            after
        };
        trace((bucket, &by.rule), before.state, after, self.birth(hash), at_us)
    }

    /// Gives back spent units that still count.
    fn refund(&mut self, cell: &BucketCell<'_>, now_us: u64) {
        let (BucketCell { bucket, ask, at, .. }, cost) = (*cell, cell.ask.cost());
        let Some(receipt) = ask.receipt() else { return self.give(cell, now_us, None, cost) };
        let cost = cost.min(receipt.cost_of(at.1));
        let trace = receipt.trace(at.1);
        let own = trace.filter(|trace| is_of(bucket, trace));
        let is_turn = trace.is_some() && receipt.at_us() > now_us;
        match (own, self) {
            (Some(trace), place) if is_turn => place.leave(cell, trace, cost, now_us),
            // The turn is unknown here by now.
            (None, _) if trace.is_some() => {}
            (Some(trace), LockedSet::Log(shard)) => {
                shard.give_back(cell.in_log(), entered(trace), cost, now_us)
            }
            (Some(trace), place) if trace.floor.is_some() => {
                place.end_lease(cell, (receipt, trace), cost, now_us);
            }
            (_, place) if bucket.ahead.may_depend(&cell.by.rule, place.state(cell, now_us), now_us) => {}
            (Some(trace), place) if bucket.accounts() => place.give_back(cell, receipt, trace, cost, now_us),
            // Without an account it is unknown by which quotas the units have drained.
            (_, place) if !bucket.takes_quotas() && !bucket.never_had(&ask) => {
                place.give(cell, now_us, Some(now_us.saturating_sub(receipt.at_us())), cost);
            }
            _ => {}
        }
    }

    /// Gives back without an account: as if only these units had drained since.
    fn give(&mut self, cell: &BucketCell<'_>, now_us: u64, ago_us: Option<u64>, cost: u64) {
        let rule = &cell.by.rule;
        match self {
            LockedSet::Log(shard) => shard.refund(cell.in_log(), now_us, ago_us, cost),
            place => {
                let kept = place.kept(cell, now_us);
                let after = rule.refund(kept.state, now_us, ago_us.unwrap_or(0), cost);
                let given = rule.level(kept.state, now_us).saturating_sub(rule.level(after, now_us));
                place.gives(cell, kept, after, given, now_us);
            }
        }
    }

    /// Gives back by the account: units drain in the order of their arrival.
    fn give_back(&mut self, cell: &BucketCell<'_>, receipt: &Receipt, trace: &Trace, give: u64, now_us: u64) {
        let kept = self.kept(cell, now_us);
        if trace.birth != named(cell.bucket, self.birth(cell.hash)) || kept.state.until_us <= now_us {
            return;
        }
        let mut spent = told(cell, receipt, trace);
        spent.given_since = kept.account.given().saturating_sub(trace.given);
        let (state, given) = cell.by.rule.give_back(kept.state, now_us, &spent, give);
        self.gives(cell, kept, state, given, now_us);
    }

    pub(super) fn given(&mut self, cell: &BucketCell<'_>, mut kept: SlotWords, given: u64, now_us: u64) {
        if cell.bucket.accounts() {
            let account = kept.account.plus(given).filter(|account| account.birth() != 0);
            kept.account = account.unwrap_or_else(|| cell.bucket.new_account());
        }
        self.put(cell, kept, now_us);
    }

    /// Gives up the turn of the ask's receipt.
    fn give_up(&mut self, cell: &BucketCell<'_>, now_us: u64) {
        if let Some((_, trace, cost)) = returned(cell) {
            self.leave(cell, trace, cost, now_us);
        }
    }

    /// Gives back `cost` units of a turn that has not started, if no later turn depends on it.
    fn leave(&mut self, cell: &BucketCell<'_>, trace: &Trace, cost: u64, now_us: u64) {
        let rule = &cell.by.rule;
        match self {
            LockedSet::Log(shard) => {
                if shard.is_of_last_period(cell.in_log(), entered(trace), now_us) {
                    shard.give_back(cell.in_log(), entered(trace), cost, now_us);
                }
            }
            place => {
                let Some(state) = place.without_turn(cell, cost, now_us) else { return };
                let kept = SlotWords { state, ..place.kept(cell, now_us) };
                // A count does not keep the order: later spends may have been decided with these units.
                let given = if rule.is_level() { 0 } else { cost };
                place.given(cell, kept, given, now_us);
            }
        }
    }

    /// The state without `cost` units of a turn that has not started. Under a level that drains, a turn is given up whole.
    fn without_turn(&self, cell: &BucketCell<'_>, cost: u64, now_us: u64) -> Option<State> {
        let (receipt, trace, whole) = returned(cell)?;
        let is_whole = cost == whole || !cell.by.rule.is_level();
        // If the key is at rest, other calls have already given back the turn's units.
        let state = self.state(cell, now_us);
        let is_known = state.until_us > now_us && trace.birth == named(cell.bucket, self.birth(cell.hash));
        if receipt.at_us() <= now_us || !is_whole || !is_known {
            return None;
        }
        let turn = Spent { cost, ..told(cell, receipt, trace) };
        cell.by.rule.take_back(state, now_us, &turn)
    }
}

/// The trace of a spend from the bucket of this birth.
#[inline]
pub(super) fn trace(
    (bucket, rule): (&Bucket, &Rule),
    before: State,
    after: SlotWords,
    birth: u64,
    at_us: u64,
) -> Trace {
    Trace {
        found: rule.level(before, at_us),
        given: after.account.given(),
        birth: named(bucket, birth),
        before,
        after: after.state,
        floor: None,
    }
}

/// Identifies the bucket among all buckets of all keys, unless its numbers wrap.
pub(super) fn named(bucket: &Bucket, birth: u64) -> u64 {
    bucket.number << 32 | birth
}

/// Whether a trace is from this bucket, and not from a bucket that it has replaced.
fn is_of(bucket: &Bucket, trace: &Trace) -> bool {
    trace.birth >> 32 == bucket.number
}

/// The ask's receipt, its trace of the turn in this bucket, and the turn's units.
fn returned<'a>(cell: &BucketCell<'a>) -> Option<(&'a Receipt, &'a Trace, u64)> {
    let receipt = cell.ask.receipt()?;
    Some((receipt, receipt.trace(cell.at.1)?, receipt.cost_of(cell.at.1)))
}

pub(super) fn told(cell: &BucketCell<'_>, receipt: &Receipt, trace: &Trace) -> Spent {
    let Trace { found, before, after, .. } = *trace;
    Spent { at_us: receipt.at_us(), cost: receipt.cost_of(cell.at.1), found, given_since: 0, before, after }
}

/// Spends in a log; the trace locates the entry.
fn entering(cell: &BucketCell<'_>, shard: &mut Shard, now_us: u64, at_us: u64, cost: u64) -> Effect {
    let (bucket, log) = (cell.bucket, cell.in_log());
    let EntryRef { at_us, birth } = shard.spend(log, now_us, at_us, cost);
    bucket.reaches(cell.hash, now_us.saturating_add(shard.reset_after_us(log, now_us)));
    let after = State::new(at_us, 0);
    Effect { spent: cost, trace: Trace { birth: named(bucket, birth.into()), after, ..Trace::default() } }
}

/// The entry of a trace in a log of this bucket.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is the birth")]
fn entered(trace: &Trace) -> EntryRef {
    EntryRef { at_us: trace.after.until_us, birth: trace.birth as u32 }
}
