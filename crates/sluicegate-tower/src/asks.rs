//! What one request asks of the limiters that it is subject to.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::{Decision, Key, Mode, OnOutage, RateLimiter, Turn, Verdict};
use smallvec::SmallVec;

use crate::plan::Slot;
use crate::shared::Shared;

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
    pub(crate) fn decide(&self, slots: &[Slot]) -> Verdict {
        RateLimiter::decide_all(
            self.0.iter().map(|asked| (&slots[asked.slot].limiter, &asked.key, asked.cost, None)),
        )
    }

    /// Waits for the turn that they have reserved.
    pub(crate) fn turn(&self, slots: &[Slot], delay: Duration) -> Turn {
        let limits = self.0.iter().map(|asked| {
            let limiter = slots[asked.slot].limiter.clone();
            (limiter, asked.key.clone(), asked.cost)
        });
        Turn::new(delay, limits)
    }

    /// The decision with the names of its policies.
    pub(crate) fn label<R>(&self, shared: &Shared<R>, decision: &mut Decision) {
        let plan = shared.plan();
        // A limit asks one of its slots at most: as many asks as slots are all of them, in order.
        if self.0.len() == plan.policies.len() {
            return decision.set_policies(Arc::clone(&plan.policies));
        }
        decision.set_policies(self.0.iter().map(|asked| Arc::clone(&plan.policies[asked.slot])).collect());
    }

    /// Whether one of the policies refuses while the store cannot be reached. A store that hands its errors on decides
    /// nothing by itself, so [`OnOutage::Local`] lets pass here.
    pub(crate) fn denies_in_an_outage<R>(&self, shared: &Shared<R>) -> bool {
        let plan = shared.plan();
        self.0.iter().any(|asked| plan.policies[asked.slot].on_outage() == OnOutage::Deny)
    }

    /// Gives back so many units of what each ask has spent, and says where that leaves the keys if that is known at once.
    /// What nothing is given back of is asked as well, for where it stands.
    pub(crate) fn give_back<R>(
        &self,
        shared: &Shared<R>,
        decision: &Decision,
        units: &[u64],
    ) -> Option<Decision> {
        let mode = Mode::Refund { spent_us: Some(decision.spent_us()) };
        let asks = self.0.iter().zip(units);
        let asks =
            asks.map(|(asked, &units)| (&shared.slots[asked.slot].limiter, &asked.key, units, Some(mode)));
        // The store begins with it at once; nobody has to wait for its answer.
        let mut decision = RateLimiter::decide_all(asks).now().ok()?.ok()?;
        self.label(shared, &mut decision);
        Some(decision)
    }
}
