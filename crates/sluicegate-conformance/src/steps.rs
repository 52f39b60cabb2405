//! Random asks of random policies.
//!
//! The choices lean towards the edges: limits of 1 and of a million, periods of 333 microseconds and
//! of 30 days in one policy, costs of 0, at the capacity and just above it, and a clock that stops,
//! creeps, leaps, or steps back a little.

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use sluicegate_core::algorithm::{Drain, Rule};
use sluicegate_core::clock::{Clock, ManualClock, micros};
use sluicegate_core::limiter::{Check, check_all};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::{DecisionFuture, Mode};
use sluicegate_core::{Algorithm, Key, Policy, Quota, RateLimiter};

use super::ALGORITHMS;
use crate::random::Random;

pub(super) fn random_policy(name: String, random: &mut Random) -> Policy {
    let policy = random_builder(name, random).build().expect("all of these quotas can be kept");
    if policy.algorithm() != Algorithm::SlidingCounter || random.below(2) == 0 {
        return policy;
    }
    // The policy as its only part, which rounds differently; a policy that counts refused requests has no parts.
    let parts = policy.split([(policy.name().to_owned(), 1)]);
    parts.ok().and_then(|mut parts| parts.pop()).unwrap_or(policy)
}

pub(super) fn random_builder(name: String, random: &mut Random) -> PolicyBuilder {
    let algorithm = random.pick(&ALGORITHMS);
    let mut builder = Policy::builder(name, algorithm, random_quota(random, algorithm));
    // Up to four quotas with unrelated periods, half of them by any algorithm.
    let more = if algorithm.is_queue() { 0 } else { random.pick(&[0, 0, 0, 1, 1, 2, 3]) };
    for name in ["second", "third", "fourth"].into_iter().take(more) {
        let any = random.pick(&ALGORITHMS);
        let own = random.pick(&[algorithm, any]);
        let own = if own.is_queue() { algorithm } else { own };
        builder = builder.and(random_quota(random, own).counted_by(own)).named(name);
    }
    if random.below(4) == 0 {
        builder = builder.count_rejected();
    }
    builder
}

/// Whether memory's account of refunds never overflows, and no turns are reserved unless requested.
pub(super) fn is_small(rule: &Rule) -> bool {
    !rule.is_queue() && rule.capacity().saturating_mul(rule.per_unit()) < 1 << 38
}

fn random_quota(random: &mut Random, algorithm: Algorithm) -> Quota {
    let limit = random.pick(&[1, 2, 3, 7, 10, 97, 1_000, 7_919, 999_983, 1_000_000]);
    // The stores' room for logs bounds their limits.
    let limit = if algorithm == Algorithm::SlidingLog { limit.min(2_000) } else { limit };
    let period_us = match random.below(4) {
        0 => random.pick(&[333, 1_001, 13_337, 999_983]),
        _ => random.pick(&[1, 7, 1_000, 10_000, 60_000, 86_400_000, 2_592_000_000]) * 1_000,
    };
    let quota = Quota::new(limit, Duration::from_micros(period_us));
    let has_burst = matches!(
        algorithm,
        Algorithm::Gcra | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(Drain::Meter | Drain::Queue)
    );
    let small = limit.div_ceil(1 + random.below(4));
    let quota = match random.below(3) {
        0 if has_burst => quota.burst(small),
        1 if has_burst && limit < 1_000 => quota.burst(limit * 3),
        _ => quota,
    };
    if algorithm.can_start_short() && random.below(3) == 0 {
        return quota.starting_with(random.below(quota.burst_size() + 1));
    }
    quota
}

fn random_quota_of(random: &mut Random, policy: &Policy) -> Quota {
    let place = usize::try_from(random.below(policy.quotas().len() as u64)).unwrap_or(0);
    policy.quotas()[place].quota()
}

/// The next ask.
pub(super) struct TraceStep {
    pub(super) key: Key,
    pub(super) cost: u64,
    longest: Duration,
    pub(super) kind: u64,
}

impl TraceStep {
    pub(super) fn random(
        random: &mut Random,
        policy: &Policy,
        clock: &ManualClock,
        trace: &mut String,
    ) -> Self {
        let quota = Self::move_clock(random, policy, clock, trace);
        let step = Self::drawn(random, policy, quota);
        // Writing to a string cannot fail.
        let _ = write!(trace, ": {step}");
        step
    }

    /// Moves the clock, mostly by the times of one of the quotas, which it returns.
    pub(super) fn move_clock(
        random: &mut Random,
        policy: &Policy,
        clock: &ManualClock,
        trace: &mut String,
    ) -> Quota {
        let quota = random_quota_of(random, policy);
        let period_us = micros(quota.period());
        let now_us = clock.now_us();
        let moved_us = match random.below(8) {
            0..=2 => now_us,
            3 => now_us + random.below(1_000),
            4 => now_us + random.below(period_us / quota.limit().max(1) + 2),
            5 => now_us + random.below(period_us.saturating_mul(3)),
            6 => now_us + random.below(period_us),
            _ => now_us - random.below(500_000.min(period_us)),
        };
        clock.set(Duration::from_micros(moved_us));
        // Writing to a string cannot fail.
        let _ = write!(trace, "\n  {:+} us", i128::from(moved_us) - i128::from(now_us));
        quota
    }

    fn drawn(random: &mut Random, policy: &Policy, quota: Quota) -> Self {
        let capacity = policy.quotas().iter().map(|quota| quota.rule().capacity()).min().unwrap_or(1);
        let cost = match random.below(14) {
            0 | 1 => random.below(capacity) + 1,
            2 | 3 => capacity,
            4 | 5 => capacity + random.below(3),
            6 => 0,
            _ => 1,
        };
        Self {
            key: Key::from(random.below(2)),
            cost,
            longest: Duration::from_micros(random.below(micros(quota.period()).saturating_mul(2))),
            kind: random.below(12),
        }
    }

    /// An ask of a request with several, a few of them with a cost that no quota has room for.
    pub(super) fn of_joint(random: &mut Random, policy: &Policy) -> Self {
        let quota = random_quota_of(random, policy);
        let step = Self::drawn(random, policy, quota);
        let cost = if random.below(24) == 0 { u32::MAX.into() } else { step.cost };
        Self { cost, ..step }
    }

    /// The step for receipts: the memory store counts outstanding turns across all keys, and a reset does not clear them.
    pub(super) fn without_turns(self) -> Self {
        let kind = if matches!(self.kind, 3..=5) { 6 } else { self.kind };
        Self { key: Key::from(0_u64), kind, ..self }
    }

    pub(super) fn ask(&self, limiter: &RateLimiter) -> DecisionFuture {
        match self.kind {
            1 => limiter.refund(&self.key, self.cost).start(),
            2 => limiter.charge(&self.key, self.cost).start(),
            3 => limiter.reset(&self.key).start(),
            _ => self.check(limiter, self.cost).start(),
        }
    }

    /// A check or a peek of a limiter.
    fn check<'a>(&'a self, limiter: &'a RateLimiter, cost: u64) -> Check<'a, &'a Key> {
        let check = limiter.check(&self.key).cost(cost);
        match self.kind {
            0 => check.mode(Mode::Peek),
            4 | 5 => check.reserve(self.longest),
            6 => check.up_to(cost),
            _ => check,
        }
    }

    /// The step as one ask of several.
    pub(super) fn check_of<'a>(&'a self, limiter: &'a RateLimiter) -> Check<'a, &'a Key> {
        let check = self.check(limiter, self.cost);
        match self.kind {
            1 => check.mode(Mode::Refund),
            2 => check.mode(Mode::Charge),
            _ => check,
        }
    }

    /// Asks two limiters at once, if it spends.
    pub(super) fn ask_both(&self, limiters: [&RateLimiter; 2]) -> DecisionFuture {
        if self.kind <= 3 {
            return self.ask(limiters[0]);
        }
        check_all(limiters.map(|limiter| {
            let capacity = limiter.policy().quotas().iter().map(|quota| quota.rule().capacity()).min();
            self.check(limiter, self.cost.min(capacity.unwrap_or(1)))
        }))
    }
}

impl fmt::Display for TraceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, cost, longest, kind } = self;
        match kind {
            0 => write!(f, "peek {cost} of {key:?}"),
            1 => write!(f, "refund {cost} of {key:?}"),
            2 => write!(f, "charge {cost} of {key:?}"),
            3 => write!(f, "reset {key:?}"),
            4 | 5 => write!(f, "reserve {cost} of {key:?} within {longest:?}"),
            6 => write!(f, "take up to {cost} of {key:?}"),
            _ => write!(f, "check {cost} of {key:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these was once decided differently by one of two stores. The count of policies is that of the comparison on Redis.
    #[test]
    fn the_policies_of_traces_are_of_the_kinds_that_stores_once_disagreed_about() {
        let mut policies = Vec::new();
        for seed in 1..=20 {
            let mut random = Random::new(seed);
            policies.extend((0..15).map(|_| random_policy("drawn".to_owned(), &mut random)));
        }
        let is_far_apart = |policy: &Policy| {
            let periods = || policy.quotas().iter().map(|quota| quota.quota().period());
            let (shortest, longest) =
                (periods().min().unwrap_or_default(), periods().max().unwrap_or_default());
            longest > shortest * 1_000_000
        };
        let first = |policy: &Policy, algorithm: Algorithm| policy.quotas()[0].algorithm() == algorithm;
        let count = |is: &dyn Fn(&Policy) -> bool| policies.iter().filter(|policy| is(policy)).count();
        let log = |policy: &Policy| first(policy, Algorithm::SlidingLog) && is_far_apart(policy);
        let bucket = |policy: &Policy| {
            first(policy, Algorithm::Gcra)
                && policy.quotas().iter().any(|quota| quota.quota().burst_size() == 1)
        };
        let window = |policy: &Policy| {
            matches!(policy.quotas()[0].algorithm(), Algorithm::FixedWindow(_))
                && policy.quotas()[0].quota().period() < Duration::from_millis(20)
        };
        let mixed = |policy: &Policy| {
            policy.quotas().iter().any(|quota| quota.algorithm() != policy.algorithm())
                && is_far_apart(policy)
        };
        let counts = [count(&is_far_apart), count(&log), count(&bucket), count(&window), count(&mixed)];
        assert!(counts.iter().all(|count| *count >= 3), "{counts:?} of {}", policies.len());
        let starts = |policy: &Policy| policy.quotas().iter().any(|quota| quota.quota().start().is_some());
        assert!(
            count(&starts) > 20 && count(&|policy| policy.quotas().len() == 4) > 20,
            "of {}",
            policies.len()
        );
    }
}
