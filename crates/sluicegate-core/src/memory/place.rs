//! The questions and changes where a key's state is: the same for tables and logs, beside what is held.

use smallvec::SmallVec;

use super::bucket::Bucket;
use super::holds::{Hold, units};
use super::home::Place;
use super::table::Kept;
use crate::algorithm::{NEVER, Rule, Slot, State};
use crate::store::{Ask, Balance, Mode};

/// A set or shard: the number of its bucket, and which one it is there. Several are locked in this order.
pub(super) type Spot = (u64, usize);

/// One bucket of one ask.
///
/// An ask about a policy of three quotas is three cells. Cells of one call that are about the same
/// state are twins, and share a place.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    pub(super) bucket: &'a Bucket,
    pub(super) ask: Ask<'a>,
    pub(super) hash: u64,
    /// The ask that it belongs to, and the quota of that ask's policy.
    pub(super) at: (u8, u8),
    pub(super) spot: Spot,
    /// Where it is among the locked places.
    pub(super) place: usize,
}

impl Cell<'_> {
    /// Whether both are about the same state.
    pub(super) fn is_twin_of(&self, other: &Self) -> bool {
        self.hash == other.hash && self.bucket.number == other.bucket.number
    }
}

/// The locked places of one decision.
pub(super) type Places<'a> = SmallVec<[Place<'a>; 4]>;

impl Place<'_> {
    /// When `cost` would pass if nothing else arrived.
    pub(super) fn slot(&mut self, cell: &Cell<'_>, now_us: u64, cost: u64) -> Slot {
        let rule = &cell.bucket.rule;
        if !cell.bucket.holds.any() && !matches!(self, Place::Log(_)) {
            return rule.slot(self.state(cell.hash), now_us, cost);
        }
        let held = cell.bucket.holds.of(cell.hash);
        match self {
            Place::Log(shard) => shard.slot(cell.hash, &held, now_us, cost),
            place => slot_beside(rule, place.state(cell.hash), &held, now_us, cost),
        }
    }

    /// The units left in the key's bucket.
    pub(super) fn balance(&mut self, cell: &Cell<'_>, now_us: u64) -> Balance {
        let (held, Cell { bucket, hash, .. }) = (cell.bucket.holds.of(cell.hash), *cell);
        let (remaining, reset_after_us) = match self {
            Place::Log(shard) => {
                let period_us = bucket.rule.longest_spend_us();
                let last = held.last().map_or(0, |hold| hold.until_us.saturating_add(period_us));
                let used = shard.used(hash, now_us);
                (
                    bucket.capacity.saturating_sub(used),
                    shard.reset_after_us(hash, now_us).max(last.saturating_sub(now_us)),
                )
            }
            place => {
                let (rule, state) = (&bucket.rule, place.state(hash));
                let after = held.iter().fold(state, |state, hold| departed(rule, state, hold));
                (rule.remaining(state, now_us), rule.reset_after_us(after, now_us))
            }
        };
        let remaining = remaining.saturating_sub(units(&held));
        Balance { capacity: bucket.capacity, remaining, reset_after_us }
    }

    /// Where newcomers start with less than a burst, the key of an ask that spends is known from now on, whatever becomes of
    /// that: otherwise one that is refused would be refused as a newcomer forever.
    pub(super) fn begin(&mut self, cell: &Cell<'_>, now_us: u64) {
        let Cell { bucket, hash, ask, .. } = *cell;
        let spends = ask.mode().spends() || ask.mode() == Mode::Charge;
        if bucket.rule.begins() && spends && self.state(hash).until_us <= now_us {
            let kept = Kept { state: bucket.rule.begun(now_us), account: bucket.new_account() };
            self.put(hash, kept, &bucket.rule, now_us);
        }
    }

    /// Spends what was held until now for requests that have departed, or are gone, as of the moment of each departure.
    pub(super) fn settle(&mut self, cell: &Cell<'_>, now_us: u64) {
        let Cell { bucket, hash, .. } = *cell;
        if !bucket.holds.any() {
            return;
        }
        let ended = bucket.holds.ended(hash, now_us);
        let Some(first) = ended.first() else { return };
        match self {
            Place::Log(shard) => {
                for hold in &ended {
                    shard.spend(hash, now_us, hold.until_us, hold.units);
                }
            }
            place => {
                let mut kept = place.kept(hash);
                kept.account = bucket.account_of(&kept, first.until_us);
                // All of them before it is stored: what one leaves may be at rest by now, and not what all leave.
                kept.state = ended.iter().fold(kept.state, |state, hold| departed(&bucket.rule, state, hold));
                bucket.reaches(kept.state.until_us);
                place.put(hash, kept, &bucket.rule, now_us);
            }
        }
    }
}

/// The state after what was held has departed.
fn departed(rule: &Rule, state: State, hold: &Hold) -> State {
    rule.spend(state, hold.until_us, hold.until_us, hold.units)
}

/// When `cost` would pass beside what is held: all of it counts until it departs, and does not drain before.
///
/// It goes through the departures in order: before each of them all held units count, after it they
/// are a spend of that moment. The first gap in which the cost fits is the answer.
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
        // By then it is spent.
        state = departed(rule, state, hold);
        left -= hold.units;
        from_us = from_us.max(hold.until_us);
    }
    rule.slot(state, from_us, cost)
}
