//! A limit for each row, and all of them replayed together.
//!
//! Each suggestion is found alone. In the service, rules apply beside each other, and one that refuses a request keeps the others from
//! spending. So all suggestions are replayed together once more, and the result is shown beside each.

use sluicegate_core::Policy;
use sluicegate_core::policy::PolicyMode;

use super::record::{Record, RecordedAsk};
use super::search::suggest;
use crate::judge::evaluator::{Evaluator, RowAsk, Verdict};
use crate::judge::figures::RuleFigures;
use crate::judge::keys::RowKeys;
use crate::share::Share;

/// The reason why a row has no suggestion.
const TOO_LARGE: &str =
    "the log is too large to keep what a limit is looked for in: use --only, --since and --until";
const NONE_IS_ENOUGH: &str = "no limit that the policy can have rejects as little";

/// Finds a limit for each row by itself, and replays all of them together.
pub(in crate::judge) fn suggest_all(
    mut record: Record,
    keys: &RowKeys,
    share: Share,
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
            rule.suggestion = suggest(&rule.policy, kept, share);
            rule.no_suggestion = rule.suggestion.is_none().then_some(NONE_IS_ENOUGH);
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
        for (ask, verdict) in asks.iter().zip(&verdicts) {
            rejected[ask.row] += u64::from(matches!(verdict, Verdict::Rejected(_)));
        }
    }
    for (rule, rejected) in rules.iter_mut().zip(rejected) {
        if let Some(suggestion) = &mut rule.suggestion {
            suggestion.together = Some(rejected);
        }
    }
}
