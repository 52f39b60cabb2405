//! One request whose keys live in several hash slots of a Cluster: each slot decides for itself, and all together.
//!
//! All slots are looked at first, so that a request which is refused spends nowhere. Then it spends in one slot after the
//! other, where least is left first, and in the others only after that has passed. What it spends is marked until the request
//! is decided: a refusal that is due to marked units of others is no answer yet, and the request asks once more.

use std::sync::Arc;

use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::store::{Mode, QuotaStatus, Trace, judge};
use sluicegate_core::{Decision, Outcome, StoreError};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::call::{Answer, Caller};
use crate::cell::Cell;
use crate::turned::turned_back;

/// Cells of one slot, and what became of them.
pub(crate) struct Part {
    pub(crate) cells: Vec<Cell>,
    pub(crate) decision: Decision,
}

/// What an attempt came to.
enum End {
    Granted(Vec<Part>),
    /// It is refused, perhaps because of units that others hold for a moment.
    Refused(Vec<Part>, bool),
}

pub(crate) async fn decide(caller: Arc<Caller>, cells: Vec<Cell>) -> Answer {
    let deadline = caller.deadline();
    if cells.iter().any(|cell| cell.mode == Mode::Return) {
        return turned_back(&caller, cells, deadline).await;
    }
    let (certain, asking): (Vec<_>, Vec<_>) = cells.into_iter().partition(|cell| !cell.mode.asks());
    let begun = Instant::now();
    let mut end = attempt(&caller, &asking, deadline).await?;
    if matches!(end, End::Refused(_, true)) {
        // About as long as the others need for the rest of their way.
        let pause = begun.elapsed().min(deadline.saturating_duration_since(Instant::now()) / 4);
        tokio::time::sleep(pause).await;
        end = attempt(&caller, &asking, deadline).await?;
    }
    match end {
        End::Granted(mut parts) => match each(&caller, by_slot(certain), deadline).await {
            Ok(done) => {
                parts.extend(done);
                joined(parts)
            }
            Err(error) => {
                give_back(&caller, parts);
                Err(error)
            }
        },
        End::Refused(mut parts, _) => {
            // Where they stand is part of the answer.
            let looks = certain.iter().map(|cell| cell.with_mode(Mode::Peek)).collect();
            parts.extend(each(&caller, by_slot(looks), deadline).await?);
            joined(parts)
        }
    }
}

async fn attempt(caller: &Arc<Caller>, asking: &[Cell], deadline: Instant) -> Result<End, StoreError> {
    let mut groups = by_slot(asking.to_vec());
    if groups.len() < 2 {
        let parts = each(caller, groups, deadline).await?;
        let granted = parts.iter().all(|part| part.decision.is_allowed());
        return Ok(if granted { End::Granted(parts) } else { End::Refused(parts, false) });
    }
    let peeks = groups.iter().map(|cells| cells.iter().map(|cell| cell.with_mode(Mode::Peek)).collect());
    let (looks, busy) = each_or_busy(caller, peeks.collect(), deadline).await?;
    if looks.iter().zip(&groups).any(|(look, cells)| is_refused(&look.decision, cells)) {
        return Ok(End::Refused(looks, busy));
    }
    // Where it waits longest, or else least is left, comes first.
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|index| {
        let statuses = || looks[*index].decision.quotas().iter();
        let wait = statuses().filter(|status| !status.passed()).map(QuotaStatus::available_after).max();
        (std::cmp::Reverse(wait), statuses().map(QuotaStatus::remaining).min())
    });
    let mut looks: Vec<Option<Part>> = looks.into_iter().map(Some).collect();
    let mut spent: Vec<Part> = Vec::with_capacity(groups.len());
    let last = order.len() - 1;
    for (turn, index) in order.into_iter().enumerate() {
        let mut cells = std::mem::take(&mut groups[index]);
        if !cells.iter().any(|cell| cell.mode.spends()) {
            spent.extend(looks[index].take());
            continue;
        }
        let due_us =
            spent.iter().filter(|part| !part.decision.delay().is_zero()).map(|part| part.decision.spent_us());
        let due_us = due_us.max().unwrap_or(0);
        let mark_us = if turn < last { crate::call::micros(caller.deadline) } else { 0 };
        for cell in &mut cells {
            // What a queue delays departs when its own queue says.
            let due_us = if matches!(cell.mode, Mode::Reserve { .. }) { due_us } else { 0 };
            cell.apart = Some((due_us, mark_us));
        }
        match caller.ask(cells.clone(), deadline).await {
            Ok((decision, _)) if decision.is_allowed() => spent.push(Part { cells, decision }),
            Ok((decision, busy)) => {
                give_back(caller, spent);
                looks[index] = Some(Part { cells, decision });
                let looks = looks.into_iter().flatten().collect();
                return Ok(End::Refused(looks, busy));
            }
            Err(error) => {
                give_back(caller, spent);
                return Err(error);
            }
        }
    }
    Ok(End::Granted(spent))
}

/// Whether a look says that the request would be refused, if those who may wait do.
fn is_refused(decision: &Decision, cells: &[Cell]) -> bool {
    if decision.outcome() != Outcome::Denied {
        return !decision.is_allowed();
    }
    let waits = |status: &QuotaStatus| {
        cells.iter().any(|cell| {
            let may_wait =
                matches!(cell.mode, Mode::Reserve { longest } if status.available_after() <= longest);
            usize::from(cell.at) == status.policy_index() && may_wait
        })
    };
    decision.quotas().iter().any(|status| !status.passed() && !waits(status))
}

pub(crate) fn by_slot(cells: Vec<Cell>) -> Vec<Vec<Cell>> {
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
async fn each(
    caller: &Arc<Caller>,
    groups: Vec<Vec<Cell>>,
    deadline: Instant,
) -> Result<Vec<Part>, StoreError> {
    each_or_busy(caller, groups, deadline).await.map(|(parts, _)| parts)
}

async fn each_or_busy(
    caller: &Arc<Caller>,
    groups: Vec<Vec<Cell>>,
    deadline: Instant,
) -> Result<(Vec<Part>, bool), StoreError> {
    let calls: Vec<(Vec<Cell>, JoinHandle<_>)> = groups
        .into_iter()
        .map(|cells| {
            let (caller, asked) = (Arc::clone(caller), cells.clone());
            (cells, tokio::spawn(async move { caller.ask(asked, deadline).await }))
        })
        .collect();
    let (mut parts, mut any_busy) = (Vec::with_capacity(calls.len()), false);
    for (cells, call) in calls {
        let (decision, busy) =
            call.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))?;
        any_busy |= busy;
        parts.push(Part { cells, decision });
    }
    Ok((parts, any_busy))
}

/// Gives back what was spent for a request that is refused elsewhere. Nobody waits for it: whether it arrives or not, the
/// request is refused; what is lost is denied, never doubled.
fn give_back(caller: &Arc<Caller>, spent: Vec<Part>) {
    for Part { cells, mut decision } in spent {
        let is_turn = !decision.delay().is_zero();
        let cells: Vec<Cell> = cells
            .iter()
            .filter(|cell| cell.mode.spends())
            .filter_map(|cell| {
                let may_wait = matches!(cell.mode, Mode::Reserve { .. });
                let mode = if is_turn && may_wait { Mode::Return } else { Mode::Refund };
                Some(cell.of(mode, &decision.take_receipt(usize::from(cell.at))?))
            })
            .collect();
        if !cells.is_empty() {
            let caller = Arc::clone(caller);
            tokio::spawn(async move { caller.ask(cells, caller.deadline()).await });
        }
    }
}

/// The parts as one decision; their statuses already say which asks they belong to.
pub(crate) fn joined(parts: Vec<Part>) -> Answer {
    let decisions = || parts.iter().map(|part| &part.decision);
    let delay = decisions().map(Decision::delay).max().unwrap_or_default();
    let Some(spent_us) = decisions().map(Decision::spent_us).max() else {
        return Err(StoreError::new(StoreErrorKind::NothingAsked));
    };
    let mut lines: Vec<(QuotaStatus, Trace)> = Vec::new();
    for Part { cells, mut decision } in parts {
        let statuses = decision.quotas().to_vec();
        let receipts: Vec<_> =
            cells.iter().map(|cell| (cell, decision.take_receipt(usize::from(cell.at)))).collect();
        for status in statuses {
            let of = receipts.iter().find(|(cell, _)| usize::from(cell.at) == status.policy_index());
            let trace = of.and_then(|(cell, receipt)| {
                let is_kept = cell.bucket.gives_back || !delay.is_zero();
                let quota = u8::try_from(status.quota_index()).ok()?;
                receipt.as_ref().filter(|_| is_kept)?.trace(quota).copied()
            });
            lines.push((status, trace.unwrap_or_default()));
        }
    }
    lines.sort_by_key(|(status, _)| (status.policy_index(), status.quota_index()));
    let delay_us = crate::call::micros(delay);
    let statuses = lines.iter().map(|(status, _)| *status);
    let decision = judge(spent_us.saturating_sub(delay_us), delay_us, statuses);
    let traces: Vec<Trace> = lines.into_iter().map(|(_, trace)| trace).collect();
    Ok(if traces.iter().any(|trace| trace.birth > 0) { decision.with_traces(traces) } else { decision })
}
