//! The general case: several asks, several quotas, logs, replaced policies, turns, reports.
//!
//! In this order, all of it under the locks of all sets: hand over keys of replaced policies, let unknown keys begin with less than
//! a burst, judge each ask as if the asks before it had been carried out, and then change all states or none. Each ask counts from its own
//! turn, and the request proceeds at the last of them. Leases come last: they take the units that all other asks leave.

use smallvec::SmallVec;

use super::{buckets_of, counts_rejected};
use crate::algorithm::State;
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::few::{few, sort_few};
use crate::memory::bucket::Bucket;
use crate::memory::change::Effect;
use crate::memory::handover::Handover;
use crate::memory::home::{Copied, Home};
use crate::memory::place::{BucketCell, LockedSets, Spot};
use crate::memory::plans::NumberedRule;
use crate::memory::store::PolicyBuckets;
use crate::policy::MAX_QUOTAS;
use crate::store::{Ask, Judged, Mode, judge};

impl PolicyBuckets {
    /// Finds the buckets, locks their sets, judges, and spends from all or none.
    pub(super) fn decide_all(&self, asks: &[Ask<'_>]) -> Result<Decision, StoreError> {
        let older = self.older(asks);
        let mut cells = self.cells(asks)?;
        let mut handovers: Vec<Handover<'_>> =
            older.iter().flat_map(|(ask, older)| self.handovers(ask, older)).collect();
        let mut places = lock_all(&mut cells, &mut handovers);
        // Under the locks, so that no thread enters a moment into a log before the last entry: its units
        // would be entered later than its decision says, and a refund would not find it.
        let now_us = self.context.clock.now_us();
        handovers.iter().rev().for_each(|handover| handover.carry_out(&mut places, now_us));
        count_reports(&mut cells, &places, now_us);
        begin_all(&cells, &mut places, now_us);
        grant(&mut cells, &mut places, now_us);
        let mut judged = judge_each(&cells, &mut places, now_us);
        let turns = turns(&cells, &judged, now_us);
        let departs_us = turns.iter().copied().max().unwrap_or(now_us);
        let granted = judged.iter().all(Judged::passed);
        if !granted {
            count_rejected(&cells, &mut places, &mut judged, now_us);
        }
        let waits = departs_us > now_us;
        let leases = cells.iter().any(|cell| cell.ask.mode() == Mode::Lease);
        let is_told = waits || leases || cells.iter().any(|cell| cell.bucket.accounts());
        let mut effects: SmallVec<[Effect; 4]> = match granted {
            true => few(cells
                .iter()
                .map(|cell| places[cell.place].change(cell, now_us, turns[usize::from(cell.at.0)]))),
            false => SmallVec::from_elem(Effect::default(), cells.len()),
        };
        if leases && granted && !waits {
            lease(&cells, &mut places, now_us, &mut effects);
        }
        let has_spent = effects.iter().any(|effect| effect.spent > 0);
        if has_spent {
            handovers.iter().for_each(|handover| handover.has_spent(now_us));
        }
        let statuses = cells.iter().zip(&judged).zip(&effects).map(|((cell, judged), effect)| {
            let place = &mut places[cell.place];
            let balance = place.balance(cell, now_us);
            let opens_us = |cost| place.slot(cell, now_us, cost).opens_us;
            judged.status(cell.at, balance, now_us, opens_us).spending(effect.spent)
        });
        let decision = judge(now_us, departs_us - now_us, statuses);
        Ok(if is_told && has_spent {
            let delays = (0..).zip(turns).map(|(ask, turn_us)| (ask, turn_us - now_us));
            decision.with_traces(effects.iter().map(|effect| effect.trace)).with_delays(delays)
        } else {
            decision
        })
    }

    fn cells<'a>(&self, asks: &[Ask<'a>]) -> Result<BucketCells<'a>, StoreError> {
        let mut cells = BucketCells::new();
        let now_us = if asks.iter().any(|ask| ask.own().is_some()) { self.context.clock.now_us() } else { 0 };
        for (policy, ask) in (0_u8..).zip(asks) {
            let buckets = buckets_of(ask)?;
            for (quota, bucket) in (0_u8..).zip(&*buckets.each) {
                if cells.len() == MAX_QUOTAS {
                    return Err(StoreError::new(StoreErrorKind::TooManyQuotas));
                }
                let by = buckets.counted(ask, quota, now_us)?;
                cells.push(self.cell((bucket, by), ask.of_quota(quota), (policy, quota)));
            }
        }
        if cells.is_empty() { Err(StoreError::new(StoreErrorKind::NothingAsked)) } else { Ok(cells) }
    }

    pub(in crate::memory) fn cell<'a>(
        &self,
        (bucket, by): (&'a Bucket, NumberedRule),
        ask: Ask<'a>,
        at: (u8, u8),
    ) -> BucketCell<'a> {
        let hash = self.context.hash(bucket.salt, self.context.hashed(ask.key()));
        BucketCell {
            bucket,
            by,
            ask,
            hash,
            at,
            spot: (bucket.number, bucket.home().index_of(hash)),
            place: 0,
        }
    }
}

/// Lets unknown keys begin with less than a burst. Their states are written even if the ask is refused, as are the
/// key's other quotas, as the ask counts them.
fn begin_all(cells: &[BucketCell<'_>], places: &mut LockedSets<'_>, now_us: u64) {
    for asked in cells.chunk_by(|one, other| one.at.0 == other.at.0) {
        let begins =
            |count, cell: &BucketCell<'_>| count + usize::from(places[cell.place].begin(cell, now_us));
        if asked.iter().fold(0, begins) > 0 && asked[0].bucket.takes_quotas() {
            for cell in asked {
                let place = &mut places[cell.place];
                let kept = place.kept(cell, now_us);
                place.put(cell, kept, now_us);
            }
        }
    }
}

/// Counts reports about units (refunds and returns) by the quotas that their keys were counted by last, if the keys owe
/// anything. A log counts by all rules.
fn count_reports(cells: &mut BucketCells<'_>, places: &LockedSets<'_>, now_us: u64) {
    for asked in cells.chunk_by_mut(|one, other| one.at.0 == other.at.0) {
        let mode = asked[0].ask.mode();
        if !asked[0].bucket.takes_quotas() || !mode.gives_back() {
            continue;
        }
        let entry = |cell: &BucketCell<'_>| places[cell.place].entry(cell.hash);
        if asked.iter().any(|cell| entry(cell).state.until_us > now_us) {
            for cell in asked.iter_mut().filter(|cell| !matches!(cell.bucket.home(), Home::Logs(_))) {
                let plan = entry(cell).plan;
                cell.by = NumberedRule { rule: cell.bucket.rules.numbered(plan), plan };
            }
        }
    }
}

/// Locks every needed set and shard, each once, in one order.
fn lock_all<'a>(cells: &mut [BucketCell<'a>], handovers: &mut [Handover<'a>]) -> LockedSets<'a> {
    let heirs = handovers.iter().flat_map(|handover| &handover.heirs);
    let theirs = heirs.flat_map(|(heir, follows)| std::iter::once(heir).chain(follows));
    let mut spots: SmallVec<[(Spot, &'a Home); 4]> =
        few(cells.iter().chain(theirs).map(|cell| (cell.spot, cell.bucket.home())));
    sort_few(&mut spots, |(spot, _)| *spot);
    spots.dedup_by_key(|(spot, _)| *spot);
    let place = |cell: &mut BucketCell<'_>| {
        cell.place = spots.iter().position(|(spot, _)| *spot == cell.spot).unwrap_or_default();
    };
    cells.iter_mut().for_each(place);
    for (heir, follows) in handovers.iter_mut().flat_map(|handover| &mut handover.heirs) {
        place(heir);
        follows.iter_mut().for_each(place);
    }
    few(spots.iter().map(|((_, index), home)| home.lock(*index)))
}

/// Resolves each ask that is [cut](Mode::is_cut) to an ask for the units that all quotas of its policy have left after the spends
/// before it.
fn grant(cells: &mut [BucketCell<'_>], places: &mut LockedSets<'_>, now_us: u64) {
    for index in 0..cells.len() {
        let BucketCell { ask, at, .. } = cells[index];
        if !ask.mode().is_cut() {
            continue;
        }
        let own = |cell: &&BucketCell<'_>| cell.at.0 == at.0;
        let left = cells.iter().filter(own).map(|cell| {
            let before =
                cells[..index].iter().filter(|twin| twin.is_twin_of(cell) && twin.ask.mode().spends());
            let spent = before.fold(0_u64, |sum, twin| sum.saturating_add(twin.ask.cost()));
            places[cell.place].balance(cell, now_us).remaining.saturating_sub(spent)
        });
        let remaining = left.min().unwrap_or(0);
        cells
            .iter_mut()
            .filter(|cell| cell.at.0 == at.0)
            .for_each(|cell| cell.ask = cell.ask.granted(remaining));
    }
}

/// Leases the units that all other asks have left, one ask after the other: each gets the fewest units left in any quota of its policy.
fn lease(cells: &[BucketCell<'_>], places: &mut LockedSets<'_>, now_us: u64, effects: &mut [Effect]) {
    for asked in cells.chunk_by(|one, other| one.at.0 == other.at.0) {
        if asked[0].ask.mode() != Mode::Lease {
            continue;
        }
        let left =
            asked.iter().map(|cell| places[cell.place].leasable(cell, now_us).min(cell.ask.cost())).min();
        let Some(units) = left.filter(|units| *units > 0) else { continue };
        let own = cells.iter().zip(&mut *effects).filter(|(cell, _)| cell.at.0 == asked[0].at.0);
        own.for_each(|(cell, effect)| *effect = places[cell.place].lease(cell, now_us, units));
    }
}

/// Spends refused costs under the policies that count them, and judges the refused asks again, because their waits have changed.
fn count_rejected(cells: &[BucketCell<'_>], places: &mut LockedSets<'_>, judged: &mut [Judged], now_us: u64) {
    let mut counted = cells.iter().filter(|cell| counts_rejected(&cell.ask)).peekable();
    if counted.peek().is_none() {
        return;
    }
    counted.for_each(|cell| places[cell.place].count_rejected(cell, now_us));
    for (judged, again) in judged.iter_mut().zip(judge_each(cells, places, now_us)) {
        if !judged.passed() && !again.passed() {
            *judged = again;
        }
    }
}

/// The moment of each ask's turn, when the last of its quotas lets it go: the cost counts from then on.
fn turns(cells: &[BucketCell<'_>], judged: &[Judged], now_us: u64) -> SmallVec<[u64; 4]> {
    let mut turns: SmallVec<[u64; 4]> = SmallVec::new();
    for (cell, judged) in cells.iter().zip(judged) {
        let departs_us = if cell.ask.mode().spends() { judged.departs_us().max(now_us) } else { now_us };
        match turns.get_mut(usize::from(cell.at.0)) {
            Some(turn_us) => *turn_us = departs_us.max(*turn_us),
            None => turns.push(departs_us),
        }
    }
    turns
}

/// Judges each ask as if the asks before it had been carried out.
///
/// Spends of one bucket need no trial: the second is judged by the sum of both. Only if reports
/// are among them is each carried out in turn, and all of them undone at the end.
fn judge_each(cells: &[BucketCell<'_>], places: &mut LockedSets<'_>, now_us: u64) -> SmallVec<[Judged; 4]> {
    let mut undo: SmallVec<[(&BucketCell<'_>, Copied, State); 1]> = SmallVec::new();
    let judged = cells.iter().enumerate().map(|(index, cell)| {
        let twins = |of: &'_ [BucketCell<'_>], is: fn(Mode) -> bool| {
            let found = of.iter().filter(|twin| twin.is_twin_of(cell) && is(twin.ask.mode()));
            found.fold(None, |sum: Option<u64>, twin| Some(sum.unwrap_or(0).saturating_add(twin.ask.cost())))
        };
        let (place, mode) = (&mut places[cell.place], cell.ask.mode());
        // Spends of one bucket are one spend of all their units. Asks with reports among them have to be tried out.
        let is_tried = cells.len() > 1 && twins(cells, |mode| !mode.asks()).is_some();
        let ahead = if is_tried || !mode.asks() { None } else { twins(&cells[..index], Mode::spends) };
        let cost = cell.ask.cost().saturating_add(ahead.unwrap_or(0));
        let mut judged = Judged::new(&cell.by.rule, mode, place.slot(cell, now_us, cost), now_us);
        if mode == Mode::Return && !place.can_return(cell, now_us) {
            judged = Judged::refused_until(now_us);
        }
        if is_tried && judged.passed() && twins(&cells[index + 1..], |_| true).is_some() {
            let floor = cell.bucket.floors.of(cell.hash, now_us);
            undo.push((cell, place.copy(cell.hash, now_us), floor));
            place.change(cell, now_us, if mode.spends() { judged.departs_us().max(now_us) } else { now_us });
        }
        judged
    });
    let judged = few(judged);
    for (cell, copied, floor) in undo.into_iter().rev() {
        places[cell.place].restore(cell.hash, &copied, now_us);
        cell.bucket.floors.set(cell.hash, floor, now_us);
    }
    judged
}

type BucketCells<'a> = SmallVec<[BucketCell<'a>; 4]>;
