//! The asks of a request, and the pieces of each: [`DividedAsk`].

use std::sync::Arc;

use sluicegate_core::StoreError;
use sluicegate_core::store::{Ask, Mode};

use super::divide::Divide;
use super::opened::OpenedParts;
use super::piece::{PartialAsk, QuotaCosts};
use sluicegate_core::limiter::Receipt;

/// An ask of a request, about a policy that may be in parts.
pub(super) struct DividedAsk<'a> {
    pub(super) ask: Ask<'a>,
    /// Its index in the request.
    pub(super) place: usize,
    pub(super) opened: Arc<OpenedParts>,
    /// The first ask of the request that is about the same bucket.
    ///
    /// Twins share the units left in the plan, and go to the same part first, as two spends of one bucket should.
    pub(super) twin: usize,
}

impl<'a> DividedAsk<'a> {
    /// The asks of a request.
    ///
    /// # Errors
    /// When one of them belongs to another store.
    pub(super) fn each(divide: &dyn Divide, asks: &[Ask<'a>]) -> Result<Vec<Self>, StoreError> {
        let each = asks.iter().enumerate().map(|(place, ask)| {
            let opened = OpenedParts::of(ask.policy())?;
            let is_twin = |other: &Ask<'a>| {
                OpenedParts::of(other.policy()).is_ok_and(|other| std::ptr::eq(other, opened))
                    && other.key().to_key() == ask.key().to_key()
            };
            let twin = asks[..place].iter().position(is_twin).unwrap_or(place);
            Ok(Self { ask: *ask, place, opened: OpenedParts::for_ask(divide, ask)?, twin })
        });
        each.collect()
    }

    /// The requested units of each quota.
    pub(super) fn costs(&self) -> QuotaCosts {
        (0_u8..).take(self.opened.quotas()).map(|quota| self.ask.cost_of(quota)).collect()
    }

    /// Whether all parts have to be peeked at before any part can be asked.
    ///
    /// A spend asks one part at once, because that part usually has room. A peek needs the sum; an ask for the available units and a charge
    /// need to know the units of each part. A refund without its pieces does not know the place of its spend.
    pub(super) fn needs_look(&self) -> bool {
        let has_pieces = self.ask.receipt().is_some_and(Receipt::has_pieces);
        !self.opened.is_whole
            && match self.ask.mode() {
                Mode::Charge => true,
                Mode::Refund => !has_pieces,
                mode => mode.looks() || mode.is_cut(),
            }
    }

    /// A piece with these units in this part.
    pub(super) fn piece(
        &self,
        divide: &dyn Divide,
        part: usize,
        mode: Mode,
        costs: QuotaCosts,
    ) -> PartialAsk<'_> {
        let key = self.ask.key();
        PartialAsk {
            ask: self.place,
            part,
            store: if self.opened.is_whole { 0 } else { divide.store_of(part) },
            policy: &self.opened.parts[part],
            key: if self.opened.is_whole { key.to_key() } else { divide.key(key, part) },
            mode,
            costs,
            receipt: None,
        }
    }

    /// A peek at each part.
    pub(super) fn looks(&self, divide: &dyn Divide) -> Vec<PartialAsk<'_>> {
        let asks_for = |cost| match self.ask.mode() {
            mode if mode.is_cut() => 1,
            Mode::Lease => 0,
            mode if mode.asks() => cost,
            _ => 0,
        };
        let costs: QuotaCosts = self.costs().into_iter().map(asks_for).collect();
        let parts = 0..self.opened.parts.len();
        parts.map(|part| self.piece(divide, part, Mode::Peek, costs.clone())).collect()
    }

    /// The pieces that need no peek: the whole ask in the first part, or one piece for each part that is known to have spent.
    pub(super) fn pieces(&self, divide: &dyn Divide, first: usize) -> Vec<PartialAsk<'_>> {
        let mode = self.ask.mode();
        match self.ask.receipt() {
            Some(receipt) if receipt.has_pieces() => {
                let mut left = self.costs();
                let pieces = receipt.pieces_of(self.ask.cost()).map(|(piece, mut costs)| {
                    for (units, left) in costs.iter_mut().zip(&mut left) {
                        *units = (*units).min(*left);
                        *left -= *units;
                    }
                    let part = usize::from(piece.place).min(self.opened.parts.len() - 1);
                    PartialAsk {
                        receipt: Some(&piece.receipt),
                        ..self.piece(divide, part, mode, costs.into())
                    }
                });
                return pieces.collect();
            }
            Some(receipt) if self.opened.is_whole || mode.is_of_turn() => {
                return vec![PartialAsk {
                    receipt: Some(receipt),
                    ..self.piece(divide, 0, mode, self.costs())
                }];
            }
            _ => {}
        }
        let parts = self.opened.parts.len();
        match mode {
            _ if self.opened.is_whole => vec![self.piece(divide, 0, mode, self.costs())],
            Mode::Reset => (0..parts).map(|part| self.piece(divide, part, mode, self.costs())).collect(),
            // Its wait is known only after all parts are peeked at.
            Mode::Reserve { .. } => {
                vec![self.piece(divide, first, now(), self.costs())]
            }
            _ => vec![self.piece(divide, first, mode, self.costs())],
        }
    }
}

/// A reservation of a turn that comes at once.
pub(super) fn now() -> Mode {
    Mode::Reserve { longest: std::time::Duration::ZERO }
}
