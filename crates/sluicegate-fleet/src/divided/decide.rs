//! Decides a request with buckets in several places.
//!
//! 1. It asks one part of each policy for the whole cost: in most cases, this one call is enough.
//! 2. If that part refuses, all parts are peeked at. The request goes to one that has room for all of it, or to several that have room
//!    together: all of them spend, or none does.
//! 3. If they have no room together, the refusal stands, with the numbers of all parts. If other requests were faster, the parts are
//!    peeked at again, a few times.
//!
//! An ask for the available units, and a report without the place of its spend, peek first.

use std::sync::Arc;

use sluicegate_core::clock::micros;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Ask, DecisionFuture, Mode, QuotaStatus};
use sluicegate_core::wrap::OwnedAsk;
use sluicegate_core::{Decision, StoreError};

use super::answer::{PassesAt, merged};
use super::call;
use super::divide::Divide;
use super::piece::{PartialAsk, PieceOutcome, QuotaCosts};
use super::plan::RequestPlan;
use super::request::DividedAsk;
use super::spread::spread;
use super::table::StatusTable;

/// The number of rounds after which a request that was always too late is refused.
///
/// Each round costs a peek and a call. A request that loses every time is refused although there may be room, just as if it had come a
/// moment later: too few are admitted, never too many.
const TRIES: usize = 3;

/// Starts a request; it is finished even if its future is dropped.
pub(super) fn begin<D: Divide>(divide: &Arc<D>, asks: &[Ask<'_>]) -> DecisionFuture {
    let (divide, asks) = (Arc::clone(divide), asks.iter().map(OwnedAsk::new).collect::<Vec<_>>());
    DecisionFuture::begun_here(async move { decide(&*divide, &asks).await })
}

async fn decide(divide: &dyn Divide, asks: &[OwnedAsk]) -> Result<Decision, StoreError> {
    let asks: Vec<Ask<'_>> = asks.iter().map(OwnedAsk::ask).collect();
    let asks = DividedAsk::each(divide, &asks)?;
    if asks.is_empty() {
        return Err(StoreError::new(StoreErrorKind::NothingAsked));
    }
    if !asks.iter().any(DividedAsk::needs_look) {
        // An ask about one bucket goes to one part: a lease goes to the part where its request has spent.
        let firsts: Vec<usize> = asks.iter().map(|asked| divide.first(asked.opened.parts.len())).collect();
        let pieces = asks.iter().flat_map(|asked| asked.pieces(divide, firsts[asked.twin]));
        let pieces: Vec<PartialAsk<'_>> = pieces.collect();
        let came = call::decide(divide.stores(), &pieces).await?;
        if came.is_allowed || !may_fit_elsewhere(&asks, &pieces, &came) {
            return Ok(merged(&asks, &pieces, came, None, &[]));
        }
    }
    let mut tries = TRIES;
    loop {
        let table = look(divide, &asks).await?;
        let plan = RequestPlan::new(divide, &asks, &table);
        let seen = PieceOutcome { at_us: table.at_us, by: table.by, ..PieceOutcome::of(0) };
        if !plan.refused.is_empty() {
            let waits = waits(divide, &asks, &plan.refused, &table).await?;
            return Ok(merged(&asks, &[], seen, Some(&table), &waits));
        }
        if asks.iter().all(|asked| asked.ask.mode().looks()) {
            return Ok(merged(&asks, &[], seen, Some(&table), &[]));
        }
        let came = call::decide(divide.stores(), &plan.pieces).await?;
        tries -= 1;
        if came.is_allowed || tries == 0 || !may_fit_elsewhere(&asks, &plan.pieces, &came) {
            return Ok(merged(&asks, &plan.pieces, came, Some(&table), &[]));
        }
    }
}

/// Whether a part has refused, and another one may not.
fn may_fit_elsewhere(asks: &[DividedAsk<'_>], pieces: &[PartialAsk<'_>], came: &PieceOutcome) -> bool {
    let mut each = pieces.iter().zip(&came.each);
    each.any(|(piece, of)| !of.passed() && !asks[piece.ask].opened.is_whole && piece.mode.asks())
}

/// Peeks at all parts of these asks.
///
/// # Errors
/// When one of their stores gives no answer, because a plan needs the status of every part.
async fn look(divide: &dyn Divide, asks: &[DividedAsk<'_>]) -> Result<StatusTable, StoreError> {
    let pieces: Vec<PartialAsk<'_>> = asks.iter().flat_map(|asked| asked.looks(divide)).collect();
    let came = call::look(divide.stores(), &pieces).await?;
    Ok(StatusTable::new(asks, &pieces, came))
}

/// Finds the waits of the refused asks, by quota.
///
/// A cost of one unit passes when the first part has it. For more units, each part is asked when it has its part of the missing units:
/// never too early, and too late by at most the time in which one part gets one unit.
async fn waits(
    divide: &dyn Divide,
    asks: &[DividedAsk<'_>],
    refused: &[usize],
    table: &StatusTable,
) -> Result<Vec<(usize, usize, PassesAt)>, StoreError> {
    let (mut waits, mut pieces) = (Vec::new(), Vec::new());
    for asked in refused.iter().map(|place| &asks[*place]) {
        let twins =
            asks[..asked.place].iter().filter(|other| other.twin == asked.twin && other.ask.mode().spends());
        let ahead = |quota: usize| twins.clone().map(|twin| twin.costs()[quota]).fold(0, u64::saturating_add);
        let known = waits.len();
        let mut targets = vec![QuotaCosts::from_elem(0, asked.opened.quotas()); asked.opened.parts.len()];
        for (quota, cost) in asked.costs().into_iter().enumerate() {
            let cost = if asked.ask.mode().is_cut() { 1 } else { cost }.saturating_add(ahead(quota));
            let left = table.remaining(asked.place, quota);
            let missing = cost.saturating_sub(left.iter().sum());
            if cost > asked.opened.whole_capacity(quota) {
                waits.push((asked.place, quota, PassesAt::Never));
            } else if missing > 0 && cost == 1 {
                let parts = (0..left.len()).filter_map(|part| table.part(asked.place, part).get(quota));
                let wait_us = parts.map(|status| micros(status.available_after())).min().unwrap_or(0);
                waits.push((asked.place, quota, PassesAt::AfterUs(wait_us)));
            } else if missing > 0 {
                let capacities: Vec<u64> =
                    (0..left.len()).map(|part| asked.opened.capacity(part, quota)).collect();
                let rooms: Vec<u64> = capacities
                    .iter()
                    .zip(&left)
                    .map(|(capacity, left)| capacity.saturating_sub(*left))
                    .collect();
                let more = spread(missing, &capacities, &rooms);
                for (target, (left, more)) in targets.iter_mut().zip(left.iter().zip(more)) {
                    target[quota] = left + more;
                }
                waits.push((asked.place, quota, PassesAt::AfterUs(0)));
            }
        }
        if waits.len() == known {
            // There is room, but in more parts than are decided together.
            let parts = 0..asked.opened.parts.len();
            let alone_us = parts.clone().filter_map(|part| table.alone_us(asked.place, part)).min();
            let reset_us = || {
                parts
                    .flat_map(|part| table.part(asked.place, part))
                    .map(|status| micros(status.reset_after()))
                    .max()
            };
            waits.push((asked.place, 0, PassesAt::AfterUs(alone_us.or_else(reset_us).unwrap_or(0))));
        }
        if targets.iter().flatten().any(|target| *target > 0) {
            let targets = targets.into_iter().enumerate();
            pieces.extend(targets.map(|(part, costs)| asked.piece(divide, part, Mode::Peek, costs)));
        }
    }
    let came = call::look(divide.stores(), &pieces).await?;
    for (piece, of) in pieces.iter().zip(&came.each) {
        for (ask, quota, wait) in &mut waits {
            let status = of.statuses.get(*quota).filter(|status| *ask == piece.ask && !status.passed());
            if let (PassesAt::AfterUs(wait_us), Some(status)) = (wait, status) {
                *wait_us = (*wait_us).max(micros(QuotaStatus::available_after(status)));
            }
        }
    }
    Ok(shortened(asks, table, waits))
}

/// Shortens the wait of a reservation by the time that it may wait in one part.
fn shortened(
    asks: &[DividedAsk<'_>],
    table: &StatusTable,
    mut waits: Vec<(usize, usize, PassesAt)>,
) -> Vec<(usize, usize, PassesAt)> {
    for (ask, _, wait) in &mut waits {
        let asked = &asks[*ask];
        let (Mode::Reserve { longest }, PassesAt::AfterUs(wait_us)) = (asked.ask.mode(), wait) else {
            continue;
        };
        let alone = (0..asked.opened.parts.len()).filter_map(|part| table.alone_us(*ask, part)).min();
        if let Some(alone_us) = alone {
            *wait_us = (*wait_us).min(alone_us.saturating_sub(micros(longest)));
        }
    }
    waits
}
