//! A limit for each row, and all of them replayed together.
//!
//! Each suggestion is found alone. In the service, rules apply together, and a rule that refuses a request keeps the others from
//! spending. So all suggestions are also replayed together, and the result is shown with each.

use sluicegate_core::Policy;
use sluicegate_core::policy::PolicyMode;

use super::frontier::Tradeoffs;
use super::record::{AskKind, LogRecord, RecordedAsk, RowRecord};
use super::search::{suggest, suggestion_at};
use crate::judge::evaluator::{Evaluator, RowAsk, Verdict};
use crate::judge::figures::RuleFigures;
use crate::judge::keys::RowKeys;
use crate::share::Share;
use crate::suggestion::{LimitWithUnusual, UnusualSide};

/// The reason why a row has no suggestion.
const TOO_LARGE: &str =
    "the log is too large to keep what a limit is looked for in: use --only, --since and --until";
const NONE_IS_ENOUGH: &str = "no limit that the policy can have rejects as little";

const NOTHING_ORDINARY: &str =
    "all of its requests are unusual or left out, so there is nothing to learn from";
const NOT_BOTH: &str =
    "no limit rejects so few ordinary and so many unusual requests: see what each limit rejects of both";

/// The requested limits.
#[derive(Clone, Copy, Debug)]
pub(in crate::judge) struct WantedLimits {
    /// The most that may be rejected of ordinary requests or keys.
    pub(in crate::judge) share: Share,
    /// The least that has to be rejected of unusual ones, if requested.
    pub(in crate::judge) least: Option<Share>,
    /// Whether suggestions come only from ordinary requests, without the limit that all requests suggest.
    pub(in crate::judge) is_rest_only: bool,
}

/// Finds a limit for each row by itself, and replays all of them together.
pub(in crate::judge) fn suggest_all(
    mut record: LogRecord,
    keys: &RowKeys,
    wanted: WantedLimits,
    rules: &mut [RuleFigures],
) {
    // Kept in the order in which they were asked, before they are grouped by key.
    let mut asked: Vec<(u32, usize, RecordedAsk)> = Vec::new();
    if record.is_whole {
        for (row, kept) in record.rows.iter().enumerate() {
            asked.extend(kept.events.iter().map(|event| (event.request, row, *event)));
        }
        asked.sort_by_key(|(request, row, _)| (*request, *row));
    }
    for (rule, kept) in rules.iter_mut().zip(&mut record.rows) {
        if kept.is_lost {
            rule.no_suggestion = Some(TOO_LARGE);
        } else if rule.asked > 0 {
            kept.by_key();
            suggest_one(rule, kept, wanted);
        }
    }
    if !record.is_whole {
        return;
    }
    let policies = rules.iter().map(|rule| match &rule.suggestion {
        Some(suggestion) => suggestion.policy.clone(),
        None => rule.policy.clone(),
    });
    let policies: Vec<Policy> = policies.collect();
    // Rows of one policy may get different limits; then they share no bucket, so there is nothing to replay together.
    let Ok(evaluator) = Evaluator::new(&policies) else { return };
    let gives_back = |row: usize| record.rows[row].events.iter().any(|event| event.gives_back);
    (0..rules.len()).filter(|row| gives_back(*row)).for_each(|row| evaluator.keep_accounts(row));
    // Groups of keys are counted beside the rules, whatever those refuse.
    (0..rules.len()).filter(|row| rules[*row].group.is_some()).for_each(|row| evaluator.decide_alone(row));
    let mut rejected = vec![0_u64; rules.len()];
    let mut verdicts = Vec::new();
    for request in asked.chunk_by(|one, next| one.0 == next.0) {
        let asks: Vec<RowAsk> = request
            .iter()
            .map(|(_, row, event)| RowAsk {
                row: *row,
                key: keys.key(*row, event.key),
                cost: event.cost.into(),
                is_enforced: rules[*row].policy.mode() == PolicyMode::Enforce,
                quotas: None,
            })
            .collect();
        let given_back = |row| request.iter().any(|(_, asked, event)| *asked == row && event.gives_back);
        verdicts.resize(asks.len(), Verdict::NotAsked);
        evaluator.decide(request[0].2.at_us, &asks, given_back, &mut verdicts);
        for ((_, row, event), verdict) in request.iter().zip(&verdicts) {
            let counts = event.kind == AskKind::Ordinary && matches!(verdict, Verdict::Rejected(_));
            rejected[*row] += u64::from(counts);
        }
    }
    for (rule, rejected) in rules.iter_mut().zip(rejected).filter(|(rule, _)| rule.group.is_none()) {
        if let Some(suggestion) = &mut rule.suggestion {
            suggestion.together = Some(rejected);
        }
    }
}

/// Finds the limit of a row in events that were put together by key: from ordinary ones alone where others are there too.
fn suggest_one(rule: &mut RuleFigures, kept: &RowRecord, wanted: WantedLimits) {
    let WantedLimits { share, least, is_rest_only } = wanted;
    let only = |is_it: fn(AskKind) -> bool| kept.only(is_it);
    if !kept.has(|kind| kind != AskKind::Ordinary) {
        rule.suggestion = suggest(&rule.policy, kept, share);
        rule.no_suggestion = rule.suggestion.is_none().then_some(NONE_IS_ENOUGH);
        return;
    }
    let ordinary = only(|kind| kind == AskKind::Ordinary);
    let tradeoffs = Tradeoffs::new(&rule.policy, kept);
    rule.frontier = tradeoffs.as_ref().map(|tradeoffs| tradeoffs.frontier.clone());
    if ordinary.events.is_empty() {
        rule.no_suggestion = Some(NOTHING_ORDINARY);
        return;
    }
    let Some(mut found) = suggest(&rule.policy, &ordinary, share) else {
        rule.no_suggestion = Some(NONE_IS_ENOUGH);
        return;
    };
    if let (Some(least), Some(tradeoffs)) = (least, &tradeoffs) {
        let both = tradeoffs.between(share, least, found.limit);
        match both.and_then(|point| suggestion_at(&rule.policy, &ordinary, share, point.limit)) {
            Some(both) => found = both,
            None => {
                rule.no_suggestion = Some(NOT_BOTH);
                return;
            }
        }
    }
    let learns_more = !is_rest_only && kept.has(|kind| kind == AskKind::Unusual);
    let with = learns_more.then(|| only(|kind| kind != AskKind::LeftOut));
    let with = with.and_then(|with| suggest(&rule.policy, &with, share));
    if let Some(mut tradeoffs) = tradeoffs {
        let point = tradeoffs.at(found.limit);
        tradeoffs.frontier.add(point);
        found.unusual = point.map(|point| UnusualSide {
            asked: tradeoffs.frontier.unusual,
            rejected: point.unusual,
            share: least,
            with: with.map(|with| LimitWithUnusual {
                policy: with.policy,
                limit: with.limit,
                rejected: with.rejected,
            }),
        });
        rule.frontier = Some(tradeoffs.frontier);
    }
    rule.suggestion = Some(found);
}
