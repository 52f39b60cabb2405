//! Some units of an ask, in one part of its policy: [`Piece`]; and what became of some: [`Came`].

use std::time::Duration;

use sluicegate_core::limiter::Receipt;
use sluicegate_core::store::{Ask, DecidedBy, Mode, PreparedPolicy, QuotaStatus};
use sluicegate_core::{Decision, Key};
use smallvec::SmallVec;

/// One number per quota.
pub(super) type Costs = SmallVec<[u64; 2]>;

/// Where each quota of a part stands.
pub(super) type Statuses = SmallVec<[QuotaStatus; 1]>;

/// Some units of an ask, in one part of its policy.
pub(super) struct Piece<'a> {
    /// The place of the ask in the request.
    pub(super) ask: usize,
    pub(super) part: usize,
    /// The place of the store on which the part is.
    pub(super) store: usize,
    pub(super) policy: &'a PreparedPolicy,
    pub(super) key: Key,
    pub(super) mode: Mode,
    pub(super) costs: Costs,
    pub(super) receipt: Option<&'a Receipt>,
}

impl Piece<'_> {
    /// The ask of the part's store.
    pub(super) fn ask(&self) -> Ask<'_> {
        let cost = self.costs.first().copied().unwrap_or(0);
        let ask = Ask::new(self.policy, self.key.as_ref(), cost, self.mode);
        let ask =
            if self.costs.iter().all(|other| *other == cost) { ask } else { ask.with_costs(&self.costs) };
        match self.receipt {
            Some(receipt) => ask.of(receipt),
            None => ask,
        }
    }

    /// How many quotas of a request it takes.
    pub(super) fn quotas(&self) -> usize {
        self.policy.policy().quotas().len()
    }
}

/// The outcome of some pieces.
pub(super) struct Came {
    /// In the order of the pieces; nothing of one that was not asked for in the end.
    pub(super) each: Vec<Of>,
    pub(super) is_allowed: bool,
    pub(super) at_us: u64,
    pub(super) delay: Duration,
    pub(super) by: DecidedBy,
}

/// The outcome of one piece.
#[derive(Default)]
pub(super) struct Of {
    pub(super) statuses: Statuses,
    pub(super) receipt: Option<Receipt>,
}

impl Of {
    /// Whether its part let it pass.
    pub(super) fn passed(&self) -> bool {
        self.statuses.iter().all(QuotaStatus::passed)
    }
}

impl Came {
    /// Nothing has become of this many pieces so far.
    pub(super) fn of(count: usize) -> Self {
        let each = (0..count).map(|_| Of::default()).collect();
        Self { each, is_allowed: true, at_us: 0, delay: Duration::ZERO, by: DecidedBy::Store }
    }

    /// A store has decided those pieces together that are in these places.
    pub(super) fn note(&mut self, places: &[usize], mut decision: Decision) {
        self.is_allowed &= decision.is_allowed();
        self.at_us = self.at_us.max(decision.at_us());
        self.delay = self.delay.max(decision.delay());
        self.by = self.by.max(decision.decided_by());
        for (index, place) in places.iter().enumerate() {
            let own = decision.quotas().iter().filter(|status| status.policy_index() == index);
            self.each[*place].statuses = own.copied().collect();
            self.each[*place].receipt = decision.take_receipt(index);
        }
    }
}
