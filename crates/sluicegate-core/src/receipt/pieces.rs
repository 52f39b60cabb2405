//! The parts of a receipt of a spend made in several places: its [`Piece`]s.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Receipt;
use crate::few::few;
use crate::policy::Policy;

/// The spend of an ask in one of several places. For authors of stores that keep one bucket in several places
/// ([`Decision::with_pieces`](crate::Decision::with_pieces)).
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "stores put it together")]
pub struct Piece {
    /// The number of the place.
    pub place: u8,
    /// The part of the policy that is kept there.
    pub policy: Arc<Policy>,
    /// The units that this place has spent.
    pub receipt: Receipt,
}

impl Piece {
    /// A copy for the same call; never for a second one.
    pub(crate) fn copied(&self) -> Self {
        Self { place: self.place, policy: Arc::clone(&self.policy), receipt: self.receipt.copied() }
    }
}

/// Units of each quota.
type Costs = SmallVec<[u64; 2]>;

impl Receipt {
    /// This receipt, with the pieces of these places.
    pub(crate) fn with_pieces(self, pieces: Vec<Piece>) -> Self {
        Self { pieces, ..self }
    }

    /// Whether several places may have spent it, as [`Decision::with_pieces`](crate::Decision::with_pieces) said.
    pub fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// The units that each place has to give back when up to `cost` units are given back: the piece, and the units of
    /// each of its quotas. For stores that keep one bucket in several places.
    ///
    /// The first place gives first. Units given back by this receipt are taken out of its pieces in the same order.
    pub fn pieces_of(&self, cost: u64) -> impl Iterator<Item = (&Piece, Vec<u64>)> {
        let mut left = Costs::from_elem(cost, self.costs.len());
        self.pieces.iter().map(move |piece| (piece, piece.receipt.taken(&mut left).into_vec()))
    }

    /// Leaves up to this many units in the pieces.
    pub(super) fn keep_in_pieces(&mut self, cost: u64) {
        let mut left = Costs::from_elem(cost, self.costs.len());
        for Piece { receipt, .. } in &mut self.pieces {
            receipt.costs = receipt.taken(&mut left);
        }
    }

    /// Takes up to this many units out of the pieces.
    pub(super) fn spend_in_pieces(&mut self, cost: u64) {
        let mut left = Costs::from_elem(cost, self.costs.len());
        for Piece { receipt, .. } in &mut self.pieces {
            let taken = receipt.taken(&mut left);
            receipt.costs.iter_mut().zip(taken).for_each(|(own, taken)| *own -= taken);
        }
    }

    /// Subtracts the units of this receipt from the units that each quota still has to take.
    fn taken(&self, left: &mut [u64]) -> Costs {
        let taken = self.costs.iter().zip(left).map(|(own, left)| {
            let taken = (*own).min(*left);
            *left -= taken;
            taken
        });
        few(taken)
    }
}
