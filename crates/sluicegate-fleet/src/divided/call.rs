//! Asks of parts, and the calls of their stores: [`PartAsk`], [`PartOutcomes`].
//!
//! A store decides all of its asks together, or none. A request that spends on several stores is decided [in turn](ask_in_turn), in the order of
//! the stores; reports follow when all of them have granted. A lost answer is not requested again: a second call might spend twice.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::limiter::Receipt;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Mode, PreparedPolicy, QuotaStatus};
use sluicegate_core::wrap::{DecidedPart, ask_at_once, ask_in_turn};
use sluicegate_core::{Key, Store, StoreError};
use smallvec::SmallVec;

/// One number per quota.
pub(super) type QuotaCosts = SmallVec<[u64; 2]>;

/// The status of each quota of a part.
pub(super) type PartStatuses = SmallVec<[QuotaStatus; 1]>;

/// An ask of one part of a policy.
pub(super) struct PartAsk<'a> {
    /// The index of the ask in the request.
    pub(super) ask: usize,
    pub(super) part: usize,
    /// The index of the store that holds the part.
    pub(super) store: usize,
    pub(super) policy: &'a PreparedPolicy,
    pub(super) key: Key,
    pub(super) mode: Mode,
    /// The cost of each quota.
    pub(super) costs: QuotaCosts,
    /// The receipt of the units to give back, if they were spent in this part.
    pub(super) receipt: Option<&'a Receipt>,
}

impl PartAsk<'_> {
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

/// The outcome of some asks.
pub(super) struct PartOutcomes {
    /// The outcomes in the order of the asks; empty for one that was not sent in the end.
    pub(super) each: Vec<PartOutcome>,
    /// Whether all parts that were asked have let it pass.
    pub(super) is_allowed: bool,
    /// The latest moment of all decisions, by the clocks of their stores.
    pub(super) at_us: u64,
    /// The longest turn of all: a request proceeds when its last part admits it.
    pub(super) delay: Duration,
    /// The least certain decider, in the order of [`DecidedBy`]: one answer of a fallback makes the whole answer a fallback's.
    pub(super) by: DecidedBy,
}

/// The outcome of one ask.
#[derive(Default)]
pub(super) struct PartOutcome {
    /// Empty until its store has answered.
    pub(super) statuses: PartStatuses,
    /// The receipt that gives its units back, if it has spent any.
    pub(super) receipt: Option<Receipt>,
}

impl PartOutcome {
    /// Whether its part let it pass.
    pub(super) fn passed(&self) -> bool {
        self.statuses.iter().all(QuotaStatus::passed)
    }
}

impl PartOutcomes {
    /// No outcome yet, for this many asks.
    pub(super) fn of(count: usize) -> Self {
        let each = (0..count).map(|_| PartOutcome::default()).collect();
        Self { each, is_allowed: true, at_us: 0, delay: Duration::ZERO, by: DecidedBy::Store }
    }

    /// Notes the decisions of stores about the asks at these indices.
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

/// Indices of asks of parts.
type AskIndices = Vec<usize>;

/// Peeks at each ask, whatever the other peeks find.
///
/// # Errors
/// When one of the stores gives no answer.
pub(super) async fn look(
    stores: &[Arc<dyn Store>],
    asks: &[PartAsk<'_>],
) -> Result<PartOutcomes, StoreError> {
    let mut outcomes = PartOutcomes::of(asks.len());
    outcomes.note(at_once(stores, asks, |_| true).await?);
    Ok(outcomes)
}

/// Decides all asks together: all spend, or none does.
///
/// # Errors
/// When one of the stores gives no answer.
pub(super) async fn decide(
    stores: &[Arc<dyn Store>],
    asks: &[PartAsk<'_>],
) -> Result<PartOutcomes, StoreError> {
    if asks.iter().all(|ask| is_sure(ask.mode)) {
        return look(stores, asks).await;
    }
    let mut outcomes = PartOutcomes::of(asks.len());
    let is_one = asks.iter().all(|ask| ask.store == asks[0].store);
    // A single store is asked about all asks in one call. With several stores, asks that may be refused come first.
    let comes_first = |ask: &PartAsk<'_>| is_one || !is_sure(ask.mode);
    let of_store = |store: usize| -> AskIndices {
        let each = asks.iter().enumerate();
        each.filter(|(_, ask)| ask.store == store && comes_first(ask)).map(|(place, _)| place).collect()
    };
    let parts = (0..stores.len()).map(of_store).filter(|places| !places.is_empty());
    let asked = ask_in_turn(parts, |places, _| ask(stores, asks, places, is_one)).await;
    outcomes.note(asked.passed);
    if let Some(end) = asked.ended {
        give_back(stores, asks, &outcomes).await;
        outcomes.note([end?]);
        return Ok(outcomes);
    }
    if !is_one {
        outcomes.note(at_once(stores, asks, is_sure).await?);
    }
    Ok(outcomes)
}

/// Whether the mode cannot be refused: such asks need not be decided together.
fn is_sure(mode: Mode) -> bool {
    !mode.asks() && mode != Mode::Return
}

/// Indices of asks in these modes that a store can decide in one call.
///
/// A store decides at most [`MAX_QUOTAS`] quotas at a time, so asks are grouped up to that number. Asks of different stores are never
/// in one group.
fn groups(stores: &[Arc<dyn Store>], asks: &[PartAsk<'_>], which: impl Fn(Mode) -> bool) -> Vec<AskIndices> {
    let mut groups: Vec<AskIndices> = Vec::new();
    for store in 0..stores.len() {
        let mut room = 0;
        for (place, ask) in asks.iter().enumerate().filter(|(_, ask)| ask.store == store && which(ask.mode)) {
            match groups.last_mut().filter(|_| ask.quotas() <= room) {
                Some(group) => group.push(place),
                None => {
                    room = MAX_QUOTAS;
                    groups.push(vec![place]);
                }
            }
            room -= ask.quotas();
        }
    }
    groups
}

/// Decides all asks in these modes at the same time.
async fn at_once(
    stores: &[Arc<dyn Store>],
    asks: &[PartAsk<'_>],
    which: impl Fn(Mode) -> bool,
) -> Result<Vec<DecidedPart<AskIndices>>, StoreError> {
    let begun = groups(stores, asks, which).into_iter().map(|places| {
        let answer = ask(stores, asks, &places, true);
        (places, answer)
    });
    ask_at_once(begun.collect()).await
}

/// Asks the store of these asks. Beside other asks no ask waits for a turn, because the turns would come at different times: a
/// reservation turns into a spend, which passes now or is refused by its part.
fn ask(stores: &[Arc<dyn Store>], asks: &[PartAsk<'_>], places: &[usize], may_wait: bool) -> DecisionFuture {
    let of_store = places.iter().map(|index| asks[*index].ask()).map(|ask| match ask.mode() {
        Mode::Reserve { .. } if !may_wait => ask.in_mode(Mode::Spend),
        _ => ask,
    });
    let of_store: SmallVec<[Ask<'_>; 4]> = of_store.collect();
    stores[asks[places[0]].store].decide(&of_store)
}

/// Gives back the units that asks have spent. A refund without an answer is not sent again: then too few units are admitted.
async fn give_back(stores: &[Arc<dyn Store>], asks: &[PartAsk<'_>], outcomes: &PartOutcomes) {
    let mut begun: SmallVec<[DecisionFuture; 4]> = SmallVec::new();
    for (ask, of) in asks.iter().zip(&outcomes.each) {
        let Some(receipt) = &of.receipt else { continue };
        let whole = Ask::new(ask.policy, ask.key.as_ref(), receipt.cost(), Mode::Refund);
        begun.push(stores[ask.store].decide(&[whole.of(receipt)]));
    }
    for answer in begun {
        drop(answer.await);
    }
}
