//! One key under quotas that take turns, beside an observer whose quota is too large to be used up: it sees each unit once.
//!
//! The rule is that of [`RateLimiter::with_quotas`]: units that were spent under one quota count under the next, looks and refusals
//! change nothing, and a change of quotas costs at most one part of a rule.

use proptest::prelude::*;
use sluicegate_core::algorithm::{Drain, Refill};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::{Algorithm, Decision, Outcome, Policy, Quota, RateLimiter};

use crate::support::{ALL, answer, is_queue, limiter, secs, store_for, us};

/// Units that a change of quotas may cost, and that the observer may see of one too many by rounding.
const PART: u64 = 1;

struct Turns {
    algorithm: Algorithm,
    clock: ManualClock,
    /// The policy's own, and two that the key brings.
    quotas: [RateLimiter; 3],
    observer: RateLimiter,
    /// The quota by which the key was last counted, and what is left of what it has spent.
    counted_by: usize,
    receipts: Vec<Receipt>,
}

impl Turns {
    fn used(&self) -> u64 {
        let seen = answer(self.observer.peek("k"));
        seen.capacity() - seen.remaining()
    }

    /// Time passes. The key drains by the quota that it was last counted by, and by no other.
    fn wait(&self, wait_us: u64) {
        let before = self.used();
        self.clock.advance(us(wait_us));
        let after = self.used();
        assert!(after <= before + PART, "{before} units became {after} in {wait_us} us");
        if drains_evenly(self.algorithm) {
            let quota = self.quotas[self.counted_by].policy().quotas()[0].quota();
            let drained = u128::from(wait_us) * u128::from(quota.limit()) / quota.period().as_micros();
            let left = u128::from(before).saturating_sub(drained);
            assert!(
                u128::from(after).abs_diff(left) <= 2,
                "{before} units became {after}, not {left}, by {quota}"
            );
        }
    }

    fn step(&mut self, which: usize, kind: u8, cost: u64) {
        let (before, limiter) = (self.used(), self.quotas[which].clone());
        let (spent, given_back) = match kind {
            0 => self.charge(&limiter, before, cost),
            1 => self.give_back(&limiter, cost),
            // In windows a turn that has not come leaves nothing until then.
            2 if drains_evenly(self.algorithm) => {
                (spent(&answer(limiter.check("k").cost(cost).reserve(secs(90)))), 0)
            }
            3 => {
                let _ = answer(limiter.peek("k").cost(cost));
                (0, 0)
            }
            _ => self.check(&limiter, before, cost),
        };
        if spent > 0 {
            self.counted_by = which;
        }
        let after = self.used();
        // What is given back may have drained already, or belong to a bucket whose quotas have changed since.
        let least = (before + spent).saturating_sub(given_back + PART);
        let most = before + spent + if spent > 0 { 2 * PART } else { 0 };
        let stays = spent > 0 || given_back > 0 || after == before;
        assert!(
            stays && (least..=most).contains(&after),
            "{before} units became {after}, with {spent} spent and {given_back} given back"
        );
    }

    fn check(&mut self, limiter: &RateLimiter, before: u64, cost: u64) -> (u64, u64) {
        let mut decision = answer(limiter.check("k").cost(cost));
        let capacity = decision.capacity();
        match decision.outcome() {
            Outcome::Allowed => assert!(before + cost <= capacity + PART, "{before} + {cost} of {capacity}"),
            Outcome::Impossible => assert!(cost > capacity),
            _ => assert!(before + cost + PART > capacity, "{before} + {cost} of {capacity} refused"),
        }
        self.receipts.extend(decision.take_receipt(0));
        (spent(&decision), 0)
    }

    fn charge(&self, limiter: &RateLimiter, before: u64, cost: u64) -> (u64, u64) {
        // A debt has an end, at ten times what is there at once.
        let most = limiter.policy().quotas()[0].quota().burst_size() * 10;
        let cost = cost.min(most.saturating_sub(before + 2 * PART));
        let _ = answer(limiter.charge("k", cost));
        (cost, 0)
    }

    fn give_back(&mut self, limiter: &RateLimiter, cost: u64) -> (u64, u64) {
        let Some(mut receipt) = self.receipts.pop() else { return (0, 0) };
        let cost = cost.min(receipt.cost());
        let _ = answer(limiter.refund("k", cost).of(&mut receipt));
        (0, cost)
    }
}

fn spent(decision: &Decision) -> u64 {
    decision.deciding().spent()
}

fn drains_evenly(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Gcra | Algorithm::TokenBucket(Refill::Greedy) | Algorithm::LeakyBucket(Drain::Meter)
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_quotas_take_turns_each_unit_counts_once(
        algorithm in prop::sample::select(ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)).collect::<Vec<_>>()),
        (limits, periods) in (prop::array::uniform3(1..300_u64), prop::array::uniform3(prop::sample::select(vec![1_u64, 7, 60, 3_600]))),
        steps in prop::collection::vec((0..3_usize, 0..9_u8, 0..40_u64, 0..30_u64), 1..60),
    ) {
        let (store, clock) = store_for(8, 1 << 16);
        // Windows of different lengths begin at different times, and logs count what lies within theirs.
        let period = |place: usize| secs(if drains_evenly(algorithm) { periods[place] } else { periods[0] });
        let quota = |place: usize| Quota::new(limits[place], period(place));
        let own = limiter(&store, "api", algorithm, quota(0));
        own.remember(Policy::with_refunds).unwrap();
        let [one, two] = [1, 2].map(|place| own.with_quotas(quota(place)).unwrap());
        let observer = own.with_quotas(Quota::new(4_000, period(0))).unwrap();
        let mut turns =
            Turns { algorithm, clock, quotas: [own, one, two], observer, counted_by: 0, receipts: Vec::new() };
        for (which, kind, wait, cost) in steps {
            // Half of the steps come at the instant of the one before.
            turns.wait(wait.saturating_sub(20) * periods[0] * 10_000);
            turns.step(which, kind, cost);
        }
    }
}
