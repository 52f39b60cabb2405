//! Decides a request about policies in parts: each ask is decided by one part, as a whole.
//!
//! The first part of each policy is asked at once, and usually has room. If it refuses, all parts are looked at, and the request goes to the parts
//! with the most units left among those that would pass it, a few times if other requests are faster. If no part would pass an ask, its
//! refusal says when the first of them would, with the numbers of all parts.

use std::cmp::Reverse;
use std::sync::Arc;

use sluicegate_core::algorithm::Balance;
use sluicegate_core::clock::micros;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Ask, DecidedBy, DecisionFuture, Mode, QuotaStatus, SpentPart, judge};
use sluicegate_core::wrap::OwnedAsk;
use sluicegate_core::{Decision, StoreError};

use super::call::{self, PartAsk, PartOutcomes, PartStatuses, QuotaCosts};
use super::{Divide, OpenedParts};

/// The number of rounds after which a request that was always too late is refused.
///
/// Each round costs a peek and a call. A request that loses every time is refused although there may be room, just as if it had come a
/// moment later: too few are admitted, never too many.
const TRIES: usize = 3;

/// Starts a request; it is finished even if its future is dropped.
pub(super) fn begin<D: Divide>(divide: &Arc<D>, asks: &[Ask<'_>]) -> DecisionFuture {
    let (divide, asks) = (Arc::clone(divide), asks.iter().map(OwnedAsk::new).collect::<Vec<_>>());
    DecisionFuture::begun_here(async move { decide(&*divide, &asks).await })
}

async fn decide(divide: &dyn Divide, asks: &[OwnedAsk]) -> Result<Decision, StoreError> {
    let asks: Vec<Ask<'_>> = asks.iter().map(OwnedAsk::ask).collect();
    let asks = DividedAsk::each(divide, &asks)?;
    if asks.is_empty() {
        return Err(StoreError::new(StoreErrorKind::NothingAsked));
    }
    if !asks.iter().any(DividedAsk::needs_look) {
        let firsts: Vec<usize> = asks.iter().map(|asked| divide.first(asked.opened.parts.len())).collect();
        let mut sent = Vec::new();
        for asked in &asks {
            match asked.ask.mode() {
                Mode::Reset => sent.extend(asked.in_all_parts(divide)),
                _ => sent.push(asked.in_part(divide, firsts[asked.twin], now(asked))),
            }
        }
        let outcomes = call::decide(divide.stores(), &sent).await?;
        if outcomes.is_allowed || !may_fit_elsewhere(&asks, &sent, &outcomes) {
            return Ok(merged(&asks, &sent, outcomes, None, &[]));
        }
    }
    let mut tries = TRIES;
    loop {
        let looks: Vec<PartAsk<'_>> = asks.iter().flat_map(|asked| asked.looks(divide, &asks)).collect();
        let table = StatusTable::new(&asks, &looks, call::look(divide.stores(), &looks).await?);
        let (mut sent, mut refused) = (Vec::new(), Vec::new());
        for asked in &asks {
            match choose(divide, &asks, asked, &table) {
                Choice::Part(..) if asked.ask.mode().looks() => {}
                Choice::Part(part, mode) => sent.push(asked.in_part(divide, part, mode)),
                Choice::All => sent.extend(asked.in_all_parts(divide)),
                Choice::Refused(part) => refused.push((asked.index, part)),
            }
        }
        if !refused.is_empty() || sent.is_empty() {
            let seen = PartOutcomes { at_us: table.at_us, by: table.by, ..PartOutcomes::of(0) };
            return Ok(merged(&asks, &[], seen, Some(&table), &refused));
        }
        let outcomes = call::decide(divide.stores(), &sent).await?;
        tries -= 1;
        if outcomes.is_allowed || tries == 0 || !may_fit_elsewhere(&asks, &sent, &outcomes) {
            return Ok(merged(&asks, &sent, outcomes, Some(&table), &[]));
        }
    }
}

/// An ask of a request, about a policy that may be in parts.
pub(super) struct DividedAsk<'a> {
    ask: Ask<'a>,
    /// Its index in the request.
    index: usize,
    opened: Arc<OpenedParts>,
    /// The first ask of the request that is about the same bucket: twins go to the same part.
    twin: usize,
}

impl<'a> DividedAsk<'a> {
    /// The asks of a request.
    ///
    /// # Errors
    /// When one of them belongs to another store.
    pub(super) fn each(divide: &dyn Divide, asks: &[Ask<'a>]) -> Result<Vec<Self>, StoreError> {
        let each = asks.iter().enumerate().map(|(index, ask)| {
            let opened = OpenedParts::of(ask.policy())?;
            let is_twin = |other: &Ask<'a>| {
                OpenedParts::of(other.policy()).is_ok_and(|other| std::ptr::eq(other, opened))
                    && other.key().to_key() == ask.key().to_key()
            };
            let twin = asks[..index].iter().position(is_twin).unwrap_or(index);
            Ok(Self { ask: *ask, index, opened: OpenedParts::for_ask(divide, ask)?, twin })
        });
        each.collect()
    }

    /// The requested units of each quota.
    fn costs(&self) -> QuotaCosts {
        (0_u8..).take(self.opened.quotas()).map(|quota| self.ask.cost_of(quota)).collect()
    }

    /// Whether all parts are looked at before one is asked: for the numbers of all of them, for as many units as there are, and for reports
    /// that do not know the part of their spend.
    fn needs_look(&self) -> bool {
        let mode = self.ask.mode();
        let is_report = mode == Mode::Charge || mode == Mode::Refund && self.spent_part().is_none();
        !self.opened.is_whole && (is_report || mode.looks() || mode.is_cut())
    }

    /// The part that has spent the units of its receipt, with the receipt of that part.
    fn spent_part(&self) -> Option<&SpentPart> {
        self.ask.receipt()?.part()
    }

    /// This ask in one part; units go back to the part that has spent them.
    fn in_part(&self, divide: &dyn Divide, part: usize, mode: Mode) -> PartAsk<'_> {
        let (part, receipt) = match (self.spent_part(), self.ask.receipt()) {
            (Some(spent), _) => {
                (usize::from(spent.place).min(self.opened.parts.len() - 1), Some(&spent.receipt))
            }
            // Units of an earlier lease, which no part has spent, are given back by their time.
            (None, receipt) => (if self.opened.is_whole { 0 } else { part }, receipt),
        };
        PartAsk { receipt, ..self.asking(divide, part, mode, self.costs()) }
    }

    /// This ask in all parts: a reset, or a charge for which no part has room, so that each has its share of the debt.
    fn in_all_parts(&self, divide: &dyn Divide) -> impl Iterator<Item = PartAsk<'_>> {
        let mode = self.ask.mode();
        let costs = move |part| if mode == Mode::Charge { self.costs_of(part) } else { self.costs() };
        (0..self.opened.parts.len()).map(move |part| self.asking(divide, part, mode, costs(part)))
    }

    /// The share of a part of the costs, by the capacities of all parts. Each ends at the rounded share of all parts up to it, so that no
    /// unit is lost or made.
    fn costs_of(&self, part: usize) -> QuotaCosts {
        let share = |(quota, cost): (usize, u64)| {
            let up_to = |parts: usize| {
                let capacities: u128 =
                    (0..parts).map(|part| u128::from(self.opened.capacity(part, quota))).sum();
                let whole = u128::from(self.opened.whole_capacity(quota)).max(1);
                u64::try_from(u128::from(cost).saturating_mul(capacities) / whole).unwrap_or(cost)
            };
            up_to(part + 1) - up_to(part)
        };
        self.costs().into_iter().enumerate().map(share).collect()
    }

    /// A peek at each part, at the cost of this ask and of the spends before it in the same bucket.
    pub(super) fn looks<'b>(&'b self, divide: &dyn Divide, asks: &[DividedAsk<'_>]) -> Vec<PartAsk<'b>> {
        let mut costs: QuotaCosts = match self.ask.mode() {
            mode if mode.is_cut() => self.costs().iter().map(|_| 1).collect(),
            mode if mode.asks() && mode != Mode::Lease => self.costs(),
            _ => self.costs().iter().map(|_| 0).collect(),
        };
        for twin in
            asks[..self.index].iter().filter(|twin| twin.twin == self.twin && twin.ask.mode().spends())
        {
            costs.iter_mut().zip(twin.costs()).for_each(|(all, cost)| *all = all.saturating_add(cost));
        }
        let parts = 0..self.opened.parts.len();
        parts.map(|part| self.asking(divide, part, Mode::Peek, costs.clone())).collect()
    }

    fn asking(&self, divide: &dyn Divide, part: usize, mode: Mode, costs: QuotaCosts) -> PartAsk<'_> {
        let key = self.ask.key();
        PartAsk {
            ask: self.index,
            part,
            store: if self.opened.is_whole { 0 } else { divide.store_of(part) },
            policy: &self.opened.parts[part],
            key: if self.opened.is_whole { key.to_key() } else { divide.key(key, part) },
            mode,
            costs,
            receipt: None,
        }
    }
}

/// The mode of an ask that passes now, without a wait.
fn now(asked: &DividedAsk<'_>) -> Mode {
    match asked.ask.mode() {
        Mode::Reserve { .. } if !asked.opened.is_whole => {
            Mode::Reserve { longest: std::time::Duration::ZERO }
        }
        mode => mode,
    }
}

/// The part for an ask, by a look at all of them.
enum Choice {
    /// This part, in this mode.
    Part(usize, Mode),
    /// All parts, each with its share of the costs.
    All,
    /// None would pass it; this one would be the first to.
    Refused(usize),
}

/// Chooses the part with the most units left among those that would pass an ask and its twins; if there is none, the one with the earliest
/// turn for a reservation. A charge goes to the part with the most units left if it has room for all of it, and a refund that does not know its
/// part to the most used one.
fn choose(
    divide: &dyn Divide,
    asks: &[DividedAsk<'_>],
    asked: &DividedAsk<'_>,
    table: &StatusTable,
) -> Choice {
    let (mode, parts) = (asked.ask.mode(), 0..asked.opened.parts.len());
    if asked.opened.is_whole && !mode.looks() || asked.spent_part().is_some() {
        return Choice::Part(0, mode);
    }
    let remaining =
        |part: &usize| table.part(asked.index, *part).iter().map(QuotaStatus::remaining).min().unwrap_or(0);
    let richest = parts.clone().max_by_key(|part| (remaining(part), Reverse(*part))).unwrap_or(0);
    let has_room = || {
        let statuses = table.part(asked.index, richest).iter();
        statuses.zip(asked.costs()).all(|(status, cost)| status.remaining() >= cost)
    };
    if mode == Mode::Reset || mode == Mode::Charge && !has_room() {
        return Choice::All;
    }
    if mode == Mode::Charge {
        return Choice::Part(richest, mode);
    }
    if !mode.asks() {
        let used = |part: &usize| asked.opened.capacity(*part, 0).saturating_sub(remaining(part));
        let most_used = parts.max_by_key(|part| (used(part), Reverse(*part))).unwrap_or(0);
        return Choice::Part(most_used, mode);
    }
    // All twins are spent in one part, which has to pass the last of them.
    let spends = |other: &&DividedAsk<'_>| other.twin == asked.twin && other.ask.mode().spends();
    let last =
        asks.iter().rev().find(spends).filter(|_| !mode.looks()).map_or(asked.index, |last| last.index);
    let passes = |part: &usize| table.part(last, *part).iter().all(QuotaStatus::passed);
    let passing = || parts.clone().filter(passes);
    let passing = match divide.is_in_order() {
        true => passing().next(),
        false => passing().max_by_key(|part| (remaining(part), Reverse(*part))),
    };
    if let Some(part) = passing {
        return Choice::Part(part, now(asked));
    }
    if mode == Mode::Lease {
        return Choice::Part(richest, mode);
    }
    // Among equal waits the choice varies: otherwise all requests that look at one moment would join one queue.
    let first = if divide.is_in_order() { 0 } else { divide.first(parts.len()) };
    let behind = |part: &usize| (part + parts.len() - first) % parts.len();
    let wait_us = |part: &usize| (table.wait_us(last, *part).unwrap_or(u64::MAX), behind(part));
    let earliest = parts.clone().min_by_key(wait_us).unwrap_or(0);
    match mode {
        Mode::Reserve { longest } if wait_us(&earliest).0 <= micros(longest) => Choice::Part(earliest, mode),
        _ => Choice::Refused(earliest),
    }
}

/// Whether a part has refused, and another one may not.
fn may_fit_elsewhere(asks: &[DividedAsk<'_>], sent: &[PartAsk<'_>], outcomes: &PartOutcomes) -> bool {
    let mut each = sent.iter().zip(&outcomes.each);
    each.any(|(sent, outcome)| !outcome.passed() && !asks[sent.ask].opened.is_whole && sent.mode.asks())
}

/// The status of all parts of each ask, as looked at.
///
/// All statuses of one call have the same moment. Rows of several calls may differ by the length of a call.
struct StatusTable {
    /// Statuses by ask, then by part.
    rows: Vec<Vec<PartStatuses>>,
    at_us: u64,
    by: DecidedBy,
}

impl StatusTable {
    fn new(asks: &[DividedAsk<'_>], looks: &[PartAsk<'_>], outcomes: PartOutcomes) -> Self {
        let rows = asks.iter().map(|asked| vec![PartStatuses::new(); asked.opened.parts.len()]);
        let mut table = Self { rows: rows.collect(), at_us: outcomes.at_us, by: outcomes.by };
        for (look, outcome) in looks.iter().zip(outcomes.each) {
            table.rows[look.ask][look.part] = outcome.statuses;
        }
        table
    }

    /// The statuses of the quotas of this part.
    fn part(&self, ask: usize, part: usize) -> &[QuotaStatus] {
        &self.rows[ask][part]
    }

    /// The wait until this part passes the ask, in microseconds; `None` if it never does.
    fn wait_us(&self, ask: usize, part: usize) -> Option<u64> {
        let row = &self.rows[ask][part];
        let refused = row.iter().filter(|status| !status.passed());
        let is_possible = !row.is_empty() && !row.iter().any(QuotaStatus::is_impossible);
        let waits = refused.map(|status| micros(status.available_after()));
        is_possible.then(|| waits.max().unwrap_or(0))
    }
}

/// The decision of a request: the outcomes of the asks that were sent, the table for other parts, and the refused asks, each with the part that
/// would be the first to pass it.
///
/// The remaining units are those of the parts that were asked or looked at: other parts can only raise them.
fn merged(
    asks: &[DividedAsk<'_>],
    sent: &[PartAsk<'_>],
    mut outcomes: PartOutcomes,
    table: Option<&StatusTable>,
    refused: &[(usize, usize)],
) -> Decision {
    let mut statuses = PartStatuses::new();
    for asked in asks {
        let first = refused.iter().find(|(ask, _)| *ask == asked.index).map(|(_, part)| *part);
        for quota in 0..asked.opened.quotas() {
            statuses.push(quota_status(asked, quota, sent, &outcomes, table, first));
        }
    }
    // A charge may be in all parts, and then none of them could give all of it back.
    let spent = sent.iter().zip(&mut outcomes.each).filter(|(sent, _)| sent.mode != Mode::Charge);
    let spent = spent.filter_map(|(sent, outcome)| {
        let place = u8::try_from(sent.part).ok()?;
        let policy = Arc::clone(sent.policy.numbers());
        Some((u8::try_from(sent.ask).ok()?, SpentPart { place, policy, receipt: outcome.receipt.take()? }))
    });
    let spent: Vec<_> = spent.collect();
    judge(outcomes.at_us, micros(outcomes.delay), statuses).by(outcomes.by).with_parts(spent)
}

/// The status of one quota of an ask: the sum of its parts, as one bucket would report it.
fn quota_status(
    asked: &DividedAsk<'_>,
    quota: usize,
    sent: &[PartAsk<'_>],
    outcomes: &PartOutcomes,
    table: Option<&StatusTable>,
    first: Option<usize>,
) -> QuotaStatus {
    let index = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    let own = sent.iter().zip(&outcomes.each).filter(|(sent, _)| sent.ask == asked.index);
    let own = || own.clone().filter_map(|(sent, outcome)| Some((sent.part, outcome.statuses.get(quota)?)));
    let looked = |part: usize| table?.part(asked.index, part).get(quota).copied();
    if asked.opened.is_whole {
        let status = own().next().map(|(_, status)| *status);
        let looked = || looked(0).map(|status| as_asked(asked, status));
        let status = status.or_else(looked).unwrap_or_else(|| QuotaStatus::at_rest((0, 0), 0));
        return status.of_ask(index(asked.index));
    }
    let others = (0..asked.opened.parts.len()).filter(|part| own().all(|(own, _)| own != *part));
    let known: PartStatuses = own().map(|(_, status)| *status).chain(others.filter_map(looked)).collect();
    let capacity = asked.opened.whole_capacity(quota);
    let balance = Balance::of_parts(capacity, known.iter().map(QuotaStatus::balance));
    let status = QuotaStatus::of((index(asked.index), index(quota)), balance);
    let status = if known.iter().any(QuotaStatus::is_provisional) { status.provisional() } else { status };
    let refusing = match first.and_then(looked) {
        Some(status) => Some(status),
        None => own().map(|(_, status)| *status).find(|status| !status.passed()),
    };
    match refusing.filter(|status| !status.passed()) {
        Some(refusing) if refusing.is_impossible() => return status.impossible(),
        Some(refusing) => {
            let longest_us = match asked.ask.mode() {
                Mode::Reserve { longest } if first.is_some() => micros(longest),
                _ => 0,
            };
            return status
                .refused_for_us(micros(refusing.available_after()).saturating_sub(longest_us).max(1));
        }
        None => {}
    }
    let spent = own().map(|(_, status)| status.spent()).fold(0, u64::saturating_add);
    let more =
        known.iter().map(|status| micros(status.available_after())).filter(|wait_us| *wait_us > 0).min();
    // An empty part does not show that the others are empty: they may have a unit now.
    let are_all_known = known.len() >= asked.opened.parts.len();
    let more_us = if balance.remaining == capacity || !are_all_known { 0 } else { more.unwrap_or(0) };
    status.with_more_after_us(more_us).spending(spent)
}

/// A peek at a bucket that is kept whole, as the status of an ask that would wait.
fn as_asked(asked: &DividedAsk<'_>, status: QuotaStatus) -> QuotaStatus {
    let passes = match asked.ask.mode() {
        Mode::Reserve { longest } => !status.is_impossible() && status.available_after() <= longest,
        _ => false,
    };
    if passes { status.with_more_after_us(micros(status.available_after())) } else { status }
}
