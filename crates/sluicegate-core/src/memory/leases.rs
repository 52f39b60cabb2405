//! Leased units: debited now, and spent later by an instance about which nothing is known here.
//!
//! A bucket that drains forgets units in the order in which they came. A leased unit may be spent
//! while all of it is still in the bucket, so the bucket must not sink below the end of the lease by
//! anything but time: that is the key's *floor*. Units that are given back free the place of units
//! behind them, which were spent already and may move forward; leased units, which may still be spent
//! as late as was promised, stay where they are. Counts of windows need no floor: a leased unit is in
//! the count of its window until that ends, wherever in it the unit is spent, and units that are given
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
    /// The number of units of a key that can be leased.
    pub(super) fn leasable(&mut self, cell: &BucketCell<'_>, now_us: u64) -> u64 {
        let (bucket, rule) = (cell.bucket, &cell.by.rule);
        let has_room = || !rule.is_level() || bucket.floors.has_room(cell.hash, now_us);
        if rule.can_lease() && has_room() { self.balance(cell, now_us).remaining } else { 0 }
    }

    /// Leases units that the key has.
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

    /// Ends a lease from a bucket that drains: its unspent units are the last ones of the lease, and come back as far
    /// as they have not drained.
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
        // These units have not moved: nothing that was given back since has lowered the bucket below them.
        let last = Spent { cost, found, given_since: 0, ..told(cell, receipt, trace) };
        let (after, given) = rule.give_back(kept.state, now_us, &last, cost);
        self.gives(cell, kept, after, given, now_us);
    }

    /// Stores the state after units were given back, which does not sink below the floor.
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

/// The state `after` units were given back, or the floor, if that is higher; never higher than it was `before`.
fn above(rule: &Rule, floor: State, before: State, after: State, now_us: u64) -> State {
    let [lowest, before_level, level] = [floor, before, after].map(|state| rule.weight(state, now_us));
    match level < lowest {
        true if before_level < lowest => before,
        true => floor,
        false => after,
    }
}

impl Bucket {
    /// Removes the floor of a key that was forgotten on request, or handed over: there is no lease of its bucket any more.
    pub(super) fn has_no_floor(&self, key: u64) {
        self.floors.set(key, State::REST, 0);
    }
}
