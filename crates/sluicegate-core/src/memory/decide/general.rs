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
use crate::memory::buckets::Bucket;
use crate::memory::change::{BucketCell, Effect, LockedSets, Spot};
use crate::memory::handover::Handover;
use crate::memory::home::{Copied, Home};
use crate::memory::slot::NumberedRule;
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
        let mut judged = judge_each(&mut cells, &mut places, now_us);
        let turns = turns(&cells, &judged, now_us);
        let departs_us = turns.iter().copied().max().unwrap_or(now_us);
        let granted = judged.iter().all(Judged::passed);
        if !granted {
            count_rejected(asks, &mut cells, &mut places, &mut judged, now_us);
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
fn count_rejected<'a>(
    asks: &[Ask<'a>],
    cells: &mut [BucketCell<'a>],
    places: &mut LockedSets<'_>,
    judged: &mut [Judged],
    now_us: u64,
) {
    let mut counted = cells.iter().filter(|cell| counts_rejected(&cell.ask)).peekable();
    if counted.peek().is_none() {
        return;
    }
    counted.for_each(|cell| places[cell.place].count_rejected(cell, now_us));
    // The same request asks again, and is cut to the units left by then.
    cells.iter_mut().for_each(|cell| cell.ask = asks[usize::from(cell.at.0)].of_quota(cell.at.1));
    for (judged, again) in judged.iter_mut().zip(judge_each(cells, places, now_us)) {
        if !judged.passed() && !again.passed() {
            *judged = again;
        }
    }
}

/// The moment of each ask's turn.
fn turns(cells: &[BucketCell<'_>], mut judged: &[Judged], now_us: u64) -> SmallVec<[u64; 4]> {
    let asks = cells.chunk_by(|one, other| one.at.0 == other.at.0);
    few(asks.map(|asked| {
        let (own, rest) = judged.split_at(asked.len());
        judged = rest;
        turn_us(asked[0].ask.mode(), own, now_us)
    }))
}

/// The moment of an ask's turn, when the last of its quotas lets it go: the cost counts from then on.
fn turn_us(mode: Mode, judged: &[Judged], now_us: u64) -> u64 {
    let departs_us = judged.iter().filter(|_| mode.spends()).map(Judged::departs_us);
    departs_us.max().unwrap_or(now_us).max(now_us)
}

/// Judges each ask as if the asks before it had been carried out, also those that are refused: the whole request passes after the longest
/// of the waits. An ask that is [cut](Mode::is_cut) gets the units that all quotas of its policy have left.
///
/// Spends of one bucket need no trial: the second is judged by the sum of both. Only if reports are among them is each that passes carried
/// out in turn, and all of them undone at the end.
fn judge_each<'a>(
    cells: &mut [BucketCell<'a>],
    places: &mut LockedSets<'_>,
    now_us: u64,
) -> SmallVec<[Judged; 4]> {
    let reports = reports_of_several(cells);
    let mut judged: SmallVec<[Judged; 4]> = SmallVec::new();
    let mut trial = Trial { spends: SmallVec::new(), changes: SmallVec::new() };
    for asked in cells.chunk_by_mut(|one, other| one.at.0 == other.at.0) {
        let mode = asked[0].ask.mode();
        let whole_costs: SmallVec<[u64; 4]> = few(asked.iter().map(|cell| cell.ask.cost()));
        if mode.is_cut() {
            trial.cut(asked, places, now_us);
        }
        let first = judged.len();
        judged.extend(asked.iter().map(|cell| trial.judge(cell, places, now_us)));
        let own = &judged[first..];
        let is_reported = reports.iter().any(|report| asked.iter().any(|cell| cell.is_twin_of(report)));
        if is_reported && own.iter().all(Judged::passed) {
            trial.carry_out(asked, places, now_us, turn_us(mode, own, now_us));
        } else if mode.spends() {
            let spends = asked.iter().zip(whole_costs);
            trial.spends.extend(spends.map(|(cell, whole_cost)| SpendAhead { cell: *cell, whole_cost }));
        }
    }
    trial.undo(places, now_us);
    judged
}

/// The reports about buckets that other asks are about, too.
fn reports_of_several<'a>(cells: &[BucketCell<'a>]) -> BucketCells<'a> {
    let reports = cells.iter().filter(|cell| !cell.ask.mode().asks());
    let of_several = reports
        .filter(|cell| cells.iter().any(|other| other.at.0 != cell.at.0 && other.is_twin_of(cell)))
        .copied();
    few(of_several)
}

/// The asks of a request that come before the one that is judged.
struct Trial<'a> {
    /// The spends that have not been carried out.
    spends: SmallVec<[SpendAhead<'a>; 4]>,
    /// The changes that have been carried out, to be undone.
    changes: SmallVec<[TriedChange<'a>; 1]>,
}

struct SpendAhead<'a> {
    cell: BucketCell<'a>,
    /// The cost before it was cut: after a wait, it could take as much.
    whole_cost: u64,
}

/// A key of a bucket, and what it had before the change.
struct TriedChange<'a> {
    cell: BucketCell<'a>,
    before: Copied,
    floor: State,
}

impl<'a> Trial<'a> {
    /// The units that the spends before an ask take from its bucket. An ask without a cost passes beside a spend that is cut.
    fn units_ahead(&self, cell: &BucketCell<'_>) -> u64 {
        let twins = self.spends.iter().filter(|spend| spend.cell.is_twin_of(cell));
        let costs =
            twins.map(|spend| if cell.ask.cost() > 0 { spend.whole_cost } else { spend.cell.ask.cost() });
        costs.fold(0, u64::saturating_add)
    }

    /// Cuts an ask to the units that all of its quotas have left after the spends before it.
    fn cut(&self, asked: &mut [BucketCell<'_>], places: &mut LockedSets<'_>, now_us: u64) {
        let left = asked.iter().map(|cell| {
            let remaining = places[cell.place].balance(cell, now_us).remaining;
            remaining.saturating_sub(self.units_ahead(cell))
        });
        let left = left.min().unwrap_or(0);
        asked.iter_mut().for_each(|cell| cell.ask = cell.ask.granted(left));
    }

    /// Judges one quota of an ask after these spends.
    fn judge(&self, cell: &BucketCell<'_>, places: &mut LockedSets<'_>, now_us: u64) -> Judged {
        let (place, mode) = (&mut places[cell.place], cell.ask.mode());
        if mode == Mode::Return && !place.can_return(cell, now_us) {
            return Judged::refused_until(now_us);
        }
        let ahead = if mode.asks() { self.units_ahead(cell) } else { 0 };
        let slot = place.slot(cell, now_us, cell.ask.cost().saturating_add(ahead));
        Judged::new(&cell.by.rule, mode, slot, now_us)
    }

    /// Carries out an ask until the others are judged. A reset forgets the spends before it.
    fn carry_out(
        &mut self,
        asked: &[BucketCell<'a>],
        places: &mut LockedSets<'_>,
        now_us: u64,
        turn_us: u64,
    ) {
        for cell in asked {
            let floor = cell.bucket.floors.of(cell.hash, now_us);
            let before = places[cell.place].copy(cell.hash, now_us);
            self.changes.push(TriedChange { cell: *cell, before, floor });
            places[cell.place].change(cell, now_us, turn_us);
        }
        if asked[0].ask.mode() == Mode::Reset {
            self.spends.retain(|spend| !asked.iter().any(|cell| cell.is_twin_of(&spend.cell)));
        }
    }

    /// Undoes all changes, the last one first.
    fn undo(self, places: &mut LockedSets<'_>, now_us: u64) {
        for TriedChange { cell, before, floor } in self.changes.into_iter().rev() {
            places[cell.place].restore(cell.hash, &before, now_us);
            cell.bucket.floors.set(cell.hash, floor, now_us);
        }
    }
}

type BucketCells<'a> = SmallVec<[BucketCell<'a>; 4]>;
