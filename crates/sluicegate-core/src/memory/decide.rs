//! One decision: find the buckets, lock their sets, judge, and spend from all or none.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Inner;
use super::bucket::{Bucket, Buckets, Home};
use super::judge::{Reading, change, delay, outcome, passes, standing};
use super::logs::Logs;
use super::place::{Cell, Place, Places, Spot};
use crate::algorithm::Slot;
use crate::decision::{Decision, Outcome, Standing};
use crate::error::{StoreError, StoreErrorKind};
use crate::policy::MAX_BUCKETS;
use crate::store::Ask;

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

    pub(super) fn spot(&self, cell: &Cell<'_>) -> Spot {
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
    let buckets = ask.policy().prepared::<Arc<Buckets>>();
    buckets.map(|buckets| &**buckets).ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
}

type Cells<'a> = SmallVec<[Cell<'a>; 4]>;

/// What earlier asks of the same call spend from the same state: it counts as if it were spent already.
fn ahead(earlier: &[Cell<'_>], cell: &Cell<'_>) -> u64 {
    let twins = earlier.iter().filter(|twin| twin.hash == cell.hash && twin.ask.mode().spends());
    if cell.ask.mode().spends() { twins.fold(0, |sum, twin| sum.saturating_add(twin.ask.cost())) } else { 0 }
}
