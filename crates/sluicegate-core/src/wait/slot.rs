//! A reserved turn, for any request that proceeds at it.

use tokio::time::Instant;

use super::under::{AskCosts, LimitersOfTurn};
use crate::decision::Decision;
use crate::store::DecisionFuture;

/// A turn that the store has given.
pub(super) struct TurnSlot {
    at: Instant,
    /// The number of the request that reserved it, because two slots may have the same time.
    number: u64,
    /// The units that a request at it may spend.
    pub(super) costs: AskCosts,
    /// The decision by which it was reserved; it belongs to the request that proceeds at it.
    pub(super) decision: Box<Decision>,
}

impl TurnSlot {
    pub(super) fn new(at: Instant, number: u64, costs: AskCosts, decision: Box<Decision>) -> Self {
        Self { at, number, costs, decision }
    }

    /// The moment of the turn.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// This slot at another time.
    pub(super) fn moved_to(self, at: Instant) -> Self {
        Self { at, ..self }
    }

    pub(super) fn place(&self) -> (Instant, u64) {
        (self.at, self.number)
    }

    /// Whether the store can take the turn back.
    ///
    /// A decision without receipts is a clone, or has spent nothing.
    pub(super) fn can_be_returned(&self, under: &dyn LimitersOfTurn) -> bool {
        (0..under.costs().len()).any(|ask| self.decision.receipt(ask).is_some())
    }

    /// Gives the turn up; the store says whether it takes it back.
    pub(super) fn give_up(&self, under: &dyn LimitersOfTurn) -> DecisionFuture {
        under.give_up(&under.receipts(&self.decision))
    }
}
