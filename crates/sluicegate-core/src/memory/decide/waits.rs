//! A request that waits for one limit holds its units of the other limits until it departs.
//!
//! Held units count in full and do not drain, so that the request finds them at its turn. That
//! would let one waiting request block a bucket that others share; so at most half of a key's burst
//! can be held, or one unit, and a limit that the request waits for as long as for the last one
//! holds nothing.

use smallvec::SmallVec;

use crate::algorithm::State;
use crate::few::few;
use crate::memory::change::Effect;
use crate::memory::holds::Hold;
use crate::memory::place::BucketCell;
use crate::memory::store::PolicyBuckets;
use crate::receipt::Trace;
use crate::store::{Judged, Mode};

impl PolicyBuckets {
    /// Holds the units of the ask until the request departs, although the quota would admit it at `ready_us`. The trace has the number of
    /// keys that its set has forgotten.
    pub(super) fn hold(
        &self,
        cell: &BucketCell<'_>,
        now_us: u64,
        (ready_us, departs_us): (u64, u64),
        forgotten: u64,
    ) -> Effect {
        let (bucket, units, plan) = (cell.bucket, cell.ask.cost(), cell.by.plan);
        let over_us = departs_us.saturating_add(bucket.longest_us());
        // Relaxed: it only has to be a different number each time.
        let id = self.context.fresh_hold();
        let hold = Hold { units, until_us: departs_us, plan };
        bucket.holds.add(cell.hash, id, (hold, over_us), now_us);
        bucket.rules.reaches(plan, over_us);
        bucket.reaches(cell.hash, over_us);
        bucket.ahead.note(departs_us);
        let after = State::new(ready_us, 0);
        Effect {
            spent: units,
            trace: Trace { birth: id, given: forgotten, held: true, after, ..Trace::default() },
        }
    }
}

/// The time that a spend waits for its turn.
pub(super) fn delay(mode: Mode, judged: &Judged, now_us: u64) -> u64 {
    if mode.spends() { judged.departs_us().saturating_sub(now_us) } else { 0 }
}

/// Whether an ask holds its units until the request departs, instead of spending them for that moment now: it does if all quotas
/// of its policy could admit it sooner. Otherwise one waiting request would block a bucket that others share. A queue holds
/// nothing: it releases requests in the order of arrival, at exact intervals.
pub(super) fn holds(
    cells: &[BucketCell<'_>],
    judged: &[Judged],
    cell: &BucketCell<'_>,
    departs_us: u64,
) -> bool {
    let waits = |cell: &BucketCell<'_>| matches!(cell.ask.mode(), Mode::Reserve { .. });
    let of_same_ask = cells.iter().zip(judged).filter(|(other, _)| other.at.0 == cell.at.0);
    let is_sooner = || of_same_ask.clone().all(|(_, judged)| judged.departs_us() < departs_us);
    let may_hold = cell.ask.mode().spends() && cell.ask.cost() > 0 && !cell.by.rule.is_queue();
    may_hold && cells.iter().any(waits) && is_sooner()
}

/// Whether the other limits can hold the units of a waiting request: a key holds at most half of the burst, or one unit, and until at most
/// 100 moments.
pub(super) fn has_room_to_hold(
    cells: &[BucketCell<'_>],
    judged: &[Judged],
    now_us: u64,
    departs_us: u64,
) -> bool {
    let holding: SmallVec<[&BucketCell<'_>; 4]> =
        few(cells.iter().filter(|cell| holds(cells, judged, cell, departs_us)));
    holding.iter().enumerate().all(|(index, cell)| {
        let twins = holding[..index].iter().filter(|twin| twin.is_twin_of(cell));
        let ahead = twins.fold(0, |sum: u64, twin| sum.saturating_add(twin.ask.cost()));
        let units = ahead.saturating_add(cell.ask.cost());
        let most = (cell.by.rule.capacity() / 2).max(1);
        cell.bucket.holds.has_room(cell.hash, (units, most), now_us)
    })
}

/// Refuses asks that would have to wait if their units cannot be held. They pass once they do not have to wait.
pub(super) fn refuse_waits(cells: &[BucketCell<'_>], judged: &mut [Judged], now_us: u64) {
    for (cell, judged) in cells.iter().zip(judged) {
        let departs_us = judged.departs_us();
        if cell.ask.mode().spends() && departs_us > now_us {
            *judged = Judged::refused_until(departs_us);
        }
    }
}
