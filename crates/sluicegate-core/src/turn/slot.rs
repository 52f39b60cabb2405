//! A reserved turn, whoever goes at it, and under what it was reserved.

use smallvec::SmallVec;
use tokio::time::Instant;

use super::queues::Queues;
use crate::decision::Decision;
use crate::key::Key;
use crate::limiter::{Identity, RateLimiter};
use crate::receipt::Receipt;
use crate::store::Verdict;

/// A turn that the store has given.
pub(super) struct Slot {
    at: Instant,
    /// Of the request that reserved it: two may come at one time.
    number: u64,
    /// By which it was reserved, and which belongs to the request that goes at it.
    pub(super) decision: Decision,
}

impl Slot {
    pub(super) fn new(at: Instant, number: u64, decision: Decision) -> Self {
        Self { at, number, decision }
    }

    /// When it comes.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    pub(super) fn place(&self) -> (Instant, u64) {
        (self.at, self.number)
    }

    /// Whether there is something that the store can take back.
    pub(super) fn can_be_returned(&self, under: &Under) -> bool {
        (0..under.0.len()).any(|ask| self.decision.receipt(ask).is_some())
    }

    /// Gives it up; the store says whether it takes it back.
    pub(super) fn give_up(&self, under: &Under) -> Verdict {
        let receipts = under.receipts(&self.decision, |_| true);
        RateLimiter::give_up(under.of(&receipts))
    }
}

/// The limiters that a turn is reserved under, in the order of the asks: with the key and the cost of each.
pub(super) struct Under(pub(super) SmallVec<[(RateLimiter, Key, u64); 1]>);

/// Which limiters and keys: whoever has them in common shares turns.
pub(super) type Line = SmallVec<[(Identity, Key); 1]>;

/// How much is asked of each.
pub(super) type Costs = SmallVec<[u64; 2]>;

impl Under {
    pub(super) fn line(&self) -> Line {
        self.0.iter().map(|(limiter, key, _)| (limiter.identity(), key.clone())).collect()
    }

    pub(super) fn costs(&self) -> Costs {
        self.0.iter().map(|(.., cost)| *cost).collect()
    }

    /// The queues that the turn is waited for in.
    ///
    /// # Panics
    /// Without a limit: nothing reserves a turn then.
    pub(super) fn queues(&self) -> &Queues {
        self.0[0].0.queues()
    }

    /// What other limits hold for this turn, if there is any such.
    pub(super) fn held(&self, decision: &Decision) -> Option<Receipts> {
        let held = self.receipts(decision, Receipt::is_held);
        (!held.is_empty()).then_some(held)
    }

    /// The turn has come for which these units were held.
    pub(super) fn depart(&self, held: &Receipts) -> Verdict {
        RateLimiter::depart(self.of(held))
    }

    fn receipts(&self, decision: &Decision, which: impl Fn(&Receipt) -> bool) -> Receipts {
        let each = (0..self.0.len()).filter_map(|ask| Some((ask, decision.receipt(ask)?)));
        each.filter(|(_, receipt)| which(receipt)).collect()
    }

    fn of<'a>(
        &'a self,
        receipts: &'a Receipts,
    ) -> impl Iterator<Item = (&'a RateLimiter, &'a Key, &'a Receipt)> {
        receipts.iter().map(|(ask, receipt)| {
            let (limiter, key, _) = &self.0[*ask];
            (limiter, key, receipt)
        })
    }
}

/// What a turn has spent, by the place of the ask.
pub(super) type Receipts = SmallVec<[(usize, Receipt); 1]>;
