//! Some units of an ask, in one part of its policy: [`PartialAsk`]; and the outcome of pieces: [`PieceOutcome`].

use std::time::Duration;

use sluicegate_core::Key;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::store::{Ask, DecidedBy, Mode, PreparedPolicy, QuotaStatus};
use sluicegate_core::wrap::DecidedPart;
use smallvec::SmallVec;

/// One number per quota.
pub(super) type QuotaCosts = SmallVec<[u64; 2]>;

/// The status of each quota of a part.
pub(super) type PartStatuses = SmallVec<[QuotaStatus; 1]>;

/// Some units of an ask, in one part of its policy.
///
/// An ask is cut into several pieces when no part has room for all of it. Each piece is an ask of one store; together they are one request,
/// and either all pieces are spent or none.
pub(super) struct PartialAsk<'a> {
    /// The index of the ask in the request.
    pub(super) ask: usize,
    pub(super) part: usize,
    /// The index of the store that holds the part.
    pub(super) store: usize,
    pub(super) policy: &'a PreparedPolicy,
    pub(super) key: Key,
    /// The mode of its ask. An ask that takes the available units becomes a spend, because a peek has already counted them.
    pub(super) mode: Mode,
    /// The cost of each quota in this part; over all pieces of an ask they sum to its costs.
    pub(super) costs: QuotaCosts,
    /// The receipt of the units to give back, if they were spent in this part.
    pub(super) receipt: Option<&'a Receipt>,
}

impl PartialAsk<'_> {
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

    /// The number of quotas that it adds to a request.
    pub(super) fn quotas(&self) -> usize {
        self.policy.policy().quotas().len()
    }
}

/// The outcome of some pieces.
pub(super) struct PieceOutcome {
    /// The outcomes in the order of the pieces; empty for a piece that was not asked in the end.
    pub(super) each: Vec<Of>,
    /// Whether all parts that were asked have let it pass.
    pub(super) is_allowed: bool,
    /// The latest moment of all decisions, by the clocks of their stores.
    pub(super) at_us: u64,
    /// The longest turn of all: a request proceeds when its last part admits it.
    pub(super) delay: Duration,
    /// The least certain decider, in the order of [`DecidedBy`]: one answer of a fallback makes the whole answer a fallback's.
    pub(super) by: DecidedBy,
}

/// The outcome of one piece.
#[derive(Default)]
pub(super) struct Of {
    /// Empty until its store has answered.
    pub(super) statuses: PartStatuses,
    /// The receipt that gives its units back, if it has spent any.
    pub(super) receipt: Option<Receipt>,
}

impl Of {
    /// Whether its part let it pass.
    pub(super) fn passed(&self) -> bool {
        self.statuses.iter().all(QuotaStatus::passed)
    }
}

impl PieceOutcome {
    /// No outcome yet, for this many pieces.
    pub(super) fn of(count: usize) -> Self {
        let each = (0..count).map(|_| Of::default()).collect();
        Self { each, is_allowed: true, at_us: 0, delay: Duration::ZERO, by: DecidedBy::Store }
    }

    /// Notes the decisions of stores about the pieces at these indices.
    pub(super) fn note(&mut self, parts: impl IntoIterator<Item = DecidedPart<Vec<usize>>>) {
        for (places, mut decision) in parts {
            self.is_allowed &= decision.is_allowed();
            self.at_us = self.at_us.max(decision.at_us());
            self.delay = self.delay.max(decision.delay());
            self.by = self.by.max(decision.decided_by());
            for (index, place) in places.into_iter().enumerate() {
                let own = decision.quotas().iter().filter(|status| status.policy_index() == index);
                self.each[place].statuses = own.copied().collect();
                self.each[place].receipt = decision.take_receipt(index);
            }
        }
    }
}
