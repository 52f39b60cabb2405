//! What one request asks of the limiters that it is subject to.

use std::sync::Arc;

use sluicegate_core::limiter::{Change, Receipt, Turn};
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Decision, Key, OnExceeded, OnOutage, RateLimiter};
use smallvec::SmallVec;

use crate::rate_limit::decided::Decided;
use crate::rate_limit::plan::Slot;
use crate::rate_limit::shared::Shared;

/// The limiters that a request was found to be subject to.
#[derive(Debug, Default)]
pub(crate) struct Asks(SmallVec<[Asked; 1]>);

/// Whose bucket of a limiter, and for how much.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) slot: usize,
    pub(crate) key: Key,
    pub(crate) cost: u64,
}

impl Asks {
    #[inline]
    pub(crate) fn push(&mut self, asked: Asked) {
        self.0.push(asked);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Asked> {
        self.0.iter()
    }

    /// Decides all of them together.
    #[inline]
    pub(crate) fn decide(&self, slots: &[Slot]) -> DecisionFuture {
        RateLimiter::decide_all(
            self.0.iter().map(|asked| (&slots[asked.slot].limiter, &asked.key, asked.cost, None)),
        )
    }

    /// Waits for the turn that they have reserved.
    pub(crate) fn turn(&self, slots: &[Slot], decision: Decision) -> Turn {
        Turn::new(decision, self.limits(slots))
    }

    /// A turn that another request has left, for one that is refused, if its policies wait so long.
    pub(crate) fn turn_left<R>(&self, shared: &Shared<R>, refused: &Decision) -> Option<Turn> {
        refused.retry_after()?;
        let policies = &shared.plan().policies;
        let waits = self.0.iter().filter_map(|asked| match policies[asked.slot].on_exceeded() {
            OnExceeded::Wait { longest } => Some(longest),
            _ => None,
        });
        Turn::left(self.limits(&shared.slots), waits.min()?)
    }

    fn limits<'a>(&'a self, slots: &'a [Slot]) -> impl Iterator<Item = (RateLimiter, Key, u64)> + 'a {
        self.0.iter().map(|asked| (slots[asked.slot].limiter.clone(), asked.key.clone(), asked.cost))
    }

    /// The decision with its policies.
    pub(crate) fn label<R>(&self, shared: &Shared<R>, decision: Decision) -> Decided {
        let plan = shared.plan();
        // A limit asks one of its slots at most: as many asks as slots are all of them, in order.
        let policies = if self.0.len() == plan.policies.len() {
            Arc::clone(&plan.policies)
        } else {
            self.0.iter().map(|asked| Arc::clone(&plan.policies[asked.slot])).collect()
        };
        Decided::new(decision, policies)
    }

    /// Whether one of the policies refuses while the store cannot be reached. A store that hands its errors on decides
    /// nothing by itself, so [`OnOutage::Local`] lets pass here.
    pub(crate) fn denies_in_an_outage<R>(&self, shared: &Shared<R>) -> bool {
        let plan = shared.plan();
        self.0.iter().any(|asked| plan.policies[asked.slot].on_outage() == OnOutage::Deny)
    }

    /// Gives back what the asks in the places that `is_given_back` says have spent, and says where that leaves the keys if
    /// that is known at once.
    pub(crate) fn give_back<R>(
        &self,
        shared: &Shared<R>,
        decision: &mut Decision,
        is_given_back: impl Fn(usize) -> bool,
    ) -> Option<Decided> {
        let mut receipts: SmallVec<[Option<Receipt>; 1]> = (0..self.0.len())
            .map(|index| is_given_back(index).then(|| decision.take_receipt(index)).flatten())
            .collect();
        if receipts.iter().all(Option::is_none) {
            return None;
        }
        let changes = self.0.iter().zip(&mut receipts).map(|(asked, receipt)| {
            let change =
                receipt.as_mut().map_or(Change::Nothing, |receipt| Change::Refund(receipt, asked.cost));
            (&shared.slots[asked.slot].limiter, &asked.key, change)
        });
        // The store begins with it at once; nobody has to wait for its answer.
        let decision = RateLimiter::change_all(changes).now().ok()?.ok()?;
        Some(self.label(shared, decision))
    }
}
