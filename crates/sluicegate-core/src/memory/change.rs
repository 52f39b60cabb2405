//! The changes that an ask makes to a key's state.
//!
//! All asks of the decision have passed, so no code here refuses. Three things are
//! kept beside the state: the account (units given back), the reserved turns, and the trace,
//! which goes into the receipt and records the exact state before and after.
//!
//! # Leases
//! Leased units are spent from the bucket now, and used later by an instance that this store does not know.
//!
//! A bucket that drains forgets units in the order of their arrival. A leased unit may be spent
//! while all of it is still in the bucket, so the bucket must not sink below the end of the lease by
//! anything but time: that level is the key's *floor*. Units that are given back free the place of units
//! behind them. Spent units may move forward; leased units, which may still be spent
//! at the last promised moment, do not move. Counts of windows need no floor: a leased unit is in
//! the count of its window until the window ends, whenever the unit is spent, and units that are given
//! back there were not spent.

use smallvec::SmallVec;

use super::buckets::Bucket;
use super::home::LockedSet;
use super::logs::{EntryRef, Shard};
use super::slot::{NumberedRule, SlotWords};
use crate::algorithm::{Balance, Rule, SlidingLog, Slot, Spent, State};
use crate::receipt::{Receipt, Trace};
use crate::store::{Ask, Mode};

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
                returned(cell).into_iter().for_each(|(_, trace, cost)| self.leave(cell, trace, cost, now_us));
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
        trace((bucket, &by.rule), before.state, after, self.birth(cell), at_us)
    }

    /// Gives back spent units that still count.
    ///
    /// Without a receipt, the units count as the newest. With one, units of a turn, a lease or a log go back to where they were. All
    /// others come back as far as they have not drained: by the account of the key, or as if only they had drained since.
    fn refund(&mut self, cell: &BucketCell<'_>, now_us: u64) {
        let BucketCell { bucket, ask, at: (_, quota), .. } = *cell;
        let Some(receipt) = ask.receipt() else { return self.give(cell, now_us, None, ask.cost()) };
        let cost = ask.cost().min(receipt.cost_of(quota));
        let Some(trace) = receipt.trace(quota) else {
            return self.give_undrained(cell, receipt, cost, now_us);
        };
        if !is_of(bucket, trace) {
            return; // It is unknown here what became of the units of a replaced bucket.
        }
        if receipt.at_us() > now_us {
            self.leave(cell, trace, cost, now_us);
        } else if let LockedSet::Log(shard) = self {
            shard.give_back(cell.in_log(), entered(trace), cost, now_us);
        } else if trace.floor.is_some() {
            self.end_lease(cell, receipt, trace, cost, now_us);
        } else if bucket.accounts() {
            self.give_back(cell, receipt, trace, cost, now_us);
        } else {
            self.give_undrained(cell, receipt, cost, now_us);
        }
    }

    /// Gives back units without an account, unless a turn may depend on them, or it is unknown by which quotas they have drained.
    fn give_undrained(&mut self, cell: &BucketCell<'_>, receipt: &Receipt, cost: u64, now_us: u64) {
        let BucketCell { bucket, ask, .. } = *cell;
        if !self.may_depend(cell, now_us) && !bucket.takes_quotas() && !bucket.never_had(&ask) {
            self.give(cell, now_us, Some(now_us.saturating_sub(receipt.at_us())), cost);
        }
    }

    /// Whether a reserved turn may depend on units that are given back.
    pub(super) fn may_depend(&self, cell: &BucketCell<'_>, now_us: u64) -> bool {
        cell.bucket.ahead.may_depend(&cell.by.rule, self.state(cell, now_us), now_us)
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

    /// Gives back by the account, unless a turn may depend on the units: they drain in the order of their arrival.
    fn give_back(&mut self, cell: &BucketCell<'_>, receipt: &Receipt, trace: &Trace, give: u64, now_us: u64) {
        let kept = self.kept(cell, now_us);
        let is_known = trace.birth == named(cell.bucket, self.birth(cell)) && kept.state.until_us > now_us;
        if !is_known || self.may_depend(cell, now_us) {
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
        let is_known = state.until_us > now_us && trace.birth == named(cell.bucket, self.birth(cell));
        if receipt.at_us() <= now_us || !is_whole || !is_known {
            return None;
        }
        let turn = Spent { cost, ..told(cell, receipt, trace) };
        cell.by.rule.take_back(state, now_us, &turn)
    }

    /// The table's entry of the key, as the ask counts it; the entry of a key at rest if this is a log.
    pub(super) fn kept(&self, cell: &BucketCell<'_>, now_us: u64) -> SlotWords {
        cell.bucket.rules.counted(self.entry(cell.hash), (&cell.by.rule, cell.by.plan), now_us)
    }

    pub(super) fn state(&self, cell: &BucketCell<'_>, now_us: u64) -> State {
        self.kept(cell, now_us).state
    }

    /// The number of the key's present bucket. It changes after the key was forgotten or counted by another plan and, where there
    /// are accounts, after the key was at rest.
    fn birth(&self, cell: &BucketCell<'_>) -> u64 {
        if cell.bucket.accounts() { self.entry(cell.hash).account.birth() } else { self.forgotten() }
    }

    /// Stores an entry of the key, counted as the ask counts.
    pub(super) fn put(&mut self, cell: &BucketCell<'_>, kept: SlotWords, now_us: u64) {
        let (kept, rules) = (SlotWords { plan: cell.by.plan, ..kept }, &cell.bucket.rules);
        rules.reaches(kept.plan, kept.state.until_us);
        self.put_at(self.look(cell.hash).0, cell.hash, kept, rules, now_us);
    }

    /// When `cost` would pass if nothing else arrived.
    pub(super) fn slot(&mut self, cell: &BucketCell<'_>, now_us: u64, cost: u64) -> Slot {
        match self {
            LockedSet::Log(shard) => shard.slot(cell.in_log(), now_us, cost),
            place => cell.by.rule.slot(place.state(cell, now_us), now_us, cost),
        }
    }

    /// The units left in the key's bucket.
    pub(super) fn balance(&mut self, cell: &BucketCell<'_>, now_us: u64) -> Balance {
        let rule = &cell.by.rule;
        let state = match self {
            LockedSet::Log(shard) => {
                let until_us = now_us.saturating_add(shard.reset_after_us(cell.in_log(), now_us));
                State::new(until_us, shard.used(cell.in_log(), now_us))
            }
            place => place.state(cell, now_us),
        };
        Balance { reset_after_us: rule.reset_after_us(state, now_us), ..rule.balance(state, now_us) }
    }

    /// Makes a key known when an ask spends, if newcomers start with less than a burst, even if the ask is refused: a refused key
    /// would otherwise be refused as a newcomer forever. Returns whether the key was unknown.
    pub(super) fn begin(&mut self, cell: &BucketCell<'_>, now_us: u64) -> bool {
        let BucketCell { bucket, ask, by, .. } = *cell;
        let spends = ask.mode().spends() || ask.mode() == Mode::Charge;
        let begins = by.rule.begins() && spends && self.state(cell, now_us).until_us <= now_us;
        if begins {
            let kept =
                SlotWords { state: by.rule.begun(now_us), account: bucket.new_account(), plan: by.plan };
            self.put(cell, kept, now_us);
        }
        begins
    }

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
        receipt: &Receipt,
        trace: &Trace,
        cost: u64,
        now_us: u64,
    ) {
        let BucketCell { bucket, hash, by: NumberedRule { rule, .. }, .. } = *cell;
        let kept = self.kept(cell, now_us);
        let Some(before) = trace.floor.filter(|_| trace.birth == named(bucket, self.birth(cell))) else {
            return;
        };
        if bucket.floors.of(hash, now_us) == trace.after {
            bucket.floors.set(hash, before, now_us);
        }
        if kept.state.until_us <= now_us || self.may_depend(cell, now_us) {
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

/// A set or shard: the number of its bucket and its index there. It defines the lock order.
pub(super) type Spot = (u64, usize);

/// One bucket of one ask.
///
/// An ask about a policy of three quotas is three cells. Cells of one call that are about the same
/// state are twins and share a place.
#[derive(Clone, Copy)]
pub(super) struct BucketCell<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) ask: Ask<'a>,
    pub(super) hash: u64,
    /// How the ask counts: by the rule of the policy's quota, or by a rule that the key brings.
    pub(super) by: NumberedRule,
    /// The ask that it belongs to, and the quota of that ask's policy.
    pub(super) at: (u8, u8),
    pub(super) spot: Spot,
    /// The index of its place among the locked ones.
    pub(super) place: usize,
}

impl BucketCell<'_> {
    /// The key in a log, and the rule by which the ask counts it; for a bucket of logs.
    pub(super) fn in_log(&self) -> (u64, &SlidingLog) {
        (self.hash, self.by.rule.log().expect("a bucket of logs has rules of logs"))
    }

    /// Whether both are about the same state.
    pub(super) fn is_twin_of(&self, other: &Self) -> bool {
        self.hash == other.hash && self.bucket.number == other.bucket.number
    }
}

/// The locked places of one decision.
pub(super) type LockedSets<'a> = SmallVec<[LockedSet<'a>; 4]>;

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
