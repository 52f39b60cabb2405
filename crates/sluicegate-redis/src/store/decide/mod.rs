//! From asks to decisions: [`Decider`].
//!
//! | file | purpose |
//! |---|---|
//! | `ask` | the ask about one key, as the script needs it |
//! | `batch` | sends requests to Redis, alone or with others |
//! | `script`, `lua/`, `command`, `reply` | the script, its input, and its output |
//!
//! A call starts when the store is asked, with a first poll of its future, and
//! the store's runtime finishes it if that future is dropped. So a decision does not depend on
//! its caller, and a client that hangs up does not undo a charge.
//!
//! # Keys in several slots
//! If a request has keys in several hash slots of a Cluster, each slot decides for itself, and the results are combined.
//!
//! A script sees only the keys of one slot, so "all spend or none does" needs several calls:
//!
//! | step | calls | what can go wrong |
//! |---|---|---|
//! | peek at all slots | at the same time | a refusal: nothing was spent |
//! | spend, first in the slot with the fewest units left | one after the other | another request was faster: give back, and refuse |
//! | make the certain changes (charges, refunds) | at the same time | an error is returned |
//! | spend refused costs under policies that count them | at the same time, after the answer | the waits in the answer do not include it |
//!
//! Its spend is *marked* for as long as the request may take, because the units may come back in a
//! moment. If only marked units of others make a slot refuse, the refusal says so
//! ([provisional](sluicegate_core::store::QuotaStatus::is_provisional)), and the request asks
//! once more, after about the time that it has taken so far. Otherwise two requests could refuse each
//! other, each because of units that the other gives back. A request in one slot holds no marked units, and is answered at
//! once: the answer says that the refusal is provisional, so that caches do not keep it.
//!
//! Never more is admitted than each quota allows, because each slot spends before the request
//! proceeds. A process that dies in between leaves too much spent, never too little. Fairness between slots
//! is not promised: a request with many keys may lose against requests with few.
//!
//! Each slot counts the request from its own turn on, and the request proceeds at the last of them. The slot with the longest wait is
//! asked first.

mod ask;
mod batch;
mod command;
mod reply;
mod script;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sluicegate_core::clock::micros;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{Ask, DecisionFuture, Mode, QuotaStatus};
use sluicegate_core::support::random;
use sluicegate_core::wrap::{DecidedPart, ask_at_once, ask_in_turn};
use sluicegate_core::{ConfigError, Decision, Outcome, Policy, StoreError};
use tokio::time::Instant;

use self::ask::KeyAsk;
pub(super) use self::batch::{Batcher, gather};
use self::batch::{DecisionResult, ScriptRequest, call};
use self::command::command;
use self::reply::ScriptReply;
pub(super) use self::script::KINDS;
use super::client::RedisClient;
use super::key::{self, Tags};
use super::prepared::Prepared;
use crate::connection::{Probe, ScriptName, part_of};

/// Decides requests with the script, alone or with others.
pub(super) struct Decider {
    client: Arc<RedisClient>,
    batcher: Batcher,
}

impl Decider {
    pub(super) fn new(client: Arc<RedisClient>, batcher: Batcher) -> Self {
        Self { client, batcher }
    }

    /// Decides one request: in one call, which others may share, or in several if its keys are in several slots of a Cluster.
    pub(super) fn decide(self: &Arc<Self>, asks: &[Ask<'_>], tags: &Tags) -> DecisionFuture {
        let client = &self.client;
        let asks = match KeyAsk::each(asks, tags, || client.about_now_us()) {
            Ok(asks) => asks,
            Err(error) => return DecisionFuture::ready(Err(error)),
        };
        let runtime = match client.runtime() {
            Ok(runtime) => runtime,
            Err(ended) => return DecisionFuture::ready(Err(ended)),
        };
        if client.connection.is_cluster && !asks.iter().all(|ask| ask.lives_with(&asks[0])) {
            return DecisionFuture::begun(&runtime, decide_across_slots(Arc::clone(self), asks));
        }
        let request = self.request(asks, client.deadline());
        self.batcher.decide(request, &runtime)
    }

    /// Decides the asks of one slot for a request in several slots, by this deadline and in a call of its own. It begins at once, and
    /// continues even if its future is dropped.
    fn ask(self: &Arc<Self>, asks: Vec<KeyAsk>, deadline: Instant) -> DecisionFuture {
        let (connection, request) = (Arc::clone(&self.client.connection), self.request(asks, deadline));
        DecisionFuture::begun_here(async move {
            call(&connection, part_of(request.slot()), &[&request]).await?.decision(&request.asks)
        })
    }

    fn request(&self, asks: Vec<KeyAsk>, deadline: Instant) -> ScriptRequest {
        ScriptRequest { asks, time: self.client.clock_us(), deadline }
    }
}

/// The asks of one slot, and its decision.
type SlotPart = DecidedPart<Vec<KeyAsk>>;

/// The result of an attempt.
enum Attempt {
    Granted(Vec<SlotPart>),
    /// It is refused, perhaps because of units that others hold for a moment.
    Refused(Vec<SlotPart>, bool),
}

/// Runs in a task of its own: the request may be dropped at any of these awaits, and its
/// spends have to be given back or granted as a whole.
async fn decide_across_slots(decider: Arc<Decider>, asks: Vec<KeyAsk>) -> DecisionResult {
    let deadline = decider.client.deadline();
    if asks.iter().any(|ask| ask.mode == Mode::Return) {
        return give_up(&decider, asks, deadline).await;
    }
    // No slot knows the units left in the others, so nothing is leased.
    let without_units = |ask: KeyAsk| if ask.mode == Mode::Lease { ask.without_cost() } else { ask };
    let asks = asks.into_iter().map(without_units);
    let (certain, asking): (Vec<_>, Vec<_>) = asks.partition(|ask| !ask.mode.asks());
    let begun = Instant::now();
    let mut end = attempt(&decider, &asking, deadline).await?;
    if matches!(end, Attempt::Refused(_, true)) {
        // About the time for the other requests to finish.
        let pause = begun.elapsed().min(deadline.saturating_duration_since(Instant::now()) / 4);
        tokio::time::sleep(pause).await;
        end = attempt(&decider, &asking, deadline).await?;
    }
    let (mut parts, more) = match end {
        Attempt::Granted(parts) => {
            let done = at_once(&decider, by_slot(certain), deadline).await;
            let done = done.inspect_err(|_| give_back(&decider, &parts))?;
            (parts, done)
        }
        Attempt::Refused(parts, _) => {
            count_rejected(&decider, &asking);
            // Their state is part of the answer.
            let looks = certain.iter().map(|ask| ask.with_mode(Mode::Peek)).collect();
            (parts, at_once(&decider, by_slot(looks), deadline).await?)
        }
    };
    parts.extend(more);
    joined(parts)
}

/// Makes one attempt. With only one slot there is nothing to coordinate, and the script decides everything.
async fn attempt(
    decider: &Arc<Decider>,
    asking: &[KeyAsk],
    deadline: Instant,
) -> Result<Attempt, StoreError> {
    let groups = by_slot(asking.to_vec());
    if groups.len() < 2 {
        let parts = at_once(decider, groups, deadline).await?;
        let granted = parts.iter().all(|(_, decision)| decision.is_allowed());
        return Ok(if granted { Attempt::Granted(parts) } else { Attempt::Refused(parts, false) });
    }
    let peeks = groups.iter().map(|asks| asks.iter().map(|ask| ask.with_mode(Mode::Peek)).collect());
    let mut looks = at_once(decider, peeks.collect(), deadline).await?;
    if looks.iter().zip(&groups).any(|((_, look), asks)| is_refused(look, asks)) {
        let is_busy = looks.iter().any(|(_, look)| is_busy(look));
        return Ok(Attempt::Refused(looks, is_busy));
    }
    // The slot with the longest wait comes first, or else the slot with the fewest units left.
    let mut order: Vec<_> = groups.into_iter().zip(&looks).collect();
    order.retain(|(asks, _)| asks.iter().any(|ask| ask.mode.spends()));
    order.sort_by_key(|(_, (_, look))| {
        let waits = look.quotas().iter().filter(|status| !status.passed()).map(QuotaStatus::available_after);
        (std::cmp::Reverse(waits.max()), look.quotas().iter().map(QuotaStatus::remaining).min())
    });
    let order: Vec<Vec<KeyAsk>> = order.into_iter().map(|(asks, _)| asks).collect();
    let slots = order.len();
    let asked = ask_in_turn(order, |asks, before| {
        let marked_us = if before.len() + 1 < slots { micros(decider.client.deadline) } else { 0 };
        asks.iter_mut().for_each(|ask| ask.marked_us = Some(marked_us));
        decider.ask(asks.clone(), deadline)
    })
    .await;
    let (mut parts, refused) = match asked.ended {
        None => (asked.passed, false),
        Some(end) => {
            give_back(decider, &asked.passed);
            (vec![end?], true)
        }
    };
    let is_busy = refused && is_busy(&parts[0].1);
    // The status of the other slots is known from the peeks.
    looks.retain(|(asks, _)| !parts.iter().any(|(of, _)| of[0].lives_with(&asks[0])));
    parts.extend(looks);
    Ok(if refused { Attempt::Refused(parts, is_busy) } else { Attempt::Granted(parts) })
}

/// Gives up a turn in several slots: all of them take it back, or none does. If one refuses, the units that the others have taken back are
/// charged again.
async fn give_up(decider: &Arc<Decider>, asks: Vec<KeyAsk>, deadline: Instant) -> DecisionResult {
    let asked = ask_in_turn(by_slot(asks), |asks, _| decider.ask(asks.clone(), deadline)).await;
    let mut parts = asked.passed;
    if let Some(end) = asked.ended {
        let refused = end?;
        for (asks, _) in &parts {
            let again = asks.iter().map(|ask| ask.with_mode(Mode::Charge)).collect();
            drop(decider.ask(again, decider.client.deadline()));
        }
        parts.push(refused);
    }
    joined(parts)
}

/// The asks of each slot.
///
/// By hash tag rather than by slot: two tags in one slot could share a call, but two tags are rarely in
/// one of 16,384 slots.
fn by_slot(asks: Vec<KeyAsk>) -> Vec<Vec<KeyAsk>> {
    let mut groups: Vec<Vec<KeyAsk>> = Vec::new();
    for ask in asks {
        match groups.iter_mut().find(|group| group[0].lives_with(&ask)) {
            Some(group) => group.push(ask),
            None => groups.push(vec![ask]),
        }
    }
    groups
}

/// Calls for all groups at the same time.
async fn at_once(
    decider: &Arc<Decider>,
    groups: Vec<Vec<KeyAsk>>,
    deadline: Instant,
) -> Result<Vec<SlotPart>, StoreError> {
    let begun = groups.into_iter().map(|asks| (asks.clone(), decider.ask(asks, deadline)));
    ask_at_once(begun.collect()).await
}

/// The parts as one decision. Its moment comes from the slot that departs last, because the slots' clocks may differ a little.
fn joined(parts: Vec<SlotPart>) -> DecisionResult {
    // The statuses already have the indices of their asks.
    let places: Vec<u8> = (0..=u8::MAX).take(MAX_QUOTAS).collect();
    Decision::joined(parts.into_iter().map(|(_, decision)| (decision, &places)))
}

/// Spends a refused request under the policies that count refused requests, each by itself: as a spend if it still fits, as a
/// refused spend otherwise. No request waits for it.
fn count_rejected(decider: &Arc<Decider>, asking: &[KeyAsk]) {
    if by_slot(asking.to_vec()).len() < 2 {
        // The slot has already done this.
        return;
    }
    for ask in asking.iter().filter(|ask| ask.mode.spends() && ask.prepared.counts_rejected) {
        drop(decider.ask(vec![ask.with_mode(Mode::Spend)], decider.client.deadline()));
    }
}

/// Whether the decision refuses because of units that others may give back in a moment.
fn is_busy(decision: &Decision) -> bool {
    decision.quotas().iter().any(|status| !status.passed() && status.is_provisional())
}

/// Whether, by a peek, the request would be refused even after its longest waits.
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
/// A turn that others may depend on is returned; other spends are refunded by their receipts.
fn give_back(decider: &Arc<Decider>, spent: &[SlotPart]) {
    for (asks, decision) in spent {
        let refund = |ask: &KeyAsk| {
            let receipt = decision.receipt(usize::from(ask.at))?;
            let is_turn = ask.mode.longest_wait().is_some() && receipt.at_us() > decision.at_us();
            Some(ask.of(if is_turn { Mode::Return } else { Mode::Refund }, &receipt))
        };
        let asks: Vec<KeyAsk> = asks.iter().filter(|ask| ask.mode.spends()).filter_map(refund).collect();
        if !asks.is_empty() {
            drop(decider.ask(asks, decider.client.deadline()));
        }
    }
}

/// Charges, reads and resets a bucket of its own, to check that the server can run the script and keeps its
/// writes. No other instance uses the bucket's name, so none can interfere.
///
/// Three steps: a charge that empties the bucket, a peek that must find it empty, and a reset
/// that leaves nothing behind. A replica refuses the first, a server that loses writes fails the
/// second, and a user without the right to `EVALSHA` the third.
pub(super) fn probe(prefix: &str) -> Result<Probe, ConfigError> {
    let policy = Policy::gcra(format!("probe-{:016x}", random()), "1/10s").build()?;
    let prepared = Arc::new(Prepared::new(prefix, &policy, Inherit::Spent, 0, 0)?);
    let ask = KeyAsk::probe(key::name(prefix, policy.name(), key::PROBE), prepared);
    let mut probe = Probe::default();
    for (name, mode, outcome) in [
        (ScriptName::Text, Mode::Charge, Outcome::Allowed),
        (ScriptName::Text, Mode::Peek, Outcome::Denied),
        // By digest, like most calls, which needs another right.
        (ScriptName::Digest, Mode::Reset, Outcome::Allowed),
    ] {
        let asks = [ask.with_mode(mode)];
        let command = command(name, std::iter::once(&asks[..]), None, u64::MAX);
        probe.step(command, move |reply| {
            let disagreements = AtomicU64::new(0);
            let decision =
                ScriptReply::read(reply, &disagreements).and_then(|mut reply| reply.decision(&asks));
            expect(outcome, decision)
        });
    }
    Ok(probe)
}

fn expect(outcome: Outcome, said: Result<Decision, StoreError>) -> Result<(), String> {
    match said {
        Ok(decision) if decision.outcome() == outcome => Ok(()),
        Ok(_) => Err("the server does not find again what the script has written".to_owned()),
        Err(error) => Err(std::error::Error::source(&error).unwrap_or(&error).to_string()),
    }
}
