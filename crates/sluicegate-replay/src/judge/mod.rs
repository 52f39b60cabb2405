//! From requests in their order to the decisions of each rule: [`LogEvaluation`].
//!
//! ```text
//! requests --> order, by seconds --> LogEvaluation --> Second, spread or together --> StateTables, or evaluators: stores on the log's clock
//!                                        |                       |
//!                                        +--> keys, in slots     +--> figures, and events for suggestions
//! ```

mod evaluator;
mod figures;
mod keys;
mod order;
mod suggest;
mod unusual;

pub(crate) use self::figures::MINUTE_US;
pub use self::figures::{Compared, Distribution, RejectedKey, RuleFigures, RuleMinute, Worst};
pub(crate) use self::order::Order;

use std::hint::black_box;

use sluicegate_core::Policy;
use sluicegate_core::policy::PolicyMode;
use sluicegate_tower::limits::Limits;

use crate::judge::evaluator::{COMPARED, Evaluator, OtherAlgorithm, Verdict, copy, gives_back, quotas_of};
use crate::judge::figures::RowTally;
use crate::judge::keys::RowKeys;
use crate::judge::order::{Judge, NumberedAsk, QueuedAsk, Second, StateTables};
use crate::judge::suggest::{AskKind, LogRecord, RecordedAsk, WantedLimits, suggest_all};
use crate::judge::unusual::{MinuteCells, find};
use crate::outcome::Unusual;
use crate::read::{Brought, CountedRow, Marks, OWN_OF_ROW, ParsedBatch, Rows};
use crate::replay::{ReplayError, ReplaySettings, WithinSecond};

// Decides the log's requests again, in their order, and counts them: [`LogEvaluation`].
//
// # A second at a time
// Requests are handled in whole seconds, because a log with whole seconds has no order within one, and spreading them requires their number.
// All requests of a second are decided in both ways; the chosen way is counted in full, the other one only by its rejections. Optional parts
// follow: other algorithms, and the record in which limits are searched.
//
// # Waiting for memory
// With a hundred rules, the data of keys is larger than the caches of a processor, and each request touches four places in it. These
// places are read for many requests before the first of them is decided, so that independent loads wait together.

/// The bytes of memory for the record of `--suggest`.
const RECORD_BYTES: usize = 256 << 20;

/// Decides requests in the order of time and counts them. Each run has its own.
pub(crate) struct LogEvaluation {
    /// The limits of the file, which say what is given back. Nothing is spent of them.
    limits: Limits,
    /// The place of the limit of each row.
    limit_of: Vec<usize>,
    rows: Vec<RowTally>,
    keys: RowKeys,
    /// The quotas that requests bring for their keys.
    brought: Brought,
    /// Decides everything that is counted; the optional parts have judges of their own.
    judge: Judge,
    /// Whether any part needs the keys themselves instead of their numbers.
    needs_keys: bool,
    /// One for each compared algorithm; empty unless a comparison was asked for.
    alone: Vec<OtherAlgorithm>,
    /// The record, if limits are to be suggested.
    record: Option<LogRecord>,
    /// All requests by their clients, among which unusual ones are looked for.
    cells: MinuteCells,
    settings: ReplaySettings,
    /// The chosen way to treat whole seconds.
    within_second: WithinSecond,
    /// Whether a line had a whole second so far: from then on both ways are decided, and until then they are one.
    has_whole: bool,
    /// Reused for each second, so that nothing is allocated for it.
    second: Second,
    /// The verdict of each ask of the second in the chosen way; `others` has those of the other way.
    verdicts: Vec<Verdict>,
    others: Vec<Verdict>,
    /// The first and the last moment of a request, in microseconds.
    pub(crate) span: Option<(u64, u64)>,
}

impl LogEvaluation {
    /// A decider of these rows, in which no request has been asked yet.
    ///
    /// State tables decide if all policies allow it, no rule gives back and no key may have quotas of its own. Otherwise evaluators decide
    /// everything, because a request is decided as a whole.
    ///
    /// # Errors
    /// When a store in memory cannot keep one of the policies.
    pub(crate) fn new(
        rows: &Rows,
        named: Vec<CountedRow>,
        settings: &ReplaySettings,
    ) -> Result<Self, ReplayError> {
        let (limits, brought) = (rows.limits.clone(), rows.brought.clone());
        let rows = named.into_iter().map(counted).collect::<Result<Vec<RowTally>, ReplayError>>()?;
        let giving = || rows.iter().enumerate().filter(|(_, row)| limits.may_give_back(row.limit));
        let policies = || rows.iter().map(|row| &row.figures.policy);
        let groups = || (0..rows.len()).filter(|row| rows[*row].figures.group.is_some());
        let evaluator = || {
            let evaluator = Evaluator::new(policies()).map_err(ReplayError::limits)?;
            giving().for_each(|(row, _)| evaluator.keep_accounts(row));
            groups().for_each(|row| evaluator.decide_alone(row));
            Ok(evaluator)
        };
        let is_plain = giving().next().is_none() && !policies().any(Policy::takes_quotas);
        let judge = match StateTables::of(policies()).filter(|_| is_plain) {
            Some(mut tables) => {
                groups().for_each(|row| tables.decide_alone(row));
                Judge::StateTables(tables)
            }
            None => Judge::Evaluators(Box::new([evaluator()?, evaluator()?])),
        };
        let compared = if settings.compares { &COMPARED[..] } else { &[] };
        let alone = compared
            .iter()
            .map(|algorithm| OtherAlgorithm::new(*algorithm, &rows, &limits))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            needs_keys: settings.compares || matches!(judge, Judge::Evaluators(_)),
            judge,
            keys: RowKeys::of_rows(rows.len()),
            brought,
            alone,
            record: settings.suggests.map(|_| LogRecord::new(rows.len(), RECORD_BYTES)),
            cells: MinuteCells::new(settings.without_networks.clone()),
            settings: settings.clone(),
            within_second: settings.within_second,
            has_whole: false,
            second: Second::default(),
            verdicts: Vec::new(),
            others: Vec::new(),
            span: None,
            limit_of: rows.iter().map(|row| row.limit).collect(),
            limits,
            rows,
        })
    }

    /// Fills `numbered` with the asks of a batch and the numbers of their keys.
    pub(crate) fn numbered(&mut self, taken: &ParsedBatch, numbered: &mut Vec<NumberedAsk>) {
        self.keys.numbered(taken, numbered);
    }

    /// The numbers of the clients of a batch, which their requests carry on.
    pub(crate) fn clients(&mut self, taken: &ParsedBatch) -> Vec<u32> {
        self.cells.clients(taken.requests().map(|(_, address, _)| address))
    }

    /// Decides and counts all requests of one second.
    ///
    /// Seconds come in their order. As long as the log has no whole second the other way is not decided: both give the same result.
    pub(crate) fn second(&mut self, held: &[QueuedAsk]) {
        let Self { limits, limit_of, judge, rows, second, verdicts, others, within_second, .. } = self;
        let within = *within_second;
        let given_back = |row: usize, status| gives_back(limits, limit_of[row], status);
        second.fill(held, self.needs_keys.then_some((&self.keys, &self.brought)));
        // Keys are scattered in memory. Reading all of them before any is decided lets the loads wait together.
        if let Judge::StateTables(tables) = judge {
            black_box(tables.glance(second.all()));
        }
        black_box(second.all().iter().fold(0, |sum, ask| sum ^ rows[ask.row as usize].glance(ask.key)));
        self.has_whole |= held.iter().any(|held| held.came.is_whole);
        second.decide(within, judge, given_back, verdicts);
        if self.has_whole {
            second.decide(within.other(), judge, given_back, others);
        }
        for (at_us, request) in second.requests(within) {
            let span = self.span.get_or_insert((at_us, at_us));
            *span = (span.0.min(at_us), span.1.max(at_us));
            let given_back = |row| given_back(row, request.came.status);
            for alone in &mut self.alone {
                alone.decide(at_us, second.named(request), given_back);
            }
            let request_number = self.record.as_mut().map(LogRecord::request);
            let client = request.came.client;
            self.cells.count(at_us, request.came);
            let is_left_out = self.settings.without.iter().any(|(from, to)| (*from..*to).contains(&at_us))
                || self.cells.is_left_out(client);
            let kind = if is_left_out { AskKind::LeftOut } else { AskKind::Ordinary };
            for (place, ask) in second.asks(request) {
                let number = ask.row as usize;
                let row = &mut self.rows[number];
                if matches!(others.get(place), Some(Verdict::Rejected(_))) {
                    *row.figures.rejected_otherwise.get_or_insert(0) += 1;
                }
                if verdicts[place] == Verdict::NotAsked {
                    continue;
                }
                row.count((ask.key, ask.quotas), at_us, verdicts[place]);
                // Limits are searched for keys that bring no quotas of their own.
                if ask.quotas != OWN_OF_ROW {
                    continue;
                }
                if let (Some(record), Some(request)) = (&mut self.record, request_number) {
                    let cost = u32::try_from(ask.cost).unwrap_or(u32::MAX);
                    let gives_back = given_back(number);
                    let key = ask.key;
                    record.keep(number, RecordedAsk { key, cost, request, gives_back, kind, client, at_us });
                }
            }
        }
    }

    /// The number of keys that had to be forgotten before they were at rest.
    pub(crate) fn forgotten(&self) -> u64 {
        self.judge.forgotten(self.within_second)
    }

    /// Everything that was counted.
    ///
    /// One entry for each row, in the order of the file, with what was compared and suggested if that was asked for. The search for limits
    /// happens here, and may take longer than the replay did.
    pub(crate) fn finish(self, marks: &Marks) -> (Vec<RuleFigures>, Vec<Unusual>) {
        let settings = &self.settings;
        let keys = Some(&self.keys).filter(|_| !settings.span.hides_lines);
        let figures = |(row, tally): (usize, RowTally)| {
            let key = keys.map(|keys| move |number| keys.key(row, number));
            tally.figures(settings.top, (key, &self.brought), self.has_whole)
        };
        let mut rules: Vec<RuleFigures> = self.rows.into_iter().enumerate().map(figures).collect();
        for (place, rule) in rules.iter_mut().enumerate() {
            rule.compared = self.alone.iter().map(|alone| alone.compared(place)).collect();
        }
        let findings = find(self.cells, marks, settings.span.hides_lines);
        if let (Some(mut record), Some(share)) = (self.record, settings.suggests) {
            record.mark(|client, at_us| findings.hold(client, at_us));
            let wanted = WantedLimits { share, least: settings.least, is_rest_only: settings.is_rest_only };
            suggest_all(record, &self.keys, wanted, &mut rules);
        }
        (rules, findings.told())
    }
}

/// A row for counting, without requests yet. Groups of keys are counted under a copy of the policy with a name of its own.
///
/// # Errors
/// When the copy cannot be built, which its policy could.
fn counted(row: CountedRow) -> Result<RowTally, ReplayError> {
    let CountedRow { name, limit, limiter, group } = row;
    let policy = limiter.policy().as_ref().clone();
    let Some(group) = group else { return Ok(RowTally::new(name, limit, policy, None)) };
    // Names are bounded; a dot is part of no other name that is so long.
    let own = format!("{:.50}.{group}", policy.name());
    let copy = copy(&policy, &own, policy.algorithm(), &quotas_of(&policy));
    let copy = copy.map_err(ReplayError::limits)?.in_mode(PolicyMode::Shadow);
    Ok(RowTally::new(name, limit, copy, Some(group)))
}

#[cfg(test)]
mod random;
