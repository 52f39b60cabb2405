//! Joins the outcomes of the parts into one decision: [`merged`].
//!
//! # Rounding
//! Every number errs towards a client that asks too late rather than too early: the remaining units are the sum of the parts that were
//! asked, which a part that was not asked can only raise; a wait is the longest of the refusing parts, which another part can only shorten.

use std::sync::Arc;

use sluicegate_core::Decision;
use sluicegate_core::algorithm::Balance;
use sluicegate_core::clock::micros;
use sluicegate_core::store::{self, Mode, QuotaStatus, judge};

use super::piece::{PartStatuses, PartialAsk, PieceOutcome};
use super::request::DividedAsk;
use super::table::StatusTable;

/// The moment when a quota that has refused a cost would let it pass.
///
/// A refusal of one part says when that part has room for its piece, not when all parts together have room for the cost, so this wait is
/// found separately.
#[derive(Clone, Copy, Debug)]
pub(super) enum PassesAt {
    /// The wait in microseconds since the answer.
    AfterUs(u64),
    /// The cost is above the capacity of all parts together: no wait helps.
    Never,
}

/// The outcome of a request: `came` of these pieces, `table` for the other parts, and `waits` of the refused asks, by ask and quota, where
/// they are known.
///
/// The remaining units cover all parts that were asked or peeked at. For a spend that passed in the first part, they are the units
/// of this part: at least that number is left.
pub(super) fn merged(
    asks: &[DividedAsk<'_>],
    pieces: &[PartialAsk<'_>],
    mut came: PieceOutcome,
    table: Option<&StatusTable>,
    waits: &[(usize, usize, PassesAt)],
) -> Decision {
    let mut statuses = PartStatuses::new();
    for asked in asks {
        for quota in 0..asked.opened.quotas() {
            let wait =
                waits.iter().find(|(ask, of, _)| (*ask, *of) == (asked.place, quota)).map(|(.., wait)| *wait);
            statuses.push(of_quota(asked, quota, pieces, &came, table, wait));
        }
    }
    let receipts = pieces.iter().zip(&mut came.each).filter_map(|(piece, of)| {
        let place = u8::try_from(piece.part).ok()?;
        let policy = Arc::clone(piece.policy.numbers());
        Some((u8::try_from(piece.ask).ok()?, store::Piece { place, policy, receipt: of.receipt.take()? }))
    });
    let receipts: Vec<_> = receipts.collect();
    judge(came.at_us, micros(came.delay), statuses).by(came.by).with_pieces(receipts)
}

/// The status of one quota of an ask: the sum of its parts, as one bucket would report it.
///
/// A policy that is kept whole has one part, and its status is the answer. Otherwise parts that were asked count with their answers, and
/// other parts with their peeks, if any.
fn of_quota(
    asked: &DividedAsk<'_>,
    quota: usize,
    pieces: &[PartialAsk<'_>],
    came: &PieceOutcome,
    table: Option<&StatusTable>,
    wait: Option<PassesAt>,
) -> QuotaStatus {
    let own = pieces.iter().zip(&came.each).filter(|(piece, _)| piece.ask == asked.place);
    let own = || own.clone().filter_map(|(piece, of)| Some((piece.part, of.statuses.get(quota)?)));
    if asked.opened.is_whole {
        let status = own().next().map(|(_, status)| *status);
        let looked = || table?.part(asked.place, 0).get(quota).map(|status| looked_at(asked, *status));
        let status = status.or_else(looked).unwrap_or_else(|| QuotaStatus::at_rest((0, 0), 0));
        return status.of_ask(u8::try_from(asked.place).unwrap_or(u8::MAX));
    }
    let others = (0..asked.opened.parts.len()).filter(|part| own().all(|(own, _)| own != *part));
    let others = others.filter_map(|part| table?.part(asked.place, part).get(quota));
    let known: PartStatuses = own().map(|(_, status)| status).chain(others).copied().collect();
    let place = (u8::try_from(asked.place).unwrap_or(u8::MAX), u8::try_from(quota).unwrap_or(u8::MAX));
    let capacity = asked.opened.whole_capacity(quota);
    let balance = Balance::of_parts(capacity, known.iter().map(QuotaStatus::balance));
    let status = QuotaStatus::of(place, balance);
    let status = if known.iter().any(QuotaStatus::is_provisional) { status.provisional() } else { status };
    let spent = own().map(|(_, status)| status.spent()).fold(0, u64::saturating_add);
    let refused = || own().map(|(_, status)| status).filter(|status| !status.passed());
    match wait {
        Some(PassesAt::Never) => return status.impossible(),
        Some(PassesAt::AfterUs(wait_us)) => return status.refused_for_us(wait_us),
        None if refused().any(QuotaStatus::is_impossible) => return status.impossible(),
        None if !came.is_allowed && refused().next().is_some() => {
            return status
                .refused_for_us(refused().map(|status| micros(status.available_after())).max().unwrap_or(0));
        }
        None => {}
    }
    let more =
        known.iter().map(|status| micros(status.available_after())).filter(|wait_us| *wait_us > 0).min();
    // An empty part does not show that the others are empty: they may have a unit now.
    let are_all_known = known.len() >= asked.opened.parts.len();
    let more_us = if balance.remaining == capacity || !are_all_known { 0 } else { more.unwrap_or(0) };
    status.with_more_after_us(more_us).spending(spent)
}

/// Turns a peek at a bucket that is kept whole into an answer to an ask that would wait, or take the available units.
fn looked_at(asked: &DividedAsk<'_>, status: QuotaStatus) -> QuotaStatus {
    let passes = match asked.ask.mode() {
        Mode::Reserve { longest } => !status.is_impossible() && status.available_after() <= longest,
        _ => false,
    };
    if passes { status.with_more_after_us(micros(status.available_after())) } else { status }
}
