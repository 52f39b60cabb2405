//! Random traces with suspended keys, in which a store has to decide exactly as memory does.

use std::fmt::Write as _;
use std::time::Duration;

use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Policy, RateLimiter};

use super::Conformance;
use super::against_memory::summary;
use super::steps::{TraceStep, random_builder};
use crate::random::Random;

impl Conformance {
    /// Random traces under policies that suspend keys, with suspensions and releases by hand and replacements: the store
    /// suspends a key at the same refusal as the memory store, and for the same time.
    ///
    /// # Panics
    /// At the first difference, with the trace that led to it.
    pub async fn same_suspensions_as_memory(&self, seed: u64, traces: usize) {
        let (memory, mut random) = (self.memory(), Random::new(seed));
        for _ in 0..traces {
            let builder = random_builder(self.name(), &mut random);
            let [before, after] = [(); 2].map(|()| suspending(builder.clone(), &mut random));
            let mut pair = self.pair(&memory, &before, format!("seed {seed}, {before}"));
            for count in 0..80 {
                if count == 40 {
                    let how = random.pick(&[Inherit::Spent, Inherit::Reset]);
                    // Writing to a string cannot fail.
                    let _ = write!(pair.trace, "\n  replace, {how:?}: {:?}", after.suspension());
                    for limiter in &pair.limiters {
                        limiter.replace(after.clone(), how).expect("the store can keep it");
                    }
                }
                let now_us = self.clock.now_us();
                let step = TraceStep::random(&mut random, &before, &self.clock, &mut pair.trace);
                // When the clock is set back, a store may or may not have forgotten a lapsed refusal.
                self.clock.set(Duration::from_micros(now_us.max(self.clock.now_us())));
                match random.below(20) {
                    0 => {
                        let lasts = Duration::from_micros(random.below(period_us(&before)));
                        let _ = write!(pair.trace, " .. no: suspend {:?} for {lasts:?}", step.key);
                        let change = |limiter: &RateLimiter| limiter.suspensions().suspend(&step.key, lasts);
                        pair.agrees(&pair.both(change).await);
                    }
                    1 => {
                        let _ = write!(pair.trace, " .. no: release {:?}", step.key);
                        pair.agrees(&pair.both(|limiter| limiter.suspensions().release(&step.key)).await);
                    }
                    _ => {
                        let found = pair.ask(&step).await;
                        let _ = write!(pair.trace, ": {}", summary(&found[1]));
                        pair.agrees(&found);
                    }
                }
            }
        }
    }
}

/// The policy with a suspension that is likely to begin, to end and to be remembered.
fn suspending(builder: PolicyBuilder, random: &mut Random) -> Policy {
    let period = Duration::from_micros(period_us(&builder.clone().build().expect("the policy is possible")));
    let lasts = period * u32::from(random.pick(&[1_u8, 3]));
    let up_to = lasts * u32::from(random.pick(&[1_u8, 4, 9]));
    let remembers = lasts * u32::from(random.pick(&[1_u8, 3, 20]));
    let builder =
        builder.suspend(random.pick(&[1, 2, 3, 7]), period * u32::from(random.pick(&[1_u8, 2, 5])), lasts);
    builder.up_to(up_to).remember(remembers).build().expect("the suspension is possible")
}

fn period_us(policy: &Policy) -> u64 {
    // No key is suspended for less than a millisecond.
    u64::try_from(policy.quotas()[0].quota().period().as_micros()).unwrap_or(u64::MAX).max(1_000)
}
