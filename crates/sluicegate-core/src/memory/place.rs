//! Questions about a key's state, and changes of it: for tables and logs alike, with held units counted.

use smallvec::SmallVec;

use super::bucket::Bucket;
use super::holds::{Hold, units};
use super::home::LockedSet;
use super::plans::NumberedRule;
use super::table::SlotWords;
use crate::algorithm::{Balance, NEVER, Rule, SlidingLog, Slot, State};
use crate::store::{Ask, Mode};

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

impl LockedSet<'_> {
    /// The table's entry of the key, as the ask counts it; the entry of a key at rest if this is a log.
    pub(super) fn kept(&self, cell: &BucketCell<'_>, now_us: u64) -> SlotWords {
        cell.bucket.rules.counted(self.entry(cell.hash), (&cell.by.rule, cell.by.plan), now_us)
    }

    pub(super) fn state(&self, cell: &BucketCell<'_>, now_us: u64) -> State {
        self.kept(cell, now_us).state
    }

    /// Stores an entry of the key, counted as the ask counts.
    pub(super) fn put(&mut self, cell: &BucketCell<'_>, kept: SlotWords, now_us: u64) {
        let (kept, rules) = (SlotWords { plan: cell.by.plan, ..kept }, &cell.bucket.rules);
        rules.reaches(kept.plan, kept.state.until_us);
        self.put_at(self.look(cell.hash).0, cell.hash, kept, rules, now_us);
    }

    /// When `cost` would pass if nothing else arrived.
    pub(super) fn slot(&mut self, cell: &BucketCell<'_>, now_us: u64, cost: u64) -> Slot {
        let rule = &cell.by.rule;
        if !cell.bucket.holds.any() && !matches!(self, LockedSet::Log(_)) {
            return rule.slot(self.state(cell, now_us), now_us, cost);
        }
        let held = cell.bucket.holds.of(cell.hash);
        match self {
            LockedSet::Log(shard) => shard.slot(cell.in_log(), &held, now_us, cost),
            place => slot_beside(rule, place.state(cell, now_us), &held, now_us, cost),
        }
    }

    /// The units left in the key's bucket.
    pub(super) fn balance(&mut self, cell: &BucketCell<'_>, now_us: u64) -> Balance {
        let (held, rule) = (cell.bucket.holds.of(cell.hash), &cell.by.rule);
        let [state, after] = self.beside(cell, &held, now_us);
        let balance = rule.balance(state, now_us).beside(units(&held));
        Balance { reset_after_us: rule.reset_after_us(after, now_us), ..balance }
    }

    /// The state of a key, and its state after all held units have departed; of a log, the units now and the end.
    fn beside(&mut self, cell: &BucketCell<'_>, held: &[Hold], now_us: u64) -> [State; 2] {
        let rule = &cell.by.rule;
        match self {
            LockedSet::Log(shard) => {
                let used = shard.used(cell.in_log(), now_us);
                let until_us = now_us.saturating_add(shard.reset_after_us(cell.in_log(), now_us));
                let last =
                    held.last().map_or(0, |hold| hold.until_us.saturating_add(rule.longest_spend_us()));
                [until_us, until_us.max(last)].map(|until_us| State::new(until_us, used))
            }
            place => {
                let state = place.state(cell, now_us);
                [state, held.iter().fold(state, |state, hold| departed(rule, state, hold))]
            }
        }
    }

    /// Notes when the held units of a key will have drained: a debt and reserved turns come before them.
    pub(super) fn note_held(&mut self, cell: &BucketCell<'_>, now_us: u64) {
        let BucketCell { bucket, hash, .. } = *cell;
        if cell.ask.mode() == Mode::Peek || !bucket.holds.any() {
            return;
        }
        let held = bucket.holds.of(hash);
        if !held.is_empty() {
            let [_, after] = self.beside(cell, &held, now_us);
            bucket.holds.last_until(hash, after.until_us);
            bucket.reaches(hash, after.until_us);
        }
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

    /// Spends the holds of requests that have departed or are gone, each as of the moment of its departure.
    pub(super) fn settle(&mut self, cell: &BucketCell<'_>, now_us: u64) {
        let BucketCell { bucket, hash, .. } = *cell;
        if !bucket.holds.any() {
            return;
        }
        let ended = bucket.holds.ended(hash, now_us);
        let Some(first) = ended.first() else { return };
        // By the quotas of then, whatever the ask brings: those of the key's last spend, or of the request if the key was at rest.
        let before = self.entry(hash);
        let by = |plan| NumberedRule { rule: bucket.rules.numbered(plan), plan };
        let by = by(if before.state.until_us > first.until_us { before.plan } else { first.plan });
        let cell = &BucketCell { by, ..*cell };
        match self {
            LockedSet::Log(shard) => {
                for hold in &ended {
                    shard.spend(cell.in_log(), now_us, hold.until_us, hold.units);
                }
            }
            place => {
                let mut kept = place.kept(cell, now_us);
                kept.account = bucket.account_of(&by.rule, &kept, first.until_us);
                // Apply all holds before the state is stored: the state after one hold may be at rest by now, and the state after all may
                // not be.
                kept.state = ended.iter().fold(kept.state, |state, hold| departed(&by.rule, state, hold));
                bucket.reaches(hash, kept.state.until_us);
                place.put(cell, kept, now_us);
            }
        }
    }
}

/// The state after a hold has departed.
fn departed(rule: &Rule, state: State, hold: &Hold) -> State {
    rule.spend(state, hold.until_us, hold.until_us, hold.units)
}

/// When `cost` would pass beside held units, which count in full and do not drain until they depart.
///
/// It goes through the departures in order: before each of them all held units count, after it they
/// become a spend at that moment. The first gap with room for the cost is the answer.
fn slot_beside(rule: &Rule, mut state: State, held: &[Hold], now_us: u64, cost: u64) -> Slot {
    let (mut left, mut from_us) = (units(held), now_us);
    if cost > rule.capacity() {
        return Slot { opens_us: NEVER, departs_us: NEVER };
    }
    for hold in held {
        let slot = rule.slot(state, from_us, cost.saturating_add(left));
        if slot.opens_us < hold.until_us {
            return slot;
        }
        // At that moment the hold is spent.
        state = departed(rule, state, hold);
        left -= hold.units;
        from_us = from_us.max(hold.until_us);
    }
    rule.slot(state, from_us, cost)
}
