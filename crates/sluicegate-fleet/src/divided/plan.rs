//! Cuts asks into pieces that fit, by the status of all parts: [`RequestPlan`].
//!
//! # Order
//! Asks are planned in the order of the request, and each reduces the units left for the next one: two asks about one bucket do not
//! count on the same unit. A plan is not a decision. If another request is faster, a store refuses its piece, nothing is spent, and the
//! parts are peeked at again.

use sluicegate_core::clock::micros;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::Mode;

use super::divide::Divide;
use super::piece::{PartialAsk, QuotaCosts};
use super::request::{DividedAsk, now};
use super::spread::{fill, spread};
use super::table::StatusTable;

/// The pieces of a request, planned from the units left in its parts.
#[derive(Default)]
pub(super) struct RequestPlan<'a> {
    pub(super) pieces: Vec<PartialAsk<'a>>,
    /// The indices of asks that do not fit.
    pub(super) refused: Vec<usize>,
}

/// The units left in each part, by quota, while asks are planned one after the other.
type UnitsLeft = Vec<Vec<u64>>;

impl<'a> RequestPlan<'a> {
    /// Plans each ask in one part with room for all of it, or in several with room together.
    pub(super) fn new(divide: &dyn Divide, asks: &'a [DividedAsk<'_>], table: &StatusTable) -> Self {
        let mut plan = Self::default();
        let mut left: Vec<UnitsLeft> = asks.iter().map(|asked| left(asked, table)).collect();
        for asked in asks {
            let left = &mut left[asked.twin];
            let pieces = match asked.ask.mode() {
                Mode::Lease => Some(asked.pieces(divide, richest(divide, left))),
                mode if asked.needs_look() || mode.spends() && !asked.opened.is_whole => {
                    fit(divide, asked, left, table)
                }
                _ => Some(asked.pieces(divide, 0)),
            };
            match pieces {
                Some(pieces) => plan.pieces.extend(pieces),
                None => plan.refused.push(asked.place),
            }
        }
        if plan.is_too_much() {
            // A lease may get nothing, but the spend of the same request must still pass.
            plan.pieces.retain(|piece| piece.mode != Mode::Lease);
        }
        if plan.is_too_much() {
            // The limit of pieces decided together is exceeded. A request in fewer pieces passes when one part has room for all of it.
            let pieces_of =
                |asked: &&DividedAsk<'_>| plan.pieces.iter().filter(|piece| piece.ask == asked.place).count();
            let is_cut = |asked: &&DividedAsk<'_>| asked.ask.mode().asks() && pieces_of(asked) > 1;
            plan.refused.extend(asks.iter().filter(is_cut).map(|asked| asked.place));
        }
        plan
    }

    /// Whether it has more quotas than one call decides.
    fn is_too_much(&self) -> bool {
        self.pieces.iter().map(PartialAsk::quotas).sum::<usize>() > MAX_QUOTAS
    }
}

/// The units that each part has left, from the table.
fn left(asked: &DividedAsk<'_>, table: &StatusTable) -> UnitsLeft {
    let quotas = (0..asked.opened.quotas()).map(|quota| table.remaining(asked.place, quota));
    let quotas: Vec<Vec<u64>> = quotas.collect();
    (0..asked.opened.parts.len()).map(|part| quotas.iter().map(|each| each[part]).collect()).collect()
}

/// The pieces of an ask, if they fit into the units left.
///
/// | ask | goes to |
/// |---|---|
/// | spend | one part with room for all of it, otherwise several that have room together |
/// | take | as a spend of the units in all parts, up to its cost |
/// | reserve | as a spend, if that passes now; otherwise the part with the earliest turn, as a whole |
/// | refund | the most used parts first, so that no unit goes to a full bucket |
/// | charge | the parts with room; the excess is spread over all parts by their capacities, as a debt |
/// | peek | as a spend, but takes nothing |
fn fit<'a>(
    divide: &dyn Divide,
    asked: &'a DividedAsk<'_>,
    left: &mut UnitsLeft,
    table: &StatusTable,
) -> Option<Vec<PartialAsk<'a>>> {
    let mode = asked.ask.mode();
    let mut costs = asked.costs();
    let order = order(divide, left);
    let (mode, each) = match mode {
        Mode::Charge => (mode, all_of(asked, &costs, &order, left)),
        Mode::Refund => {
            let used = |part: usize, quota: usize| {
                asked.opened.capacity(part, quota).saturating_sub(left[part][quota])
            };
            let used: UnitsLeft = (0..left.len())
                .map(|part| (0..costs.len()).map(|quota| used(part, quota)).collect())
                .collect();
            let mut order = order.clone();
            order.sort_by_key(|part| std::cmp::Reverse(used[*part].first().copied()));
            (mode, all_of(asked, &costs, &order, &used))
        }
        mode if mode.is_cut() => {
            let most =
                (0..costs.len()).map(|quota| left.iter().map(|part| part[quota]).sum::<u64>()).min()?;
            let granted = asked.ask.granted(most);
            if most == 0 || granted.cost() == 0 {
                return None;
            }
            costs.iter_mut().for_each(|cost| *cost = granted.cost());
            (granted.mode(), within(&costs, &order, left)?)
        }
        Mode::Reserve { longest } => match within(&costs, &order, left) {
            Some(each) => (now(), each),
            None => {
                // Among equal waits the choice varies: otherwise all requests that peek at one moment would join one queue.
                let first = if divide.is_in_order() { 0 } else { divide.first(order.len()) };
                let behind = |part: usize| (part + order.len() - first) % order.len();
                let waits = order
                    .iter()
                    .filter_map(|part| Some((table.alone_us(asked.place, *part)?, behind(*part), *part)));
                let (wait_us, _, part) = waits.min()?;
                if wait_us > micros(longest) {
                    return None;
                }
                (mode, vec![(part, costs)])
            }
        },
        _ => (mode, within(&costs, &order, left)?),
    };
    for (part, costs) in &each {
        for (left, cost) in left[*part].iter_mut().zip(costs) {
            *left = match mode {
                mode if mode.looks() => *left,
                Mode::Refund => left.saturating_add(*cost),
                _ => left.saturating_sub(*cost),
            };
        }
    }
    // Units that no part has spent, such as a unit of an earlier lease, are given back by their time.
    let receipt = asked.ask.receipt().filter(|_| mode == Mode::Refund);
    let piece = |(part, costs)| PartialAsk { receipt, ..asked.piece(divide, part, mode, costs) };
    Some(each.into_iter().map(piece).collect())
}

/// The part that a lease comes from.
fn richest(divide: &dyn Divide, left: &UnitsLeft) -> usize {
    let order = order(divide, left);
    let has_any = |part: &&usize| left[**part].iter().all(|left| *left > 0);
    order.iter().find(has_any).or_else(|| order.first()).copied().unwrap_or(0)
}

/// The parts, in spending order.
fn order(divide: &dyn Divide, left: &UnitsLeft) -> Vec<usize> {
    let mut order: Vec<usize> = (0..left.len()).collect();
    if !divide.is_in_order() {
        order.sort_by_key(|part| std::cmp::Reverse(left[*part].iter().copied().min()));
    }
    order
}

/// The units of each part for these costs, if they fit: all of them in one part, or in several.
fn within(costs: &QuotaCosts, order: &[usize], left: &UnitsLeft) -> Option<Vec<(usize, QuotaCosts)>> {
    let has_room = |part: &&usize| costs.iter().zip(&left[**part]).all(|(cost, left)| cost <= left);
    if let Some(part) = order.iter().find(has_room) {
        return Some(vec![(*part, costs.clone())]);
    }
    let (each, rest) = filled(costs, order, left);
    rest.iter().all(|rest| *rest == 0).then(|| of_parts(order, &each))
}

/// The units of each part for these costs, including those that do not fit.
fn all_of(
    asked: &DividedAsk<'_>,
    costs: &QuotaCosts,
    order: &[usize],
    left: &UnitsLeft,
) -> Vec<(usize, QuotaCosts)> {
    let (mut each, rest) = filled(costs, order, left);
    for (quota, rest) in rest.into_iter().enumerate().filter(|(_, rest)| *rest > 0) {
        let weights: Vec<u64> = order.iter().map(|part| asked.opened.capacity(*part, quota)).collect();
        let more = spread(rest, &weights, &vec![rest; order.len()]);
        each[quota].iter_mut().zip(more).for_each(|(units, more)| *units = units.saturating_add(more));
    }
    of_parts(order, &each)
}

/// The units of each part in this order, by quota, and the units that do not fit.
fn filled(costs: &QuotaCosts, order: &[usize], left: &UnitsLeft) -> (Vec<Vec<u64>>, QuotaCosts) {
    let mut rest = costs.clone();
    let each = rest.iter_mut().enumerate();
    let each = each.map(|(quota, cost)| fill(cost, order.iter().map(|part| left[*part][quota])));
    (each.collect(), rest)
}

/// The parts with units, or the first part if there are none.
fn of_parts(order: &[usize], each: &[Vec<u64>]) -> Vec<(usize, QuotaCosts)> {
    let costs = |index: usize| each.iter().map(|units| units[index]).collect::<QuotaCosts>();
    let parts = order.iter().enumerate().map(|(index, part)| (*part, costs(index)));
    let mut parts: Vec<(usize, QuotaCosts)> = parts.collect();
    let has_any = |(_, costs): &(usize, QuotaCosts)| costs.iter().any(|cost| *cost > 0);
    if parts.iter().any(has_any) {
        parts.retain(has_any);
    } else {
        parts.truncate(1);
    }
    parts
}
