//! Reports of facts, which cannot be refused: each part of the store gets its own, and so does the
//! fallback.
//!
//! A report must not be lost because other reports fail, so reports are never
//! all-or-nothing over parts.

use std::sync::Arc;

use sluicegate_core::Decision;
use sluicegate_core::error::{StoreError, StoreErrorKind};
use sluicegate_core::store::{Ask, DecisionFuture, Mode};
use sluicegate_core::wrap::{OwnedAsk, ask_at_once};
use smallvec::SmallVec;

use super::ResilientState;
use super::fallback::is_its;

/// The places of some asks of a call.
pub(super) type AskPlaces = SmallVec<[u8; 4]>;

/// Whether the ask refers to a turn that the fallback gave, or to its spend next to a turn of the store.
pub(super) fn is_own_turn(ask: &Ask<'_>) -> bool {
    ask.mode().is_of_turn() && is_its(ask)
}

/// The asks in these places.
pub(super) fn in_places<'a>(asks: &[Ask<'a>], places: &AskPlaces) -> SmallVec<[Ask<'a>; 4]> {
    places.iter().map(|place| asks[usize::from(*place)]).collect()
}

/// The places of asks that only report facts, by their part, if there are several parts: each part
/// gets its reports once, whatever happens to the others.
pub(super) fn by_part(asks: &[Ask<'_>], parts_of_each: &[u64]) -> Option<SmallVec<[AskPlaces; 2]>> {
    let is_report = |ask: &Ask<'_>| !ask.mode().asks() && !ask.mode().is_of_turn();
    if !asks.iter().all(is_report) || parts_of_each.iter().all(|parts| *parts == parts_of_each[0]) {
        return None;
    }
    let mut groups: SmallVec<[(u64, AskPlaces); 2]> = SmallVec::new();
    for (place, parts) in (0_u8..).zip(parts_of_each) {
        match groups.iter_mut().find(|(of, _)| of == parts) {
            Some((_, places)) => places.push(place),
            None => groups.push((*parts, [place].into_iter().collect())),
        }
    }
    Some(groups.into_iter().map(|(_, places)| places).collect())
}

/// Joins the answers to all asks of a call. It waits for all answers, also after an error.
///
/// The result is an error if one answer is, and then says nothing about the other reports, which may have
/// succeeded.
pub(super) fn joined(answers: Vec<(AskPlaces, DecisionFuture)>) -> DecisionFuture {
    DecisionFuture::polled(async {
        let parts = ask_at_once(answers).await?;
        Decision::joined(parts.into_iter().map(|(places, decision)| (decision, places)))
    })
}

impl ResilientState {
    /// Reports a turn that the store gave, and the fallback's spend next to it, which is given back with the turn.
    pub(super) fn report_turn(
        self: &Arc<Self>,
        asks: &[Ask<'_>],
        own: &AskPlaces,
        others: AskPlaces,
    ) -> DecisionFuture {
        let own: Vec<OwnedAsk> = in_places(asks, own).iter().map(OwnedAsk::new).collect();
        let state = Arc::clone(self);
        let answer = self.decide(&in_places(asks, &others)).map(move |result| {
            if result.as_ref().is_ok_and(Decision::is_allowed) {
                let given_up = own.iter().map(OwnedAsk::ask).filter(|ask| ask.mode() == Mode::Return);
                let refunds: SmallVec<[Ask<'_>; 4]> = given_up.map(|ask| ask.in_mode(Mode::Refund)).collect();
                // The answer is not needed.
                let _ = state.decide_alone(&refunds, StoreError::new(StoreErrorKind::Unavailable));
            }
            result
        });
        joined(vec![(others, answer)])
    }
}
