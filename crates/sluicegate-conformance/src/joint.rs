//! Random requests of several asks at once, about few keys: what a store reports of each of them is what memory reports.

use std::fmt::Write as _;
use std::time::Duration;

use sluicegate_core::limiter::check_all;

use super::Conformance;
use super::against_memory::{Behind, ComparedLimiters};
use super::steps::{TraceStep, random_policy};
use crate::random::Random;

impl Conformance {
    /// Random requests of two to four asks: charges, refunds, spends, reservations and looks of two keys under two policies, so that
    /// several asks are often about one bucket. The clock repeatedly steps back and forth, up to this far behind the latest time that it
    /// has shown. The store decides exactly as the memory store, and reports the same about each ask.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_joint_decisions_as_memory(&self, back: Duration, seed: u64, traces: usize) {
        let (memory, mut random) = (self.memory(), Random::new(seed));
        for _ in 0..traces {
            let policies = [(); 2].map(|()| random_policy(self.name(), &mut random));
            let mut pairs = policies.each_ref().map(|policy| self.pair(&memory, policy, String::new()));
            pairs[0].trace = format!("seed {seed}, {}\n  beside {}", policies[0], policies[1]);
            let mut behind = Behind::up_to(back);
            for _ in 0..40 {
                TraceStep::move_clock(&mut random, &policies[0], &self.clock, &mut pairs[0].trace);
                behind.step(&mut random, &self.clock, &mut pairs[0].trace);
                let asks = 2 + random.below(3);
                let steps: Vec<_> = (0..asks)
                    .map(|_| {
                        let beside = usize::from(random.below(3) == 0);
                        (beside, TraceStep::of_joint(&mut random, &policies[beside]))
                    })
                    .collect();
                for (beside, step) in &steps {
                    // Writing to a string cannot fail.
                    let _ = write!(pairs[0].trace, "\n    {step}{}", [" ", " beside"][*beside]);
                }
                let mut found = Vec::new();
                for store in 0..2 {
                    let checks =
                        steps.iter().map(|(beside, step)| step.check_of(&pairs[*beside].limiters[store]));
                    found.push(check_all(checks).await.expect("the store answers"));
                }
                ComparedLimiters::agrees(&pairs[0], &found.try_into().expect("there are two stores"));
            }
        }
    }
}
