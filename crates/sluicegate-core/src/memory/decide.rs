//! One decision: find the buckets, lock their sets, judge, and spend from all or none.

use smallvec::SmallVec;

use super::Inner;
use super::bucket::{Bucket, Buckets, Home, Line, Older};
use super::judge::{Reading, change, delay, outcome, passes, standing};
use super::logs::Logs;
use super::place::{Cell, Place, Places, Spot};
use super::table::Table;
use crate::algorithm::{Rule, Slot};
use crate::decision::{Decision, Outcome, Standing};
use crate::error::{StoreError, StoreErrorKind};
use crate::policy::MAX_BUCKETS;
use crate::store::{Ask, Inherit, Mode, Verdict};

impl Inner {
    #[inline]
    pub(super) fn decide_now(&self, asks: &[Ask<'_>]) -> Verdict {
        // Almost every decision is one key in one bucket in one table; it needs no lists.
        if let [ask] = asks {
            let buckets = match buckets_of(ask) {
                Ok(buckets) => buckets,
                Err(error) => return Verdict::ready(Err(error)),
            };
            match &*buckets.each {
                [Line { bucket, older }] if older.is_empty() => match bucket.home {
                    Home::Narrow => return self.decide_single(self.narrow(), bucket, ask),
                    Home::Wide => return self.decide_single(self.wide(), bucket, ask),
                    Home::Logs => {}
                },
                _ => {}
            }
        }
        Verdict::ready(self.decide_all(asks))
    }

    #[inline]
    fn decide_single<const SLOTS: usize, const WORDS: usize>(
        &self,
        table: &Table<SLOTS, WORDS>,
        bucket: &Bucket,
        ask: &Ask<'_>,
    ) -> Verdict {
        let hash = self.hash(bucket.salt, ask.key());
        let index = table.set_of(hash);
        // Before the lock, which is held for less then; but a window must not begin after a moment that is counted in it.
        let before_us = if WORDS == 1 { self.clock.now_us() } else { 0 };
        let mut set = table.lock(index);
        let now_us = if WORDS == 1 { before_us } else { self.clock.now_us() };
        let found = set.find(hash);
        let state = set.get(found);
        let rule = &bucket.rule;
        if let (Rule::Gcra(gcra), Mode::Spend) = (rule, ask.mode()) {
            // The same as below, from one look at the state instead of five.
            if let Some(spent) = gcra.spend_now(state, now_us, ask.cost()) {
                if spent.passed {
                    set.put(found, hash, spent.state, 0, now_us);
                }
                drop(set);
                let (remaining, available_after_us) = gcra.after(&spent, now_us);
                let reset_after_us = rule.reset_after_us(spent.state, now_us);
                let (capacity, passed) = (gcra.burst(), spent.passed);
                let standing =
                    Standing::new((0, 0), passed, capacity, remaining, reset_after_us, available_after_us)
                        .spending(if passed { ask.cost() } else { 0 });
                let outcome = if spent.passed { Outcome::Allowed } else { Outcome::Denied };
                return Verdict::ready(Ok(Decision::single(outcome, now_us, 0, standing)));
            }
        }
        let slot = rule.slot(state, now_us, ask.cost());
        let passed = passes(bucket, ask.mode(), slot, now_us);
        let after = passed.then(|| change(bucket, state, ask, now_us, slot.departs_us)).flatten();
        if let Some(after) = after {
            let fullness = if WORDS == 1 { 0 } else { bucket.fullness(after, now_us) };
            set.put(found, hash, after, fullness, now_us);
        }
        drop(set);
        let state = after.unwrap_or(state);
        let reading = Reading {
            remaining: rule.remaining(state, now_us),
            reset_after_us: rule.reset_after_us(state, now_us),
        };
        let slot_of = |cost| rule.slot(state, now_us, cost);
        let standing = standing((0, 0), bucket, ask, passed, slot, reading, now_us, slot_of);
        let delay_us = delay(ask.mode(), slot, now_us);
        Verdict::ready(Ok(Decision::single(outcome(passed, slot), now_us, delay_us, standing)))
    }

    /// The general case: several asks, several quotas, logs, replaced policies.
    fn decide_all(&self, asks: &[Ask<'_>]) -> Result<Decision, StoreError> {
        let mut cells = self.cells(asks)?;
        let mut heirs = self.heirs(asks, &cells);
        let mut places = self.lock_all(&mut cells, &mut heirs);
        // Under the locks, so that no thread enters a moment into a log that is before the last one there: what it spends
        // would be entered later than its decision says, and a refund would not find it.
        let now_us = self.clock.now_us();
        for heir in heirs.iter().rev() {
            inherit(heir, &mut places, now_us);
        }
        let judged: SmallVec<[(Slot, bool); 4]> = (0..cells.len())
            .map(|index| {
                let cell = &cells[index];
                let cost = cell.ask.cost().saturating_add(ahead(&cells[..index], cell));
                let slot = places[cell.place].slot(cell, now_us, cost);
                (slot, passes(cell.bucket, cell.ask.mode(), slot, now_us))
            })
            .collect();
        let granted = judged.iter().all(|&(_, passed)| passed);
        // All of a request goes on together, when the last of its turns has come.
        let delays = cells.iter().zip(&judged).map(|(cell, (slot, _))| delay(cell.ask.mode(), *slot, now_us));
        let delay_us = delays.max().unwrap_or(0);
        if granted {
            for cell in &cells {
                places[cell.place].change(cell, now_us, now_us.saturating_add(delay_us));
            }
        }
        let standings = cells.iter().zip(&judged).map(|(cell, &(slot, passed))| {
            let place = &mut places[cell.place];
            let reading = place.reading(cell, now_us);
            let slot_of = |cost| place.slot(cell, now_us, cost);
            standing(cell.at, cell.bucket, &cell.ask, passed, slot, reading, now_us, slot_of)
        });
        let standings: SmallVec<[Standing; 4]> = standings.collect();
        let refused = judged.iter().filter(|(_, passed)| !passed).max_by_key(|(slot, _)| slot.opens_us);
        let outcome = refused.map_or(Outcome::Allowed, |&(slot, _)| outcome(false, slot));
        Ok(Decision::new(outcome, now_us, delay_us, standings))
    }

    fn cells<'a>(&self, asks: &[Ask<'a>]) -> Result<Cells<'a>, StoreError> {
        let mut cells = Cells::new();
        for (policy, ask) in (0_u8..).zip(asks) {
            for (quota, line) in (0_u8..).zip(&*buckets_of(ask)?.each) {
                if cells.len() == MAX_BUCKETS {
                    return Err(StoreError::new(StoreErrorKind::TooManyBuckets));
                }
                cells.push(self.cell(&line.bucket, ask.of_quota(quota), (policy, quota)));
            }
        }
        if cells.is_empty() { Err(StoreError::new(StoreErrorKind::NothingAsked)) } else { Ok(cells) }
    }

    /// Every bucket that may still have something to inherit, with the one that it follows; of each line the youngest
    /// first.
    ///
    /// Asked once per decision: whether an old bucket still matters may change while it goes on.
    fn heirs<'a>(&self, asks: &[Ask<'a>], cells: &[Cell<'a>]) -> Heirs<'a> {
        let mut heirs = Heirs::new();
        let lines = asks.iter().filter_map(|ask| buckets_of(ask).ok()).flat_map(|buckets| &*buckets.each);
        for (cell, line) in cells.iter().zip(lines).filter(|(_, line)| !line.older.is_empty()) {
            let now_us = self.clock.now_us();
            let mut cell = *cell;
            for Older { bucket, how, replaced_us } in line.alive(now_us) {
                let older = self.cell(bucket, cell.ask, cell.at);
                heirs.push(Heir { cell, older, how: *how, replaced_us: *replaced_us });
                cell = older;
            }
        }
        heirs
    }

    /// Locks every set and shard that is needed, each once, in one order.
    fn lock_all(&self, cells: &mut [Cell<'_>], heirs: &mut [Heir<'_>]) -> Places<'_> {
        let mut spots: SmallVec<[Spot; 4]> = cells.iter().map(|cell| cell.spot).collect();
        spots.extend(heirs.iter().map(|heir| heir.older.spot));
        spots.sort_unstable();
        spots.dedup();
        let place_of = |cell: &mut Cell<'_>| {
            cell.place = spots.iter().position(|spot| *spot == cell.spot).unwrap_or_default();
        };
        cells.iter_mut().for_each(place_of);
        heirs.iter_mut().for_each(|heir| {
            place_of(&mut heir.cell);
            place_of(&mut heir.older);
        });
        let locked = spots.iter().map(|&(home, index)| match home {
            Home::Narrow => Place::Narrow(self.narrow().lock(index)),
            Home::Wide => Place::Wide(self.wide().lock(index)),
            Home::Logs => Place::Log(self.logs().lock(index)),
        });
        locked.collect()
    }

    fn cell<'a>(&self, bucket: &'a Bucket, ask: Ask<'a>, at: (u8, u8)) -> Cell<'a> {
        let hash = self.hash(bucket.salt, ask.key());
        let index = match bucket.home {
            Home::Narrow => self.narrow().set_of(hash),
            Home::Wide => self.wide().set_of(hash),
            Home::Logs => Logs::shard_of(hash),
        };
        Cell { bucket, ask, hash, at, spot: (bucket.home, index), place: 0 }
    }
}

/// Moves what the older bucket remembers of the key into the younger one.
fn inherit(heir: &Heir<'_>, places: &mut Places<'_>, now_us: u64) {
    let Heir { cell, older, how, replaced_us } = heir;
    let Some(available) = places[older.place].take(older, *replaced_us, now_us) else { return };
    let spent = available.missing_of(older.bucket.capacity);
    if let Some(kept) = how.units(available, older.bucket.capacity, cell.bucket.capacity) {
        places[cell.place].adopt(cell, kept, spent, *replaced_us, now_us);
    }
}

fn buckets_of<'a>(ask: &Ask<'a>) -> Result<&'a Buckets, StoreError> {
    ask.policy().prepared().ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))
}

type Cells<'a> = SmallVec<[Cell<'a>; 4]>;

/// A bucket, and the one that it follows.
struct Heir<'a> {
    cell: Cell<'a>,
    older: Cell<'a>,
    how: Inherit,
    replaced_us: u64,
}

type Heirs<'a> = SmallVec<[Heir<'a>; 1]>;

/// What earlier asks of the same call spend from the same state: it counts as if it were spent already.
fn ahead(earlier: &[Cell<'_>], cell: &Cell<'_>) -> u64 {
    let twins = earlier.iter().filter(|twin| twin.hash == cell.hash && twin.ask.mode().spends());
    if cell.ask.mode().spends() { twins.fold(0, |sum, twin| sum.saturating_add(twin.ask.cost())) } else { 0 }
}
