//! Random traces in which a limiter is looked at: no look changes a later answer.

use std::fmt::Write as _;
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::Quotas;
use sluicegate_core::{Policy, RateLimiter};

use super::Conformance;
use super::against_memory::{ComparedLimiters, is_debt_of_years, other_quotas};
use super::steps::{TraceStep, random_policy};
use crate::random::Random;

const WAYS: [Inherit; 6] =
    [Inherit::Spent, Inherit::Spent, Inherit::Spent, Inherit::AsIs, Inherit::Proportional, Inherit::Additive];

impl Conformance {
    /// Random traces of two limiters with the same policies, of which one is looked at between the requests of both: by peeks and by
    /// refused checks, under the policy's quotas or under quotas that a key brings, before and after replacements. Both decide all
    /// requests alike. Left out are refusals that spend by design: under policies that count them, and of newcomers that start with less
    /// than a burst.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn looks_change_nothing(&self, seed: u64, traces: usize) {
        let mut random = Random::new(seed);
        for _ in 0..traces {
            let mut twins = Twins::new(self, seed, &mut random);
            for _ in 0..40 {
                if random.below(10) == 0 {
                    twins.replace(&mut random);
                }
                let now_us = self.clock.now_us();
                let step = TraceStep::random(&mut random, &twins.policy, &self.clock, &mut twins.pair.trace);
                // Units that were over when a policy was replaced would count again.
                self.clock.set(Duration::from_micros(now_us.max(self.clock.now_us())));
                while random.below(3) > 0 {
                    twins.look(&step, &mut random).await;
                }
                let found = twins.under(&mut random).ask(&step).await;
                if is_debt_of_years(&found) {
                    break;
                }
                twins.pair.agrees(&found);
            }
        }
    }
}

/// A limiter that is looked at, and one that is not.
struct Twins {
    pair: ComparedLimiters,
    policy: Policy,
    /// Quotas that keys bring; none if keys bring none.
    quotas: Vec<Quotas>,
    takes_quotas: bool,
    names: [String; 2],
}

impl Twins {
    fn new(suite: &Conformance, seed: u64, random: &mut Random) -> Self {
        let names = [suite.name(), suite.name()];
        let policies = alike(&names, random);
        let limiters = policies.each_ref().map(|policy| suite.open(policy));
        let [policy, _] = policies;
        let trace = format!("seed {seed}, {policy}");
        let pair = ComparedLimiters { limiters, trace };
        let mut twins = Self { pair, policy, quotas: Vec::new(), takes_quotas: random.below(2) == 0, names };
        twins.draw_quotas(random);
        twins
    }

    /// Draws quotas for keys under the policy in force. Both limiters support them from now on.
    fn draw_quotas(&mut self, random: &mut Random) {
        let several = if self.takes_quotas { 3 } else { 0 };
        self.quotas = (0..several).map(|_| other_quotas(&self.policy, random)).collect();
        let limiters = &self.pair.limiters;
        self.quotas.retain(|quotas| limiters.iter().all(|limiter| limiter.with_quotas(quotas).is_ok()));
    }

    fn replace(&mut self, random: &mut Random) {
        let how = random.pick(&WAYS);
        let policies = alike(&self.names, random);
        self.policy = policies[0].clone();
        // Writing to a string cannot fail.
        let _ = write!(self.pair.trace, "\n  replace by {}, {how}", self.policy);
        for (limiter, policy) in self.pair.limiters.iter().zip(policies) {
            limiter.replace(policy, how).expect("the store can keep it");
        }
        self.draw_quotas(random);
    }

    /// Looks at a key of the first limiter, and lets it be refused if it would be.
    async fn look(&mut self, step: &TraceStep, random: &mut Random) {
        let policy = self.pair.limiters[0].policy();
        let spends =
            policy.counts_rejected() || policy.quotas().iter().any(|quota| quota.quota().start().is_some());
        let looked = self.under(random).limiters[0].clone();
        let cost = random.pick(&[1, step.cost, policy.quotas()[0].rule().capacity()]);
        let _ = write!(self.pair.trace, "\n  look at {cost} of {:?} by {}", step.key, looked.policy());
        let look = looked.peek(&step.key).cost(cost).await.expect("the store answers");
        if !look.is_allowed() && !spends {
            let refused = looked.check(&step.key).cost(cost).await.expect("the store answers");
            assert!(!refused.is_allowed(), "{}", self.pair.trace);
        }
    }

    /// Both limiters, under the same quotas of a key or under those of the policy.
    fn under(&mut self, random: &mut Random) -> ComparedLimiters {
        let place = usize::try_from(random.below(4)).unwrap_or(0);
        let limiters = self.pair.limiters.each_ref().map(|limiter| match self.quotas.get(place) {
            Some(quotas) => limiter.with_quotas(quotas).expect("the store can keep them"),
            None => RateLimiter::clone(limiter),
        });
        ComparedLimiters { limiters, trace: String::new() }
    }
}

/// The same random policy by two names.
fn alike(names: &[String; 2], random: &mut Random) -> [Policy; 2] {
    let mut again = random.clone();
    [random_policy(names[0].clone(), random), random_policy(names[1].clone(), &mut again)]
}
