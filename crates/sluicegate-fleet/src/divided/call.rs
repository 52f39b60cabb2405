//! Asks the stores about pieces: all of them together, or each on its own.
//!
//! A store decides all of its pieces, or none. A request that spends on several stores is decided [in turn](ask_in_turn), in the order of
//! the stores; reports follow when all of them have granted. A lost answer is not requested again: a second call might spend twice.

use std::sync::Arc;

use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{Ask, DecisionFuture, Mode};
use sluicegate_core::wrap::{DecidedPart, ask_at_once, ask_in_turn};
use sluicegate_core::{Store, StoreError};
use smallvec::SmallVec;

use super::piece::{PartialAsk, PieceOutcome};

/// Indices of pieces.
type PiecePlaces = Vec<usize>;

/// Peeks at each piece, whatever the other peeks find.
///
/// # Errors
/// When one of the stores gives no answer.
pub(super) async fn look(
    stores: &[Arc<dyn Store>],
    pieces: &[PartialAsk<'_>],
) -> Result<PieceOutcome, StoreError> {
    let mut came = PieceOutcome::of(pieces.len());
    came.note(at_once(stores, pieces, |_| true).await?);
    Ok(came)
}

/// Decides all pieces together: all spend, or none does.
///
/// # Errors
/// When one of the stores gives no answer.
pub(super) async fn decide(
    stores: &[Arc<dyn Store>],
    pieces: &[PartialAsk<'_>],
) -> Result<PieceOutcome, StoreError> {
    if pieces.iter().all(|piece| is_sure(piece.mode)) {
        return look(stores, pieces).await;
    }
    let mut came = PieceOutcome::of(pieces.len());
    let is_one = pieces.iter().all(|piece| piece.store == pieces[0].store);
    // A single store is asked about all pieces in one call. With several stores, asks that may be refused come first.
    let comes_first = |piece: &PartialAsk<'_>| is_one || !is_sure(piece.mode);
    let of_store = |store: usize| -> PiecePlaces {
        let each = pieces.iter().enumerate();
        each.filter(|(_, piece)| piece.store == store && comes_first(piece)).map(|(place, _)| place).collect()
    };
    let parts = (0..stores.len()).map(of_store).filter(|places| !places.is_empty());
    let asked = ask_in_turn(parts, |places, _| ask(stores, pieces, places, is_one)).await;
    came.note(asked.passed);
    if let Some(end) = asked.ended {
        give_back(stores, pieces, &came).await;
        came.note([end?]);
        return Ok(came);
    }
    if !is_one {
        came.note(at_once(stores, pieces, is_sure).await?);
    }
    Ok(came)
}

/// Whether the mode cannot be refused: such pieces need not be decided together.
fn is_sure(mode: Mode) -> bool {
    !mode.asks() && mode != Mode::Return
}

/// Places of pieces in these modes that a store can decide in one call.
///
/// A store decides at most [`MAX_QUOTAS`] quotas at a time, so pieces are grouped up to that number. Pieces of different stores are never
/// in one group.
fn groups(
    stores: &[Arc<dyn Store>],
    pieces: &[PartialAsk<'_>],
    which: impl Fn(Mode) -> bool,
) -> Vec<PiecePlaces> {
    let mut groups: Vec<PiecePlaces> = Vec::new();
    for store in 0..stores.len() {
        let mut room = 0;
        for (place, piece) in
            pieces.iter().enumerate().filter(|(_, piece)| piece.store == store && which(piece.mode))
        {
            match groups.last_mut().filter(|_| piece.quotas() <= room) {
                Some(group) => group.push(place),
                None => {
                    room = MAX_QUOTAS;
                    groups.push(vec![place]);
                }
            }
            room -= piece.quotas();
        }
    }
    groups
}

/// Asks about all pieces in these modes at the same time.
async fn at_once(
    stores: &[Arc<dyn Store>],
    pieces: &[PartialAsk<'_>],
    which: impl Fn(Mode) -> bool,
) -> Result<Vec<DecidedPart<PiecePlaces>>, StoreError> {
    let begun = groups(stores, pieces, which).into_iter().map(|places| {
        let answer = ask(stores, pieces, &places, true);
        (places, answer)
    });
    ask_at_once(begun.collect()).await
}

/// Asks the store of these pieces. Beside other pieces no piece waits for a turn, because the turns would come at different times: a
/// reservation turns into a spend, which passes now or is refused by its part.
fn ask(
    stores: &[Arc<dyn Store>],
    pieces: &[PartialAsk<'_>],
    places: &[usize],
    may_wait: bool,
) -> DecisionFuture {
    let asks = places.iter().map(|place| pieces[*place].ask()).map(|ask| match ask.mode() {
        Mode::Reserve { .. } if !may_wait => ask.in_mode(Mode::Spend),
        _ => ask,
    });
    let asks: SmallVec<[Ask<'_>; 4]> = asks.collect();
    stores[pieces[places[0]].store].decide(&asks)
}

/// Gives back the units that pieces have spent. A refund without an answer is not sent again: then too few units are admitted.
async fn give_back(stores: &[Arc<dyn Store>], pieces: &[PartialAsk<'_>], came: &PieceOutcome) {
    let mut begun: SmallVec<[DecisionFuture; 4]> = SmallVec::new();
    for (piece, of) in pieces.iter().zip(&came.each) {
        let Some(receipt) = &of.receipt else { continue };
        let whole = Ask::new(piece.policy, piece.key.as_ref(), receipt.cost(), Mode::Refund);
        begun.push(stores[piece.store].decide(&[whole.of(receipt)]));
    }
    for answer in begun {
        drop(answer.await);
    }
}
