//! Random traces with leases, in which a store has to decide exactly as memory does.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::key::Key;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::store::{Ask, Mode, PreparedPolicy, Store};
use sluicegate_core::{Decision, Policy};

use super::Conformance;
use super::against_memory::summary;
use super::steps::{is_small, random_builder};
use crate::random::Random;

impl Conformance {
    /// Random traces in which units are leased, spent after leases, given back and given up: the store leases as much as the
    /// memory store, its receipts are equal for each unit, and all other decisions are equal, too.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_leases_as_memory(&self, seed: u64, traces: usize) {
        let (memory, mut random) = (self.memory(), Random::new(seed));
        let memory: Arc<dyn Store> = (&memory).into();
        for _ in 0..traces {
            let policy = random_builder(self.name(), &mut random).build().expect("it is possible");
            if !policy.quotas().iter().all(|quota| is_small(quota.rule()) && quota.rule().can_lease()) {
                continue;
            }
            let policy = if random.below(3) > 0 { policy.with_refunds() } else { policy };
            let mut lessee = Lessee::new(self, [&self.store, &memory], policy, seed);
            for _ in 0..60 {
                lessee.step(&mut random).await;
            }
        }
    }
}

/// An instance that leases the same units of a key from two stores.
struct Lessee<'a> {
    suite: &'a Conformance,
    stores: [&'a Arc<dyn Store>; 2],
    opened: [PreparedPolicy; 2],
    key: Key,
    /// The units that were spent or leased, by both stores.
    spent: Vec<[Receipt; 2]>,
    trace: String,
}

impl<'a> Lessee<'a> {
    fn new(suite: &'a Conformance, stores: [&'a Arc<dyn Store>; 2], policy: Policy, seed: u64) -> Self {
        let trace = format!("seed {seed}, {policy}, gives back: {}", policy.gives_back());
        let policy = Arc::new(policy);
        let opened =
            stores.map(|store| store.open(Arc::clone(&policy), None).expect("the store can keep it"));
        Self { suite, stores, opened, key: Key::from(1_u64), spent: Vec::new(), trace }
    }

    async fn step(&mut self, random: &mut Random) {
        let rule = *self.opened[0].policy().quotas()[0].rule();
        let (capacity, refill_us) = (rule.capacity(), rule.longest_spend_us());
        let moved_us = match random.below(6) {
            0 => random.below(refill_us / capacity.max(1) * 2 + 2),
            1 => random.below(refill_us / 4 + 1),
            2 => random.below(refill_us / capacity.max(1) + 1),
            3 if random.below(8) == 0 => random.below(refill_us.saturating_mul(2)),
            _ => 0,
        };
        self.suite.clock.advance(Duration::from_micros(moved_us));
        let some = |random: &mut Random| random.below(capacity.div_ceil(3)) + 1;
        let (cost, units) = (some(random), some(random).saturating_mul(1 + random.below(4)));
        let asked: &[(u64, Mode)] = match random.below(12) {
            0..=2 => &[(cost, Mode::Spend)],
            3 => &[(cost, Mode::Spend), (units, Mode::Lease)],
            4 => &[(units, Mode::Lease), (cost, Mode::Spend), (units, Mode::Lease)],
            5 => &[(units, Mode::Lease)],
            6 => &[(units, Mode::Lease), (cost, Mode::Refund)],
            7 if random.below(4) == 0 => &[(units, Mode::Lease), (1, Mode::Reset)],
            8 if random.below(3) == 0 => &[(cost, Mode::Charge), (units, Mode::Lease)],
            // Without an account, a store may know more than memory does about spends.
            _ if !self.spent.is_empty() && self.opened[0].policy().gives_back() => {
                return self.give_back(cost, random).await;
            }
            _ => &[(cost, Mode::Peek)],
        };
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.trace, "\n  +{moved_us} us: {asked:?}");
        if asked.iter().any(|(_, mode)| matches!(mode, Mode::Reset | Mode::Refund)) {
            // Another request may spend the units that this step frees; a store may know that or not.
            self.spent.clear();
        }
        let answers = self.both(asked, None).await;
        self.keep(answers, asked.len());
    }

    /// Gives `cost` units of one spend back, and no more units of it afterwards.
    async fn give_back(&mut self, cost: u64, random: &mut Random) {
        let place = usize::try_from(random.below(self.spent.len() as u64)).unwrap_or(0);
        let receipts = self.spent.swap_remove(place);
        let _ = write!(self.trace, "\n  give back {cost} of {}", receipts[0].cost());
        let _ = self.both(&[(cost, Mode::Refund)], Some(&receipts)).await;
        let _ = self.both(&[(1, Mode::Peek)], None).await;
    }

    async fn both(&self, asked: &[(u64, Mode)], of: Option<&[Receipt; 2]>) -> [Decision; 2] {
        let answer = |side: usize| {
            let ask = |(cost, mode): &(u64, Mode)| {
                let ask = Ask::new(&self.opened[side], self.key.as_ref(), *cost, *mode);
                of.map_or(ask, |receipts| ask.of(&receipts[side]))
            };
            let asks: Vec<Ask<'_>> = asked.iter().map(ask).collect();
            self.stores[side].decide(&asks)
        };
        let answers = [answer(0).await, answer(1).await].map(|answer| answer.expect("the store answers"));
        assert_eq!(summary(&answers[0]), summary(&answers[1]), "{}", self.trace);
        answers
    }

    fn keep(&mut self, mut answers: [Decision; 2], asks: usize) {
        for place in 0..asks {
            let receipts = answers.each_mut().map(|answer| answer.take_receipt(place));
            let Some(ours) = receipts[0].as_ref() else { continue };
            let now_us = self.suite.clock.now_us();
            assert_eq!(ours.at_us(), now_us, "{}", self.trace);
            let [ours, reference] = receipts.each_ref().map(|receipt| {
                let policy = self.opened[0].policy();
                let receipt = receipt.as_ref().expect("both have spent");
                [0, 1, receipt.cost() / 2].map(|behind| receipt.lasts(policy, behind))
            });
            // Only stores that keep an account can trace a spend.
            let is_lease = receipts.iter().flatten().all(|receipt| receipt.trace(0).is_some());
            assert!(!is_lease || ours == reference, "{ours:?}, {reference:?}: {}", self.trace);
            if let [Some(ours), Some(reference)] = receipts {
                self.spent.push([ours, reference]);
            }
        }
    }
}
