//! One request whose keys live in several hash slots of a Cluster: each slot decides for itself,
//! and all together.
//!
//! A script sees the keys of one slot only, so "all spend or none does" needs several calls:
//!
//! | step | calls | what can go wrong |
//! |---|---|---|
//! | look at all slots | at the same time | a refusal: nothing was spent |
//! | spend, where least is left first | one after the other | another request was faster: give back, and refuse |
//! | report what is certain (charges, refunds) | at the same time | an error is told |
//! | spend what is refused of policies that count it | at the same time, after the answer | its waits do not show it yet |
//!
//! Its spend is *marked* for as long as the request may take, because the units may come back in a
//! moment. If only marked units of others make a slot refuse, the refusal says so
//! ([provisional](sluicegate_core::store::QuotaStatus::is_provisional)), and the request asks
//! once more, after about the time that it took so far. Otherwise two requests could refuse each
//! other, each because of units that the other gives back. A request in one slot holds no marked units, and is answered at
//! once: the answer says that the refusal is provisional, so that caches do not keep it.
//!
//! # What it promises
//! Never more is admitted than each quota allows, because each slot spends before the request goes
//! on. A process that dies in between leaves too much spent, never too little. Fairness between slots
//! is not promised: a request with many keys may lose against those with few.
//!
//! # Turns
//! The slot with the longest wait is asked first. The others learn when that turn comes,
//! and hold their units until then.

mod give_up;
mod parts;

use std::sync::Arc;

use sluicegate_core::clock::micros;
use sluicegate_core::store::{Mode, QuotaStatus};
use sluicegate_core::{Decision, Outcome, StoreError};
use tokio::time::Instant;

use self::give_up::give_up;
use self::parts::{SlotPart, by_slot, each, joined};
use super::ask::{CrossSlot, KeyAsk};
use super::caller::Caller;
use super::request::DecisionResult;

/// The result of an attempt.
enum Attempt {
    Granted(Vec<SlotPart>),
    /// It is refused, perhaps because of units that others hold for a moment.
    Refused(Vec<SlotPart>, bool),
}

/// Runs in a task of its own: the request may be dropped at any of these awaits, and its
/// spends have to be given back or granted as a whole.
pub(super) async fn decide(caller: Arc<Caller>, asks: Vec<KeyAsk>) -> DecisionResult {
    let deadline = caller.client.deadline();
    if asks.iter().any(|ask| ask.mode == Mode::Return) {
        return give_up(&caller, asks, deadline).await;
    }
    // No slot knows how much the others leave, so nothing is leased.
    let without_units = |ask: KeyAsk| if ask.mode == Mode::Lease { ask.without_cost() } else { ask };
    let asks = asks.into_iter().map(without_units);
    let (certain, asking): (Vec<_>, Vec<_>) = asks.partition(|ask| !ask.mode.asks());
    let begun = Instant::now();
    let mut end = attempt(&caller, &asking, deadline).await?;
    if matches!(end, Attempt::Refused(_, true)) {
        // About the time that the other requests need to finish.
        let pause = begun.elapsed().min(deadline.saturating_duration_since(Instant::now()) / 4);
        tokio::time::sleep(pause).await;
        end = attempt(&caller, &asking, deadline).await?;
    }
    match end {
        Attempt::Granted(mut parts) => match each(&caller, by_slot(certain), deadline).await {
            Ok(done) => {
                parts.extend(done);
                joined(parts)
            }
            Err(error) => {
                give_back(&caller, parts);
                Err(error)
            }
        },
        Attempt::Refused(mut parts, _) => {
            count_rejected(&caller, &asking);
            // Their state is part of the answer.
            let looks = certain.iter().map(|ask| ask.with_mode(Mode::Peek)).collect();
            parts.extend(each(&caller, by_slot(looks), deadline).await?);
            joined(parts)
        }
    }
}

/// Makes one attempt. With only one slot there is nothing to coordinate, and the script decides everything.
async fn attempt(caller: &Arc<Caller>, asking: &[KeyAsk], deadline: Instant) -> Result<Attempt, StoreError> {
    let mut groups = by_slot(asking.to_vec());
    if groups.len() < 2 {
        let parts = each(caller, groups, deadline).await?;
        let granted = parts.iter().all(|part| part.decision.is_allowed());
        return Ok(if granted { Attempt::Granted(parts) } else { Attempt::Refused(parts, false) });
    }
    let peeks = groups.iter().map(|asks| asks.iter().map(|ask| ask.with_mode(Mode::Peek)).collect());
    let looks = each(caller, peeks.collect(), deadline).await?;
    if looks.iter().zip(&groups).any(|(look, asks)| is_refused(&look.decision, asks)) {
        let is_busy = looks.iter().any(|look| is_busy(&look.decision));
        return Ok(Attempt::Refused(looks, is_busy));
    }
    // The slot with the longest wait comes first, or else the one with the least left.
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|index| {
        let statuses = || looks[*index].decision.quotas().iter();
        let wait = statuses().filter(|status| !status.passed()).map(QuotaStatus::available_after).max();
        (std::cmp::Reverse(wait), statuses().map(QuotaStatus::remaining).min())
    });
    let mut looks: Vec<Option<SlotPart>> = looks.into_iter().map(Some).collect();
    let mut spent: Vec<SlotPart> = Vec::with_capacity(groups.len());
    let last = order.len() - 1;
    for (turn, index) in order.into_iter().enumerate() {
        let mut asks = std::mem::take(&mut groups[index]);
        if !asks.iter().any(|ask| ask.mode.spends()) {
            spent.extend(looks[index].take());
            continue;
        }
        let due_us =
            spent.iter().filter(|part| !part.decision.delay().is_zero()).map(|part| part.decision.spent_us());
        let due_us = due_us.max().unwrap_or(0);
        let marked_us = if turn < last { micros(caller.client.deadline) } else { 0 };
        for ask in &mut asks {
            // A request that is delayed only by a queue departs at the time of that queue.
            let due_us = if ask.mode.longest_wait().is_some() { due_us } else { 0 };
            ask.cross_slot = Some(CrossSlot { due_us, marked_us });
        }
        match caller.ask(asks.clone(), deadline).await {
            Ok(decision) if decision.is_allowed() => spent.push(SlotPart { asks, decision }),
            Ok(decision) => {
                give_back(caller, spent);
                let is_busy = is_busy(&decision);
                looks[index] = Some(SlotPart { asks, decision });
                let looks = looks.into_iter().flatten().collect();
                return Ok(Attempt::Refused(looks, is_busy));
            }
            Err(error) => {
                give_back(caller, spent);
                return Err(error);
            }
        }
    }
    Ok(Attempt::Granted(spent))
}

/// Spends a refused request under the policies that count refused requests, each by itself: as a spend if it still fits, as a
/// count if not. No request waits for it.
fn count_rejected(caller: &Arc<Caller>, asking: &[KeyAsk]) {
    if by_slot(asking.to_vec()).len() < 2 {
        // The slot has done so already.
        return;
    }
    for ask in asking.iter().filter(|ask| ask.mode.spends() && ask.prepared.counts_rejected) {
        let (caller, ask) = (Arc::clone(caller), ask.with_mode(Mode::Spend));
        tokio::spawn(async move { caller.ask(vec![ask], caller.client.deadline()).await });
    }
}

/// Whether the decision refuses because of units that others may give back in a moment.
fn is_busy(decision: &Decision) -> bool {
    decision.quotas().iter().any(|status| !status.passed() && status.is_provisional())
}

/// Whether a peek says that the request would be refused even after its longest waits.
///
/// A peek does not wait, so its refusal does not count for an ask that may wait long enough.
fn is_refused(decision: &Decision, asks: &[KeyAsk]) -> bool {
    if decision.outcome() != Outcome::Denied {
        return !decision.is_allowed();
    }
    let waits = |status: &QuotaStatus| {
        asks.iter().any(|ask| {
            let may_wait = ask.mode.longest_wait().is_some_and(|longest| status.available_after() <= longest);
            usize::from(ask.at) == status.policy_index() && may_wait
        })
    };
    decision.quotas().iter().any(|status| !status.passed() && !waits(status))
}

/// Gives back the spends of a request that another slot refused, without waiting: the request is refused whether the
/// refund arrives or not, and a lost refund only denies more.
///
/// A turn that others may depend on is returned, everything else refunded by its receipt.
fn give_back(caller: &Arc<Caller>, spent: Vec<SlotPart>) {
    for SlotPart { asks, mut decision } in spent {
        let is_turn = !decision.delay().is_zero();
        let asks: Vec<KeyAsk> = asks
            .iter()
            .filter(|ask| ask.mode.spends())
            .filter_map(|ask| {
                let may_wait = ask.mode.longest_wait().is_some();
                let mode = if is_turn && may_wait { Mode::Return } else { Mode::Refund };
                Some(ask.of(mode, &decision.take_receipt(usize::from(ask.at))?))
            })
            .collect();
        if !asks.is_empty() {
            let caller = Arc::clone(caller);
            tokio::spawn(async move { caller.ask(asks, caller.client.deadline()).await });
        }
    }
}
