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
///
/// An ask comes to several of them when no part has room for all of it. Each is an ask of one store; together they are one request,
/// of which all pieces are spent or none.
pub(super) struct Piece<'a> {
    /// The place of the ask in the request.
    pub(super) ask: usize,
    pub(super) part: usize,
    /// The place of the store on which the part is.
    pub(super) store: usize,
    pub(super) policy: &'a PreparedPolicy,
    pub(super) key: Key,
    /// That of its ask, but for an ask that takes what there is: how much that is was looked up before, so its pieces spend.
    pub(super) mode: Mode,
    /// Of each quota in this part; those of all pieces of an ask sum to its costs.
    pub(super) costs: Costs,
    /// Of what is given back, if it was spent in this part.
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
    /// Whether all parts that were asked have let it pass.
    pub(super) is_allowed: bool,
    /// The latest moment of all decisions, by the clocks of their stores.
    pub(super) at_us: u64,
    /// The longest turn of all: a request goes on when its last part lets it.
    pub(super) delay: Duration,
    /// The last of all who decided, in the order of [`DecidedBy`]: one answer of a fallback makes the whole one of a fallback.
    pub(super) by: DecidedBy,
}

/// The outcome of one piece.
#[derive(Default)]
pub(super) struct Of {
    /// Empty as long as its store has not answered.
    pub(super) statuses: Statuses,
    /// By which its units are given back, if it has spent any.
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
