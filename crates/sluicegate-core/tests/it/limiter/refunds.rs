//! Exact refunds: units drain in the order in which they came, and what has not drained comes back.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::limiter::Receipt;
use sluicegate_core::{Algorithm, Decision, Policy, Quota, RateLimiter};

use crate::algorithm::exact::exact;
use crate::support::{ALL, answer, is_queue, ms, secs, store, us};

fn keeping(algorithm: Algorithm, quota: Quota) -> (RateLimiter, ManualClock) {
    let (store, clock) = store();
    (Policy::builder("p", algorithm, quota).refunds().on(&store).expect("it fits"), clock)
}

fn spend(limiter: &RateLimiter, cost: u64) -> Receipt {
    receipt(answer(limiter.check("k").cost(cost)))
}

fn receipt(mut decision: Decision) -> Receipt {
    decision.take_receipt(0).expect("it is allowed")
}

fn remaining(limiter: &RateLimiter) -> u64 {
    answer(limiter.peek("k")).remaining()
}

fn give_back(limiter: &RateLimiter, receipt: &mut Receipt, cost: u64) {
    assert!(answer(limiter.refund("k", cost).of(receipt)).is_allowed());
}

/// It admitted 379 of 1,019 a minute.
#[test]
fn a_budget_that_is_estimated_and_settled_admits_what_is_used() {
    let (limiter, clock) = keeping(Algorithm::TokenBucket(Refill::Greedy), Quota::per_minute(1_000));
    let mut used = 0;
    let end = clock.now_us() + 20 * 60_000_000;
    while clock.now_us() < end {
        let mut estimated = answer(limiter.check("k").cost(261));
        match estimated.take_receipt(0) {
            Some(mut receipt) => {
                clock.advance(ms(500));
                give_back(&limiter, &mut receipt, 251);
                used += 10;
            }
            None => clock.advance(estimated.retry_after().expect("it is denied")),
        }
    }
    // A burst, and a thousand a minute for twenty minutes; an estimate may stand at the end.
    assert!((20_500..=21_000).contains(&used), "{used}");
}

/// Without the sum of what was given back since, this was over by nine tenths.
#[test]
fn what_was_given_back_before_it_has_not_drained_before_it() {
    let (limiter, clock) = keeping(Algorithm::Gcra, Quota::per_second(1).burst(10));
    let (mut nine, mut one) = (spend(&limiter, 9), spend(&limiter, 1));
    give_back(&limiter, &mut nine, 9);
    clock.advance(ms(900));
    let _ = spend(&limiter, 5);
    give_back(&limiter, &mut one, 1);
    clock.advance(ms(100));
    assert_eq!(remaining(&limiter), 5, "0.9 of the one had drained, and then a tenth of the five");
}

/// Without the birth, a receipt of a bucket that had been at rest gave units of the next one back.
#[test]
fn a_receipt_of_a_bucket_that_was_at_rest_gives_nothing_back() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (limiter, clock) = keeping(algorithm, Quota::per_second(10));
        let _ = spend(&limiter, 5);
        let mut old = spend(&limiter, 5);
        clock.advance(secs(3));
        let _ = spend(&limiter, 10);
        give_back(&limiter, &mut old, 5);
        assert_eq!(remaining(&limiter), 0, "{algorithm}");
        let _ = answer(limiter.reset("k"));
        let mut forgotten = spend(&limiter, 5);
        let _ = answer(limiter.reset("k"));
        let _ = spend(&limiter, 10);
        give_back(&limiter, &mut forgotten, 5);
        assert_eq!(remaining(&limiter), 0, "{algorithm}: reset");
    }
}

/// A charge of 50 that saturated after 5 gave 50 back.
#[test]
fn a_charge_gives_back_only_what_took_effect() {
    for keeps in [false, true] {
        for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
            let (store, _) = store();
            let policy = Policy::builder("p", algorithm, "10/min").debt_up_to(15);
            let policy = if keeps { policy.refunds() } else { policy };
            let limiter = policy.on(&store).expect("it fits");
            let _ = answer(limiter.charge("k", 10));
            let mut charged = receipt(answer(limiter.charge("k", 50)));
            assert_eq!(charged.cost(), 5, "{algorithm}");
            give_back(&limiter, &mut charged, 50);
            assert_eq!(remaining(&limiter), 0, "{algorithm}");
            assert_eq!((charged.cost(), answer(limiter.charge("k", 5)).quotas()[0].spent()), (0, 5));
        }
    }
}

#[test]
fn each_border_gives_the_oldest_units_back() {
    let (limiter, clock) =
        keeping(Algorithm::TokenBucket(Refill::AlignedInterval), Quota::per_minute(3).burst(10));
    let _ = spend(&limiter, 4);
    let mut five = spend(&limiter, 5);
    clock.advance(secs(60));
    // Three of the four are back; then the last of them and two of the five.
    assert_eq!(remaining(&limiter), 4);
    clock.advance(secs(60));
    assert_eq!(remaining(&limiter), 7);
    give_back(&limiter, &mut five, 5);
    assert_eq!(remaining(&limiter), 10, "three of the five were left");
}

#[test]
fn accounts_may_begin_while_receipts_are_out() {
    for algorithm in ALL.into_iter().filter(|algorithm| !is_queue(*algorithm)) {
        let (store, _) = store();
        let limiter = Policy::builder("p", algorithm, "10/min").on(&store).expect("it fits");
        let mut before = spend(&limiter, 4);
        limiter.remember(Policy::with_refunds).expect("it fits");
        assert_eq!(remaining(&limiter), 6, "{algorithm}");
        let mut after = spend(&limiter, 4);
        give_back(&limiter, &mut before, 4);
        give_back(&limiter, &mut after, 4);
        assert_eq!(remaining(&limiter), 10, "{algorithm}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(u64),
    Spend(u64),
    Charge(u64),
    /// So many units of one of the receipts.
    GiveBack(usize, u64),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![0..=3_u64, 0..=400_000_u64, 0..=3_000_000_u64].prop_map(Step::Advance),
        6 => (1..=9_u64).prop_map(Step::Spend),
        1 => (1..=9_u64).prop_map(Step::Charge),
        6 => (0..8_usize, 1..=9_u64).prop_map(|(which, units)| Step::GiveBack(which, units)),
        1 => Just(Step::Reset),
    ]
}

/// Spends with what was given back of them, in their order.
struct History {
    limiter: RateLimiter,
    clock: ManualClock,
    algorithm: Algorithm,
    quota: Quota,
    spends: Vec<(u64, u64, Receipt)>,
    /// Whether each receipt is exact to the unit: those of windows and logs that are aligned, and name their entry.
    is_equal: bool,
}

impl History {
    fn take(&mut self, step: Step) {
        match step {
            Step::Advance(span) => self.clock.advance(us(span)),
            Step::Spend(cost) => self.enter(answer(self.limiter.check("k").cost(cost))),
            Step::Charge(cost) => {
                // A debt outlasts the window that it was made in.
                self.is_equal &= self.algorithm != Algorithm::FixedWindow(Anchor::Epoch);
                self.enter(answer(self.limiter.charge("k", cost)));
            }
            Step::Reset => {
                let _ = answer(self.limiter.reset("k"));
                self.spends.clear();
            }
            Step::GiveBack(which, units) => {
                let count = self.spends.len();
                if let Some((_, used, receipt)) = self.spends.iter_mut().rev().nth(which % count.max(1)) {
                    *used -= units.min(*used);
                    let _ = answer(self.limiter.refund("k", units).of(receipt));
                }
            }
        }
        self.check(step);
    }

    fn enter(&mut self, mut decision: Decision) {
        if let Some(receipt) = decision.take_receipt(0) {
            self.spends.push((self.clock.now_us(), receipt.cost(), receipt));
        }
    }

    /// Never more is left than if what was given back had never been spent.
    fn check(&self, step: Step) {
        let mut model = exact(self.algorithm, self.quota);
        for (at, used, _) in self.spends.iter().filter(|(_, used, _)| *used > 0) {
            model.spend(*at, *used);
        }
        let (left, most) = (remaining(&self.limiter), model.remaining(self.clock.now_us()));
        assert!(left <= most, "{left} are left of {most} after {step:?}");
        assert!(!self.is_equal || left == most, "only {left} are left of {most} after {step:?}");
    }
}

#[test]
fn refunds_in_any_order_never_give_back_more_than_had_not_been_spent() {
    let aligned = [
        (Algorithm::Gcra, false),
        (Algorithm::TokenBucket(Refill::AlignedInterval), false),
        (Algorithm::FixedWindow(Anchor::Epoch), true),
        (Algorithm::SlidingCounter, true),
        (Algorithm::SlidingLog, true),
    ];
    for (algorithm, is_equal) in aligned {
        let period = prop::sample::select(vec![99_991_u64, 1_000_000, 3_000_000, 60_000_000]);
        let is_window = is_equal;
        let quota = (1..=9_u64, period, 1..=20_u64).prop_map(move |(limit, period, burst)| {
            let quota = Quota::new(limit, us(period));
            if is_window { quota } else { quota.burst(burst) }
        });
        let config = Config { failure_persistence: None, ..Config::default() };
        let trace = (quota, prop::collection::vec(step(), 1..50));
        let outcome = TestRunner::new(config).run(&trace, |(quota, steps)| {
            let (limiter, clock) = keeping(algorithm, quota);
            let mut history = History { limiter, clock, algorithm, quota, spends: Vec::new(), is_equal };
            steps.into_iter().for_each(|step| history.take(step));
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{algorithm}: {failure}");
        }
    }
}

/// One request at a time, each settled before the next, in a bucket that never runs dry: nothing is lost at all.
#[test]
fn settled_one_after_the_other_a_bucket_holds_exactly_what_was_used() {
    for (limit, period) in [(100, secs(1)), (1_000, secs(60)), (7, secs(1)), (999_983, secs(3_600))] {
        let quota = Quota::new(limit, period).burst(1_000);
        let (limiter, clock) = keeping(Algorithm::Gcra, quota);
        let (mut model, start) = (exact(Algorithm::Gcra, quota), clock.now_us());
        let _ = spend(&limiter, 400);
        model.spend(start, 400);
        let pause = Duration::from_micros(u64::try_from(period.as_micros()).expect("short") / limit / 3);
        for round in 1..=300_u64 {
            let (at, used) = (clock.now_us(), u64::from(round % 4 == 0));
            let mut estimated = spend(&limiter, 261);
            clock.advance(pause);
            give_back(&limiter, &mut estimated, 261 - used);
            model.spend(at, used);
            let now = clock.now_us();
            assert_eq!(remaining(&limiter), model.remaining(now), "{quota}, round {round}");
        }
    }
}
