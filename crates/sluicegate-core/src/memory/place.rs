//! Questions about a key's state, and changes of it: for tables and logs alike.

use smallvec::SmallVec;

use super::bucket::Bucket;
use super::home::LockedSet;
use super::plans::NumberedRule;
use super::table::SlotWords;
use crate::algorithm::{Balance, SlidingLog, Slot, State};
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
}
