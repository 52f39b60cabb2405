//! Random traces in which a store has to decide exactly as memory does.
//!
//! Every number of every quota is compared after every step, not only the outcome: a store that is
//! off by a microsecond in a wait would refuse clients that follow it. The panic's message has the trace
//! so far.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::{Clock, ManualClock, micros};
use sluicegate_core::limiter::{Inherit, Receipt};
use sluicegate_core::policy::{PolicyQuota, Quotas};
use sluicegate_core::store::{Ask, DecisionFuture, Mode};
use sluicegate_core::{Algorithm, Decision, Key, MemoryStore, Policy, Quota, RateLimiter};

use super::Conformance;
use super::steps::{TraceStep, is_small, random_policy};
use crate::random::Random;

impl Conformance {
    /// Random traces of every mode over several keys and policies, in which the store decides exactly as the memory
    /// store: outcome, delay, and every number of every quota. The clock repeatedly steps back and forth, up to this far behind the latest
    /// time that it has shown.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_decisions_as_memory(&self, back: Duration, seed: u64, traces: usize) {
        let (memory, mut random) = (self.memory(), Random::new(seed));
        for _ in 0..traces {
            let policy = random_policy(self.name(), &mut random);
            let mut pair = self.pair(&memory, &policy, format!("seed {seed}, {policy}"));
            let beside = random_policy(self.name(), &mut random);
            let beside = self.pair(&memory, &beside, format!("\n  beside {beside}"));
            pair.trace.push_str(&beside.trace);
            let mut behind = Behind::up_to(back);
            for _ in 0..40 {
                let step = TraceStep::random(&mut random, &policy, &self.clock, &mut pair.trace);
                behind.step(&mut random, &self.clock, &mut pair.trace);
                let found = if random.below(4) == 0 {
                    pair.trace.push_str(", and as much beside");
                    let both = pair.limiters.iter().zip(&beside.limiters);
                    let mut both = both.map(|(limiter, beside)| step.ask_both([limiter, beside]));
                    let [ours, reference] = [both.next(), both.next()].map(|ask| ask.expect("there are two"));
                    [ours.await, reference.await].map(|answer| answer.expect("the store answers"))
                } else {
                    pair.ask(&step).await
                };
                pair.agrees(&found);
            }
        }
    }

    /// Random traces in which spends are given back, in part or as a whole, soon or late, twice or never, and turns
    /// are given up: the store gives back exactly as the memory store does.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_refunds_as_memory(&self, seed: u64, traces: usize) {
        self.compare_refunds(seed, traces, false).await;
    }

    /// As [`same_refunds_as_memory`](Self::same_refunds_as_memory), but only under policies that keep an account of
    /// refunds: for stores that know more than memory under other policies.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_accounts_as_memory(&self, seed: u64, traces: usize) {
        self.compare_refunds(seed, traces, true).await;
    }

    async fn compare_refunds(&self, seed: u64, traces: usize, all_give_back: bool) {
        let (memory, mut random) = (self.memory(), Random::new(seed));
        for _ in 0..traces {
            let policy = random_policy(self.name(), &mut random);
            if all_give_back && !policy.quotas().iter().all(|quota| is_small(quota.rule())) {
                continue;
            }
            let is_plain = random.below(2) == 0 && !all_give_back;
            let policy = if is_plain { policy } else { policy.with_refunds() };
            let title = format!("seed {seed}, {policy}, gives back: {}", policy.gives_back());
            let mut pair = self.pair(&memory, &policy, title);
            let mut spent: Vec<(Key, [Receipt; 2])> = Vec::new();
            for _ in 0..60 {
                let mut step = TraceStep::random(&mut random, &policy, &self.clock, &mut pair.trace);
                if all_give_back {
                    step = step.without_turns();
                }
                let about = (random.below(2) == 0 && !spent.is_empty()).then(|| {
                    let index = usize::try_from(random.below(spent.len() as u64)).unwrap_or(0);
                    spent.swap_remove(index)
                });
                if all_give_back && about.is_none() && matches!(step.kind, 1 | 3) {
                    // Another request may spend the units that this step frees; a store may know that or not.
                    spent.retain(|(key, _)| *key != step.key);
                }
                let mut found = match about {
                    None => pair.ask(&step).await,
                    Some((key, mut receipts)) => {
                        let is_turn = receipts[0].at_us() > self.clock.now_us();
                        let found = pair.give_back(&key, &mut receipts, (step.cost, is_turn)).await;
                        if !is_turn && (receipts[0].cost() > 0 || !all_give_back) {
                            spent.push((key, receipts));
                        }
                        found
                    }
                };
                pair.agrees(&found);
                if let [Some(ours), Some(reference)] = found.each_mut().map(|found| found.take_receipt(0)) {
                    spent.push((step.key, [ours, reference]));
                }
            }
        }
    }

    /// Random traces with a replacement of the policy, in every way: keys continue under the new policy exactly as in
    /// memory.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_replacements_as_memory(&self, seed: u64, traces: usize) {
        let (memory, mut random) = (self.memory(), Random::new(seed));
        let ways = [
            Inherit::Spent,
            Inherit::Spent,
            Inherit::Reset,
            Inherit::AsIs,
            Inherit::Proportional,
            Inherit::Additive,
        ];
        for _ in 0..traces {
            let name = self.name();
            let [before, after] = [(); 2].map(|()| random_policy(name.clone(), &mut random));
            let how = random.pick(&ways);
            let mut pair =
                self.pair(&memory, &before, format!("seed {seed}, {before}, then {how:?} {after}"));
            for count in 0..30 {
                if count == 12 {
                    pair.trace.push_str("\n  replace");
                    for limiter in &pair.limiters {
                        limiter.replace(after.clone(), how).expect("the store can keep it");
                    }
                }
                let policy = if count < 12 { &before } else { &after };
                let now_us = self.clock.now_us();
                let step = TraceStep::random(&mut random, policy, &self.clock, &mut pair.trace);
                // A key that was at rest when it was handed over may not have been at rest a moment before.
                self.clock.set(Duration::from_micros(now_us.max(self.clock.now_us())));
                let found = pair.ask(&step).await;
                if is_debt_of_years(&found) {
                    break;
                }
                pair.agrees(&found);
            }
        }
    }

    /// Random traces of keys that bring quotas of their own, change them or bring none, and give spends back: the store decides exactly as
    /// the memory store, whichever of a few quotas a request brings. Left out are logs with a resolution, several logs, and logs that
    /// count refused requests, because each store decides how much longer than necessary an entry counts under another period. Also
    /// left out are policies of several quotas, some of which start with less than a burst, because each store decides when a full key is
    /// forgotten. The clock repeatedly steps back and forth, up to this far behind the latest time that it has shown.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_quotas_of_keys_as_memory(&self, back: Duration, seed: u64, traces: usize) {
        let (memory, mut random) = (self.memory(), Random::new(seed));
        for _ in 0..traces {
            let policy = random_policy(self.name(), &mut random);
            let is_plain = back.is_zero() && random.below(2) == 0;
            let policy = if is_plain { policy } else { policy.with_refunds() };
            let is = |of: fn(&PolicyQuota) -> bool| policy.quotas().iter().any(of);
            let logs = policy.quotas().iter().filter(|quota| quota.rule().log().is_some()).count();
            let are_several = policy.quotas().len() > 1;
            if is(|quota| matches!(quota.algorithm(), Algorithm::SlidingLogIn(_)))
                || logs > 0 && policy.counts_rejected()
                || logs > 1
                || is(|quota| quota.quota().start().is_some()) && are_several
            {
                continue;
            }
            let mut pair = self.pair(&memory, &policy, format!("seed {seed}, {policy}"));
            let others = (0..3).map(|_| other_quotas(&policy, &mut random));
            let [ours, reference] = pair.limiters.clone();
            let both =
                |quotas: &Quotas| reference.with_quotas(quotas).is_ok() && ours.with_quotas(quotas).is_ok();
            let others: Vec<_> = others.filter(both).collect();
            let are_small = |policy: &Policy| policy.quotas().iter().all(|quota| is_small(quota.rule()));
            let gives_back = back.is_zero()
                && others.iter().filter_map(|quotas| policy.under(quotas).ok()).all(|own| are_small(&own))
                && are_small(&policy);
            let mut spent: Vec<[Receipt; 2]> = Vec::new();
            let mut behind = Behind::up_to(back);
            for _ in 0..40 {
                let own = random.below(4).try_into().ok().and_then(|place: usize| others.get(place));
                let under = |limiter: &RateLimiter| match own {
                    Some(quotas) => limiter.with_quotas(quotas).expect("the store can keep them"),
                    None => limiter.clone(),
                };
                pair.limiters = [under(&ours), under(&reference)];
                let asked = own
                    .map_or_else(|| policy.clone(), |quotas| policy.under(quotas).expect("it is possible"));
                // Writing to a string cannot fail.
                let _ = write!(pair.trace, "\n  {asked}:");
                let mut step = TraceStep::random(&mut random, &asked, &self.clock, &mut pair.trace);
                behind.step(&mut random, &self.clock, &mut pair.trace);
                if gives_back {
                    step = step.without_turns();
                }
                let receipts = if gives_back && random.below(4) == 0 { spent.pop() } else { None };
                if receipts.is_none() && matches!(step.kind, 1 | 3) {
                    // Another request may spend the units that this step frees; a store may know that or not.
                    spent.clear();
                }
                let mut found = match receipts {
                    Some(mut receipts) => pair.give_back(&step.key, &mut receipts, (step.cost, false)).await,
                    None => pair.ask(&step).await,
                };
                if is_debt_of_years(&found) {
                    break;
                }
                pair.agrees(&found);
                if let [Some(ours), Some(reference)] = found.each_mut().map(|found| found.take_receipt(0)) {
                    spent.push([ours, reference]);
                }
            }
        }
    }

    pub(super) fn memory(&self) -> MemoryStore {
        let memory = MemoryStore::builder().clock(self.clock.clone()).log_entries(1 << 22).build();
        memory.expect("the settings are possible")
    }

    pub(super) fn pair(&self, memory: &MemoryStore, policy: &Policy, trace: String) -> ComparedLimiters {
        let reference = RateLimiter::new(memory, policy.clone()).expect("the store can keep it");
        ComparedLimiters { limiters: [self.open(policy), reference], trace }
    }
}

/// A clock that steps back behind the latest time that it has shown, and forth again.
pub(super) struct Behind {
    most: Duration,
    latest: Duration,
}

impl Behind {
    pub(super) fn up_to(most: Duration) -> Self {
        Self { most, latest: Duration::ZERO }
    }

    pub(super) fn step(&mut self, random: &mut Random, clock: &ManualClock, trace: &mut String) {
        let Self { most, latest } = self;
        if most.is_zero() {
            return;
        }
        let now = Duration::from_micros(clock.now_us());
        *latest = now.max(*latest);
        let behind = match random.below(12) {
            0 => *most,
            1 => Duration::from_micros(random.below(micros(*most))),
            2 => Duration::ZERO,
            _ => (*latest - now).min(*most),
        };
        clock.set(*latest - behind);
        // Writing to a string cannot fail.
        let _ = write!(trace, ", {behind:?} before the latest time");
    }
}

/// Whether the debt of a key is so large that stores may differ in precision.
pub(super) fn is_debt_of_years([_, reference]: &[Decision; 2]) -> bool {
    let years = Duration::from_secs(86_400 * 365 * 15);
    reference.quotas().iter().any(|status| status.reset_after() > years)
}

/// Quotas like those of a policy, with some larger, smaller, faster or slower.
pub(super) fn other_quotas(policy: &Policy, random: &mut Random) -> Quotas {
    let other = |quota: &PolicyQuota| {
        let quota = quota.quota();
        let limit = random.pick(&[quota.limit(), quota.limit() * 2, quota.limit().div_ceil(2), 7]);
        let period = random.pick(&[quota.period(), quota.period(), quota.period() * 2, quota.period() / 3]);
        let other = Quota::new(limit, Duration::from_micros(micros(period).max(1)));
        if quota.burst_size() == quota.limit() { other } else { other.burst(quota.burst_size()) }
    };
    Quotas::from(policy.quotas().iter().map(other).collect::<Vec<_>>())
}

/// A policy on the store under test and in memory, with the asks to both.
pub(super) struct ComparedLimiters {
    pub(super) limiters: [RateLimiter; 2],
    pub(super) trace: String,
}

impl ComparedLimiters {
    pub(super) async fn ask(&self, step: &TraceStep) -> [Decision; 2] {
        self.both(|limiter| step.ask(limiter)).await
    }

    /// Gives these units of a spend back, or gives up its turn.
    async fn give_back(
        &mut self,
        key: &Key,
        receipts: &mut [Receipt; 2],
        (units, is_turn): (u64, bool),
    ) -> [Decision; 2] {
        let what = if is_turn { "give up the turn of" } else { "give back" };
        // Writing to a string cannot fail.
        let _ = write!(self.trace, " .. no: {what} {units} of {key:?}");
        let mut found = Vec::new();
        for (limiter, receipt) in self.limiters.iter().zip(receipts) {
            let answer = match is_turn {
                true => give_up(limiter, key, receipt).await,
                false => limiter.refund(key, units).of(receipt).await,
            };
            found.push(answer.expect("the store answers"));
        }
        found.try_into().expect("there are two limiters")
    }

    pub(super) async fn both(&self, ask: impl Fn(&RateLimiter) -> DecisionFuture) -> [Decision; 2] {
        let [ours, reference] = &self.limiters;
        [ask(ours).await, ask(reference).await].map(|answer| answer.expect("the store answers"))
    }

    /// Whether both have decided the same.
    pub(super) fn agrees(&self, [ours, reference]: &[Decision; 2]) {
        assert_eq!(summary(ours), summary(reference), "{}", self.trace);
    }
}

/// Everything that two stores have to agree on.
pub(super) fn summary(decision: &Decision) -> String {
    let mut text = format!("{:?} after {:?}", decision.outcome(), decision.delay());
    for status in decision.quotas() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {status:?}");
    }
    for ask in 0..4 {
        if let Some(receipt) = decision.receipt(ask) {
            let after_us = receipt.at_us().saturating_sub(decision.at_us());
            let _ = write!(text, "\n  ask {ask} counts after {after_us} us");
        }
    }
    text
}

/// Gives up the turn of this receipt, as a waiting request does when it leaves.
fn give_up(limiter: &RateLimiter, key: &Key, turn: &Receipt) -> DecisionFuture {
    let opened = limiter.store().open(Arc::new(limiter.policy().as_ref().clone()), None).expect("it is open");
    limiter.store().decide(&[Ask::new(&opened, key.as_ref(), turn.cost(), Mode::Return).of(turn)])
}
