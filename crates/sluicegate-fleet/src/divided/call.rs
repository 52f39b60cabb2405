//! Asks the stores about pieces: all of them together, or each of them on its own.
//!
//! A store decides all of its pieces, or none. A request that spends on several stores spends on one after the other, in their order, and
//! the units of the first ones are given back when a later one refuses or gives no answer. In between, for the length of a call, units are
//! held that nobody spends: too few are admitted then, and never too many. Reports follow when all stores have granted.
//!
//! # Crashes and lost answers
//! A process that dies between the first part and the last leaves units spent that nobody uses, until they drain or their window ends. The
//! same holds for a part whose answer is lost: a second call might spend twice, so none is made.

use std::sync::Arc;

use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{Ask, DecisionFuture, Mode};
use sluicegate_core::{Store, StoreError};
use smallvec::SmallVec;

use super::piece::{PartialAsk, PieceOutcome};

/// Places of pieces.
type PiecePlaces = Vec<usize>;

/// Looks at each piece, whatever the other looks find.
///
/// # Errors
/// When one of the stores gives no answer.
pub(super) async fn look(
    stores: &[Arc<dyn Store>],
    pieces: &[PartialAsk<'_>],
) -> Result<PieceOutcome, StoreError> {
    let mut came = PieceOutcome::of(pieces.len());
    for (places, answer) in begin(stores, pieces, groups(stores, pieces, |_| true)) {
        came.note(&places, answer.await?);
    }
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
    let mut came = PieceOutcome::of(pieces.len());
    let of_store = |store: usize| (0..pieces.len()).filter(move |place| pieces[*place].store == store);
    let asked: SmallVec<[usize; 2]> =
        (0..stores.len()).filter(|store| of_store(*store).next().is_some()).collect();
    if pieces.iter().all(|piece| is_sure(piece.mode)) {
        for (places, answer) in begin(stores, pieces, groups(stores, pieces, |_| true)) {
            came.note(&places, answer.await?);
        }
        return Ok(came);
    }
    if let [store] = asked[..] {
        let places: PiecePlaces = of_store(store).collect();
        let answer = ask(&stores[store], pieces, &places, asked.len());
        came.note(&places, answer.await?);
        return Ok(came);
    }
    // Asks that may be refused come first, on one store after the other.
    for store in asked {
        let places: PiecePlaces = of_store(store).filter(|place| !is_sure(pieces[*place].mode)).collect();
        if places.is_empty() {
            continue;
        }
        let answer = ask(&stores[store], pieces, &places, 2).await;
        match answer {
            Ok(decision) => came.note(&places, decision),
            Err(error) => {
                give_back(stores, pieces, &came).await;
                return Err(error);
            }
        }
        if !came.is_allowed {
            give_back(stores, pieces, &came).await;
            return Ok(came);
        }
    }
    for (places, answer) in begin(stores, pieces, groups(stores, pieces, is_sure)) {
        came.note(&places, answer.await?);
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

/// Begins a call for each group.
fn begin(
    stores: &[Arc<dyn Store>],
    pieces: &[PartialAsk<'_>],
    groups: Vec<PiecePlaces>,
) -> Vec<(PiecePlaces, DecisionFuture)> {
    let begun = groups.into_iter().map(|places| {
        let answer = ask(&stores[pieces[places[0]].store], pieces, &places, 1);
        (places, answer)
    });
    begun.collect()
}

/// Asks one of this many stores. With several stores nothing waits for a turn, because the turns would come at different times: a
/// reservation becomes a spend, which passes now or is refused by its part.
fn ask(store: &Arc<dyn Store>, pieces: &[PartialAsk<'_>], places: &[usize], stores: usize) -> DecisionFuture {
    let asks = places.iter().map(|place| pieces[*place].ask()).map(|ask| match ask.mode() {
        Mode::Reserve { .. } if stores > 1 => ask.in_mode(Mode::Spend),
        _ => ask,
    });
    let asks: SmallVec<[Ask<'_>; 4]> = asks.collect();
    store.decide(&asks)
}

/// Gives back what pieces have spent. A refund without an answer is not sent again: too few units are admitted then.
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
