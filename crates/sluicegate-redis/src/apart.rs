//! One request whose cells live in several hash slots of a Cluster: each slot decides for itself, and all together.

use std::sync::Arc;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::{Decision, Outcome, StoreError, StoreErrorKind};

use crate::call::{Answer, Caller};
use crate::cell::Cell;

/// First what may be refused, then, if nothing was, what always happens: a charge beside a spend that is refused must not.
/// What was spent is given back if another slot refuses or fails.
pub(crate) async fn decide(caller: Arc<Caller>, cells: Vec<Cell>) -> Answer {
    let (certain, asking): (Vec<_>, Vec<_>) = cells.into_iter().partition(Cell::must_happen);
    let asked = each(&caller, by_slot(asking)).await;
    let granted = asked.iter().all(|(_, answer)| answer.as_ref().is_ok_and(Decision::is_allowed));
    let failed = asked.iter().any(|(_, answer)| answer.is_err());
    let certain = match (granted, failed) {
        (true, _) => certain,
        // Where they stand is part of the answer.
        (false, false) => certain.iter().map(Cell::untouched).collect(),
        (false, true) => Vec::new(),
    };
    let done = each(&caller, by_slot(certain)).await;
    if !granted || done.iter().any(|(_, answer)| answer.is_err()) {
        let spent = asked.iter().filter_map(|(cells, answer)| {
            let decision = answer.as_ref().ok().filter(|decision| decision.is_allowed())?;
            // A window may have ended since. A turn that has not come yet counts in full, and so does what was put in a bucket
            // that has leaked since: had it not been there, other units would have leaked.
            let spent_us = decision.delay().is_zero().then(|| decision.spent_us());
            let spent = cells.iter().filter(|cell| cell.mode.spends());
            Some(spent.map(move |cell| cell.refund(spent_us.filter(|_| !matches!(cell.rule, Rule::Gcra(_))))))
        });
        // Whether this arrives or not, the request is refused; what is lost is denied, never doubled.
        each(&caller, by_slot(spent.flatten().collect())).await;
    }
    let mut together: Option<Decision> = None;
    for (_, answer) in asked.into_iter().chain(done) {
        let decision = answer?;
        together = Some(match together {
            None => decision,
            Some(other) => join(&other, &decision),
        });
    }
    together.ok_or_else(|| StoreError::new(StoreErrorKind::NothingAsked))
}

fn by_slot(cells: Vec<Cell>) -> Vec<Vec<Cell>> {
    let mut groups: Vec<Vec<Cell>> = Vec::new();
    for cell in cells {
        match groups.iter_mut().find(|group| group[0].lives_with(&cell)) {
            Some(group) => group.push(cell),
            None => groups.push(vec![cell]),
        }
    }
    groups
}

/// Calls for all groups at the same time.
async fn each(caller: &Caller, groups: Vec<Vec<Cell>>) -> Vec<(Vec<Cell>, Answer)> {
    let calls: Vec<_> = groups
        .into_iter()
        .map(|group| {
            let call = tokio::spawn(caller.call(group.clone()));
            (group, call)
        })
        .collect();
    let mut answers = Vec::with_capacity(calls.len());
    for (group, call) in calls {
        let answer = call.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)));
        answers.push((group, answer));
    }
    answers
}

/// Two parts of one decision; their standings already say which asks they belong to.
fn join(one: &Decision, other: &Decision) -> Decision {
    let outcome = [Outcome::Impossible, Outcome::Denied]
        .into_iter()
        .find(|outcome| one.outcome() == *outcome || other.outcome() == *outcome)
        .unwrap_or(Outcome::Allowed);
    let delay_us = u64::try_from(one.delay().max(other.delay()).as_micros()).unwrap_or(u64::MAX);
    let mut standings = [one.standings(), other.standings()].concat();
    standings.sort_by_key(|standing| (standing.policy_index(), standing.quota_index()));
    Decision::new(outcome, one.spent_us().min(other.spent_us()), delay_us, standings)
}
