//! A reserved turn, whoever goes at it, and under what it was reserved.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::queues::Queues;
use crate::decision::Decision;
use crate::key::Key;
use crate::limiter::{Identity, RateLimiter};
use crate::receipt::Receipt;
use crate::store::DecisionFuture;

/// A turn that the store has given.
pub(super) struct Slot {
    at: Instant,
    /// Of the request that reserved it: two may come at one time.
    number: u64,
    /// By which it was reserved, and which belongs to the request that goes at it.
    pub(super) decision: Box<Decision>,
}

impl Slot {
    pub(super) fn new(at: Instant, number: u64, decision: Box<Decision>) -> Self {
        Self { at, number, decision }
    }

    /// When it comes.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// The same, at another time.
    pub(super) fn moved_to(self, at: Instant) -> Self {
        Self { at, ..self }
    }

    pub(super) fn place(&self) -> (Instant, u64) {
        (self.at, self.number)
    }

    /// Whether there is something that the store can take back.
    pub(super) fn can_be_returned(&self, under: &Under) -> bool {
        (0..under.limiters.len()).any(|ask| self.decision.receipt(ask).is_some())
    }

    /// Gives it up; the store says whether it takes it back.
    pub(super) fn give_up(&self, under: &Under) -> DecisionFuture {
        let receipts = under.receipts(&self.decision, |_| true);
        RateLimiter::give_up(under.of(&receipts))
    }
}

/// What a turn is reserved under, in the order of the asks.
pub(super) struct Under {
    pub(super) limiters: SmallVec<[RateLimiter; 1]>,
    pub(super) line: Line,
    pub(super) costs: Costs,
}

/// Which limiters and keys: whoever has them in common shares turns.
pub(super) type Line = Arc<[(Identity, Key)]>;

/// How much is asked of each.
pub(super) type Costs = SmallVec<[u64; 2]>;

impl Under {
    /// These limits, if there are any.
    pub(super) fn new(limits: impl IntoIterator<Item = (RateLimiter, Key, u64)>) -> Option<Self> {
        let (mut limiters, mut line, mut costs) = (SmallVec::new(), Vec::with_capacity(1), Costs::new());
        for (limiter, key, cost) in limits {
            line.push((limiter.identity(), key));
            limiters.push(limiter);
            costs.push(cost);
        }
        (!limiters.is_empty()).then(|| Self { limiters, line: line.into(), costs })
    }

    /// The queues that the turn is waited for in.
    pub(super) fn queues(&self) -> &Queues {
        self.limiters[0].queues()
    }

    /// What other limits hold for this turn, if there is any such.
    pub(super) fn held(&self, decision: &Decision) -> Option<Receipts> {
        let held = self.receipts(decision, Receipt::is_held);
        (!held.is_empty()).then_some(held)
    }

    /// The turn has come for which these units were held.
    pub(super) fn depart(&self, held: &Receipts) -> DecisionFuture {
        RateLimiter::depart(self.of(held))
    }

    fn receipts(&self, decision: &Decision, which: impl Fn(&Receipt) -> bool) -> Receipts {
        let each = (0..self.limiters.len()).filter_map(|ask| Some((ask, decision.receipt(ask)?)));
        each.filter(|(_, receipt)| which(receipt)).collect()
    }

    fn of<'a>(
        &'a self,
        receipts: &'a Receipts,
    ) -> impl Iterator<Item = (&'a RateLimiter, &'a Key, &'a Receipt)> {
        receipts.iter().map(|(ask, receipt)| (&self.limiters[*ask], &self.line[*ask].1, receipt))
    }
}

/// What a turn has spent, by the place of the ask.
pub(super) type Receipts = SmallVec<[(usize, Receipt); 1]>;
