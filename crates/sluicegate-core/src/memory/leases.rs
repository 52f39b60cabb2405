//! Leased units: spent from the bucket now, and used later by an instance that this store does not know.
//!
//! A bucket that drains forgets units in the order of their arrival. A leased unit may be spent
//! while all of it is still in the bucket, so the bucket must not sink below the end of the lease by
//! anything but time: that level is the key's *floor*. Units that are given back free the place of units
//! behind them. Spent units may move forward; leased units, which may still be spent
//! at the last promised moment, do not move. Counts of windows need no floor: a leased unit is in
//! the count of its window until the window ends, whenever the unit is spent, and units that are given
//! back there were not spent.

use super::bucket::Bucket;
use super::change::{Effect, named, told};
use super::home::LockedSet;
use super::place::BucketCell;
use super::plans::NumberedRule;
use super::table::SlotWords;
use crate::algorithm::{Rule, Spent, State};
use crate::receipt::{Receipt, Trace};

impl LockedSet<'_> {
    /// The number of leasable units of a key.
    pub(super) fn leasable(&mut self, cell: &BucketCell<'_>, now_us: u64) -> u64 {
        let (bucket, rule) = (cell.bucket, &cell.by.rule);
        let has_room = || !rule.is_level() || bucket.floors.has_room(cell.hash, now_us);
        if rule.can_lease() && has_room() { self.balance(cell, now_us).remaining } else { 0 }
    }

    /// Leases units of the key.
    pub(super) fn lease(&mut self, cell: &BucketCell<'_>, now_us: u64, units: u64) -> Effect {
        let (BucketCell { bucket, hash, by: NumberedRule { rule, .. }, .. }, kept) =
            (*cell, self.kept(cell, now_us));
        let after = rule.spend(kept.state, now_us, now_us, units);
        let trace = self.spent(cell, kept, after, now_us, now_us);
        let floor = rule.is_level().then(|| {
            let before = bucket.floors.of(hash, now_us);
            bucket.floors.set(hash, after, now_us);
            before
        });
        Effect { spent: units, trace: Trace { floor, ..trace } }
    }

    /// Ends a lease from a bucket that drains: its unspent units are the last ones of the lease, and come back if they have not
    /// drained.
    pub(super) fn end_lease(
        &mut self,
        cell: &BucketCell<'_>,
        (receipt, trace): (&Receipt, &Trace),
        cost: u64,
        now_us: u64,
    ) {
        let (BucketCell { bucket, hash, .. }, rule) = (*cell, &cell.by.rule);
        let kept = self.kept(cell, now_us);
        let Some(before) = trace.floor.filter(|_| trace.birth == named(bucket, self.birth(hash))) else {
            return;
        };
        if bucket.floors.of(hash, now_us) == trace.after {
            bucket.floors.set(hash, before, now_us);
        }
        if kept.state.until_us <= now_us || bucket.ahead.may_depend(rule, kept.state, now_us) {
            return;
        }
        let end = rule.level(trace.after, receipt.at_us());
        let found = end.saturating_sub(cost.saturating_mul(rule.per_unit()));
        // These units have not moved: later refunds have not lowered the bucket below them.
        let last = Spent { cost, found, given_since: 0, ..told(cell, receipt, trace) };
        let (after, given) = rule.give_back(kept.state, now_us, &last, cost);
        self.gives(cell, kept, after, given, now_us);
    }

    /// Stores the state after a refund, which does not sink below the floor.
    pub(super) fn gives(
        &mut self,
        cell: &BucketCell<'_>,
        kept: SlotWords,
        after: State,
        given: u64,
        now_us: u64,
    ) {
        let (BucketCell { bucket, hash, .. }, rule) = (*cell, &cell.by.rule);
        let floor = bucket.floors.of(hash, now_us);
        if floor == State::REST {
            return self.given(cell, SlotWords { state: after, ..kept }, given, now_us);
        }
        let state = above(rule, floor, kept.state, after, now_us);
        let level = rule.level(kept.state, now_us);
        // Units from behind the floor have taken places before it, and it is unknown which: from now on, all of them count as the
        // first in the bucket, which drain at once.
        let given = if level > rule.level(state, now_us) { level } else { 0 };
        self.given(cell, SlotWords { state, ..kept }, given, now_us);
    }
}

/// The state `after` a refund, or the floor if it is higher; never higher than the state `before`.
fn above(rule: &Rule, floor: State, before: State, after: State, now_us: u64) -> State {
    let [lowest, before_level, level] = [floor, before, after].map(|state| rule.weight(state, now_us));
    match level < lowest {
        true if before_level < lowest => before,
        true => floor,
        false => after,
    }
}

impl Bucket {
    /// Removes the floor of a key that was forgotten on request, or handed over: its bucket has no lease any more.
    pub(super) fn has_no_floor(&self, key: u64) {
        self.floors.set(key, State::REST, 0);
    }
}
