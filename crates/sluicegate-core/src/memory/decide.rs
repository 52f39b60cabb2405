//! One decision: find the buckets, lock their sets, judge, and spend from all or none.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::bucket::{Bucket, Buckets, Home};
use super::logs::{Logs, Shard};
use super::{Inner, table};
use crate::algorithm::{NEVER, Rule, Slot, State, Units};
use crate::clock::micros;
use crate::decision::{Decision, Outcome, Standing};
use crate::error::{StoreError, StoreErrorKind};
use crate::policy::MAX_BUCKETS;
use crate::store::{Ask, Mode};

impl Inner {
    #[inline]
    pub(super) fn decide_now(&self, asks: &[Ask<'_>]) -> Result<Decision, StoreError> {
        // Almost every decision is one key in one bucket of one word; it needs no list.
        if let [ask] = asks {
            let buckets = buckets_of(ask)?;
            if let [bucket @ Bucket { home: Home::Narrow, inherits: None, .. }] = &*buckets.each {
                return Ok(self.decide_single(bucket, ask));
            }
        }
        self.decide_all(asks)
    }

    fn decide_single(&self, bucket: &Bucket, ask: &Ask<'_>) -> Decision {
        let hash = self.hash(bucket.salt, ask.key());
        let table = self.narrow();
        let set = table.set_of(hash);
        let now_us = self.clock.now_us();
        let mut set = table.lock(set);
        let mut state = set.get(hash);
        let slot = bucket.rule.slot(state, now_us, ask.cost());
        let passed = passes(bucket, ask.mode(), slot, now_us);
        let after = passed.then(|| change(bucket, state, ask, now_us, slot.departs_us)).flatten();
        if let Some(after) = after {
            set.put(hash, after, now_us);
            state = after;
        }
        drop(set);
        let reading = Reading {
            remaining: bucket.rule.remaining(state, now_us),
            reset_after_us: bucket.rule.reset_after_us(state, now_us),
        };
        let standing = standing((0, 0), bucket, ask.mode(), passed, slot, reading, now_us, |cost| {
            bucket.rule.slot(state, now_us, cost)
        });
        let delay_us = delay(ask.mode(), slot, now_us);
        Decision::single(outcome(passed, slot), delay_us, standing)
    }

    /// The general case: several asks, several quotas, logs, replaced policies.
    fn decide_all(&self, asks: &[Ask<'_>]) -> Result<Decision, StoreError> {
        let cells = self.cells(asks)?;
        let now_us = self.clock.now_us();
        let mut places = self.lock_all(&cells, now_us);
        for cell in &cells {
            self.inherit(cell, &mut places, now_us);
        }
        let judged: SmallVec<[(Slot, bool); 4]> = (0..cells.len())
            .map(|index| {
                let cell = &cells[index];
                let cost = cell.ask.cost().saturating_add(ahead(&cells[..index], cell));
                let slot = places.of(self, cell).slot(cell, now_us, cost);
                (slot, passes(cell.bucket, cell.ask.mode(), slot, now_us))
            })
            .collect();
        let granted = judged.iter().all(|&(_, passed)| passed);
        // All of a request goes on together, when the last of its turns has come.
        let delays = cells.iter().zip(&judged).map(|(cell, (slot, _))| delay(cell.ask.mode(), *slot, now_us));
        let delay_us = delays.max().unwrap_or(0);
        if granted {
            for cell in &cells {
                places.of(self, cell).change(cell, now_us, now_us.saturating_add(delay_us));
            }
        }
        let standings = cells.iter().zip(&judged).map(|(cell, &(slot, passed))| {
            let place = places.of(self, cell);
            let reading = place.reading(cell, now_us);
            standing(cell.at, cell.bucket, cell.ask.mode(), passed, slot, reading, now_us, |cost| {
                place.slot(cell, now_us, cost)
            })
        });
        let standings: SmallVec<[Standing; 4]> = standings.collect();
        let refused = judged.iter().filter(|(_, passed)| !passed).max_by_key(|(slot, _)| slot.opens_us);
        let outcome = refused.map_or(Outcome::Allowed, |&(slot, _)| outcome(false, slot));
        Ok(Decision::new(outcome, delay_us, standings))
    }

    fn cells<'a>(&self, asks: &[Ask<'a>]) -> Result<Cells<'a>, StoreError> {
        let mut cells = Cells::new();
        for (policy, ask) in (0_u8..).zip(asks) {
            for (quota, bucket) in (0_u8..).zip(&*buckets_of(ask)?.each) {
                if cells.len() == MAX_BUCKETS {
                    return Err(StoreError::new(StoreErrorKind::TooManyBuckets));
                }
                cells.push(Cell {
                    bucket,
                    ask: *ask,
                    hash: self.hash(bucket.salt, ask.key()),
                    at: (policy, quota),
                });
            }
        }
        if cells.is_empty() { Err(StoreError::new(StoreErrorKind::NothingAsked)) } else { Ok(cells) }
    }

    /// Locks every set and shard that the cells and the buckets they inherit from live in, each once, in one order.
    fn lock_all(&self, cells: &[Cell<'_>], now_us: u64) -> Places<'_> {
        let mut spots: SmallVec<[Spot; MAX_BUCKETS]> = SmallVec::new();
        for cell in cells {
            let mut cell = *cell;
            spots.push(self.spot(&cell));
            while let Some(older) = self.older(&cell, now_us) {
                spots.push(self.spot(&older));
                cell = older;
            }
        }
        spots.sort_unstable();
        spots.dedup();
        let locked = spots.iter().map(|&(home, index)| match home {
            Home::Narrow => Place::Narrow(self.narrow().lock(index)),
            Home::Wide => Place::Wide(self.wide().lock(index)),
            Home::Logs => Place::Log(self.logs().lock(index)),
        });
        Places { locked: locked.collect(), spots }
    }

    fn spot(&self, cell: &Cell<'_>) -> Spot {
        let index = match cell.bucket.home {
            Home::Narrow => self.narrow().set_of(cell.hash),
            Home::Wide => self.wide().set_of(cell.hash),
            Home::Logs => Logs::shard_of(cell.hash),
        };
        (cell.bucket.home, index)
    }

    /// The same key in the bucket that this one follows.
    fn older<'a>(&self, cell: &Cell<'a>, now_us: u64) -> Option<Cell<'a>> {
        let (bucket, _) = cell.bucket.predecessor(now_us)?;
        Some(Cell { bucket, hash: self.hash(bucket.salt, cell.ask.key()), ..*cell })
    }

    /// Moves what an older generation of the bucket remembers of the key into this one.
    fn inherit(&self, cell: &Cell<'_>, places: &mut Places<'_>, now_us: u64) {
        let Some(((_, inherits), older)) = cell.bucket.predecessor(now_us).zip(self.older(cell, now_us))
        else {
            return;
        };
        self.inherit(&older, places, now_us);
        let Some(available) = places.of(self, &older).take(&older, inherits.replaced_us, now_us) else {
            return;
        };
        if let Some(units) = inherits.how.units(available, older.bucket.capacity, cell.bucket.capacity) {
            places.of(self, cell).adopt(cell, units, inherits.replaced_us, now_us);
        }
    }
}

fn buckets_of<'a>(ask: &Ask<'a>) -> Result<&'a Buckets, StoreError> {
    let buckets = ask.policy().prepared::<std::sync::Arc<Buckets>>();
    buckets.map(|buckets| &**buckets).ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
}

/// Whether the ask gets what it wants; those that only give or take do always.
#[inline]
fn passes(bucket: &Bucket, mode: Mode, slot: Slot, now_us: u64) -> bool {
    match mode {
        Mode::Spend | Mode::Peek => slot.opens_us <= now_us,
        Mode::Reserve { longest } => slot.opens_us != NEVER && turn_us(bucket, longest, slot) <= now_us,
        Mode::Refund | Mode::Charge | Mode::Reset => true,
    }
}

/// The earliest moment at which a turn that comes within `longest` can be had.
fn turn_us(bucket: &Bucket, longest: std::time::Duration, slot: Slot) -> u64 {
    let soonest_us = slot.departs_us.saturating_sub(micros(longest));
    // A full queue lets nobody wait outside of it.
    if bucket.rule.is_queue() { soonest_us.max(slot.opens_us) } else { soonest_us }
}

#[inline]
fn delay(mode: Mode, slot: Slot, now_us: u64) -> u64 {
    if mode.spends() { slot.departs_us.saturating_sub(now_us) } else { 0 }
}

/// The state after the ask, if it changes anything.
#[inline]
fn change(bucket: &Bucket, state: State, ask: &Ask<'_>, now_us: u64, departs_us: u64) -> Option<State> {
    let rule = &bucket.rule;
    let after = match ask.mode() {
        Mode::Spend | Mode::Reserve { .. } => rule.spend(state, now_us, departs_us, ask.cost()),
        Mode::Charge => rule.charge(state, now_us, ask.cost()),
        Mode::Refund => rule.refund(state, now_us, ask.cost()),
        Mode::Reset => State::REST,
        Mode::Peek => return None,
    };
    if ask.mode() == Mode::Charge || departs_us > now_us {
        bucket.reaches(after.until_us);
    }
    Some(after)
}

fn outcome(passed: bool, slot: Slot) -> Outcome {
    match slot.opens_us {
        _ if passed => Outcome::Allowed,
        NEVER => Outcome::Impossible,
        _ => Outcome::Denied,
    }
}

struct Reading {
    remaining: u64,
    reset_after_us: u64,
}

#[inline]
#[expect(clippy::too_many_arguments, reason = "one place that turns all that was found into numbers")]
fn standing(
    at: (u8, u8),
    bucket: &Bucket,
    mode: Mode,
    passed: bool,
    slot: Slot,
    reading: Reading,
    now_us: u64,
    slot_of: impl FnOnce(u64) -> Slot,
) -> Standing {
    let available_us = match mode {
        _ if passed && reading.remaining < bucket.capacity => slot_of(reading.remaining + 1).opens_us,
        _ if passed || slot.opens_us == NEVER => now_us,
        Mode::Reserve { longest } => turn_us(bucket, longest, slot),
        _ => slot.opens_us,
    };
    let available_after_us = available_us.saturating_sub(now_us);
    Standing::new(at, passed, bucket.capacity, reading.remaining, reading.reset_after_us, available_after_us)
}

type Cells<'a> = SmallVec<[Cell<'a>; 4]>;

type Spot = (Home, usize);

/// One bucket of one ask.
#[derive(Clone, Copy)]
struct Cell<'a> {
    bucket: &'a Bucket,
    ask: Ask<'a>,
    hash: u64,
    at: (u8, u8),
}

/// What earlier asks of the same call spend from the same state: it counts as if it were spent already.
fn ahead(earlier: &[Cell<'_>], cell: &Cell<'_>) -> u64 {
    let twins = earlier.iter().filter(|twin| twin.hash == cell.hash && twin.ask.mode().spends());
    if cell.ask.mode().spends() { twins.fold(0, |sum, twin| sum.saturating_add(twin.ask.cost())) } else { 0 }
}

/// The locked places of one decision.
struct Places<'a> {
    spots: SmallVec<[Spot; MAX_BUCKETS]>,
    locked: SmallVec<[Place<'a>; 4]>,
}

impl<'a> Places<'a> {
    fn of(&mut self, store: &Inner, cell: &Cell<'_>) -> &mut Place<'a> {
        let index = self.spots.binary_search(&store.spot(cell));
        &mut self.locked[index.expect("`lock_all` locked the places of all cells")]
    }
}

/// Where a cell's state is, locked.
enum Place<'a> {
    Narrow(table::Locked<'a, 5, 1>),
    Wide(table::Locked<'a, 3, 2>),
    Log(MutexGuard<'a, Shard>),
}

impl Place<'_> {
    fn state(&self, hash: u64) -> State {
        match self {
            Place::Narrow(set) => set.get(hash),
            Place::Wide(set) => set.get(hash),
            Place::Log(_) => State::REST,
        }
    }

    fn put(&mut self, hash: u64, state: State, now_us: u64) {
        match self {
            Place::Narrow(set) => set.put(hash, state, now_us),
            Place::Wide(set) => set.put(hash, state, now_us),
            Place::Log(_) => {}
        }
    }

    fn slot(&mut self, cell: &Cell<'_>, now_us: u64, cost: u64) -> Slot {
        match (self, &cell.bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => shard.slot(cell.hash, rule, now_us, cost),
            (place, rule) => rule.slot(place.state(cell.hash), now_us, cost),
        }
    }

    fn reading(&mut self, cell: &Cell<'_>, now_us: u64) -> Reading {
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

    fn change(&mut self, cell: &Cell<'_>, now_us: u64, departs_us: u64) {
        let (Cell { bucket, hash, ask, .. }, cost) = (*cell, cell.ask.cost());
        match (&mut *self, &bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => {
                match ask.mode() {
                    Mode::Spend | Mode::Reserve { .. } => shard.spend(hash, rule, now_us, departs_us, cost),
                    Mode::Charge => shard.spend(hash, rule, now_us, now_us, cost),
                    Mode::Refund => shard.refund(hash, now_us, cost),
                    Mode::Reset => shard.reset(hash),
                    Mode::Peek => {}
                }
                bucket.reaches(now_us.saturating_add(shard.reset_after_us(hash, now_us)));
            }
            (place, _) => {
                if let Some(after) = change(bucket, place.state(hash), &ask, now_us, departs_us) {
                    place.put(hash, after, now_us);
                }
            }
        }
    }

    /// Takes the key's state out and says what it had available when its policy was replaced, if it was not at rest.
    fn take(&mut self, cell: &Cell<'_>, replaced_us: u64, now_us: u64) -> Option<Units> {
        match (&mut *self, &cell.bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => {
                let used = shard.used(cell.hash, now_us)?;
                shard.reset(cell.hash);
                Some(Units::whole(i128::from(rule.limit()) - i128::from(used)))
            }
            (place, rule) => {
                let state = place.state(cell.hash);
                place.put(cell.hash, State::REST, now_us);
                (state.until_us > replaced_us).then(|| rule.available(state, replaced_us))
            }
        }
    }

    /// Starts the key with what it had available when its policy was replaced.
    fn adopt(&mut self, cell: &Cell<'_>, available: Units, replaced_us: u64, now_us: u64) {
        let Cell { bucket, hash, .. } = *cell;
        match (&mut *self, &bucket.rule) {
            (Place::Log(shard), Rule::SlidingLog(rule)) => {
                shard.spend(hash, rule, now_us, replaced_us, available.missing_of(bucket.capacity));
            }
            (place, rule) => {
                let state = rule.state_with(available, replaced_us);
                bucket.reaches(state.until_us);
                place.put(hash, state, now_us);
            }
        }
    }
}
