//! The locked places of one decision, and what can be done there: the same for tables and logs.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::bucket::{Bucket, Home};
use super::judge::{Reading, change, spent_ago_us};
use super::logs::Shard;
use super::table;
use crate::algorithm::{Rule, Slot, State, Units};
use crate::store::{Ask, Mode};

/// A set or shard.
pub(super) type Spot = (Home, usize);

/// One bucket of one ask.
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

/// The locked places of one decision.
pub(super) type Places<'a> = SmallVec<[Place<'a>; 4]>;

/// Where a cell's state is, locked.
pub(super) enum Place<'a> {
    Narrow(table::Locked<'a, 5, 1>),
    Wide(table::Locked<'a, 3, 2>),
    Log(MutexGuard<'a, Shard>),
}

impl Place<'_> {
    fn state(&self, hash: u64) -> State {
        match self {
            Place::Narrow(set) => set.get(set.find(hash)),
            Place::Wide(set) => set.get(set.find(hash)),
            Place::Log(_) => State::REST,
        }
    }

    fn put(&mut self, cell: &Cell<'_>, state: State, now_us: u64) {
        let Cell { bucket, hash, .. } = *cell;
        match self {
            Place::Narrow(set) => set.put(set.find(hash), hash, state, 0, now_us),
            Place::Wide(set) => set.put(set.find(hash), hash, state, bucket.fullness(state, now_us), now_us),
            Place::Log(_) => {}
        }
    }

    pub(super) fn slot(&mut self, cell: &Cell<'_>, now_us: u64, cost: u64) -> Slot {
        match (self, &cell.bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => shard.slot(cell.hash, rule, now_us, cost),
            (place, rule) => rule.slot(place.state(cell.hash), now_us, cost),
        }
    }

    pub(super) fn reading(&mut self, cell: &Cell<'_>, now_us: u64) -> Reading {
        match (self, &cell.bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => Reading {
                remaining: shard.remaining(cell.hash, rule, now_us),
                reset_after_us: shard.reset_after_us(cell.hash, now_us),
            },
            (place, rule) => {
                let state = place.state(cell.hash);
                Reading {
                    remaining: rule.remaining(state, now_us),
                    reset_after_us: rule.reset_after_us(state, now_us),
                }
            }
        }
    }

    pub(super) fn change(&mut self, cell: &Cell<'_>, now_us: u64, departs_us: u64) {
        let (Cell { bucket, hash, ask, .. }, cost) = (*cell, cell.ask.cost());
        match (&mut *self, &bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => {
                match ask.mode() {
                    Mode::Spend | Mode::Reserve { .. } => shard.spend(hash, rule, now_us, departs_us, cost),
                    Mode::Charge => shard.spend(hash, rule, now_us, now_us, cost),
                    Mode::Refund if bucket.never_had(&ask) => {}
                    Mode::Refund => shard.refund(hash, now_us, spent_ago_us(&ask, now_us), cost),
                    Mode::Reset => shard.reset(hash),
                    Mode::Peek | Mode::Return | Mode::Depart => {}
                }
                bucket.reaches(now_us.saturating_add(shard.reset_after_us(hash, now_us)));
            }
            (place, _) => {
                if let Some(after) = change(bucket, place.state(hash), &ask, now_us, departs_us) {
                    place.put(cell, after, now_us);
                }
            }
        }
    }

    /// Takes the key's state out and says what it had available when its policy was replaced, if it was not at rest.
    pub(super) fn take(&mut self, cell: &Cell<'_>, replaced_us: u64, now_us: u64) -> Option<Units> {
        match (&mut *self, &cell.bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => {
                let used = shard.used(cell.hash, now_us)?;
                shard.reset(cell.hash);
                Some(Units::whole(i128::from(rule.limit()) - i128::from(used)))
            }
            (place, rule) => {
                let state = place.state(cell.hash);
                place.put(cell, State::REST, now_us);
                (state.until_us > replaced_us).then(|| rule.available(state, replaced_us))
            }
        }
    }

    /// Starts the key with `kept`, which is what the replaced policy leaves it of what it had `available` there.
    ///
    /// A key that is known here already was spent from under the old policy after the new one began, by a request that
    /// was under way: then only what that one spent is added.
    pub(super) fn adopt(&mut self, cell: &Cell<'_>, kept: Units, spent: u64, replaced_us: u64, now_us: u64) {
        let Cell { bucket, hash, .. } = *cell;
        match (&mut *self, &bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => match shard.used(hash, now_us) {
                Some(_) => shard.spend(hash, rule, now_us, now_us, spent),
                None => shard.spend(hash, rule, now_us, replaced_us, kept.missing_of(bucket.capacity)),
            },
            (place, rule) => {
                let known = place.state(hash);
                let state = if known.until_us > now_us {
                    rule.spend(known, now_us, now_us, spent)
                } else {
                    rule.state_with(kept, replaced_us)
                };
                bucket.reaches(state.until_us);
                place.put(cell, state, now_us);
            }
        }
    }
}
