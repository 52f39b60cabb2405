//! Turns ahead of time: whoever waits is admitted later, by the same definition and in the order of arrival.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::Anchor;
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::store::Mode;
use sluicegate_core::{Algorithm, Decision, Outcome, Policy, Quota, RateLimiter};

use crate::algorithm::exact::promised;
use crate::support::{ALL, answer, is_queue, limiter, secs, store, us};

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(u64),
    Reserve { cost: u64, longest: u64 },
    Spend(u64),
    GiveBack,
}

fn step(may_give_back: bool) -> impl Strategy<Value = Step> {
    let longest = prop_oneof![2 => Just(u64::MAX), 1 => 0..=3_000_000_u64];
    prop_oneof![
        3 => prop_oneof![0..=3_u64, 0..=400_000_u64, 0..=5_000_000_u64].prop_map(Step::Advance),
        6 => (1..=4_u64, longest).prop_map(|(cost, longest)| Step::Reserve { cost, longest }),
        2 => (1..=3_u64).prop_map(Step::Spend),
        if may_give_back { 3 } else { 0 } => Just(Step::GiveBack),
    ]
}

fn quotas(algorithm: Algorithm) -> impl Strategy<Value = Vec<Quota>> {
    let period = prop::sample::select(vec![1_000_u64, 99_991, 1_000_000, 3_000_000, 60_000_000]);
    let one = (1..=9_u64, period, 1..=9_u64).prop_map(move |(limit, period, burst)| {
        let quota = Quota::new(limit, us(period));
        let is_window = matches!(
            algorithm,
            Algorithm::FixedWindow(_)
                | Algorithm::SlidingCounter
                | Algorithm::SlidingLog
                | Algorithm::SlidingLogIn(_)
        );
        if is_window { quota } else { quota.burst(burst) }
    });
    prop::collection::vec(one, 1..=if is_queue(algorithm) { 1 } else { 2 })
}

fn by_the_definition(may_give_back: bool) {
    for algorithm in ALL {
        let config = Config { failure_persistence: None, ..Config::default() };
        let trace = (quotas(algorithm), prop::collection::vec(step(may_give_back), 1..60));
        let outcome = TestRunner::new(config).run(&trace, |(quotas, steps)| {
            let mut line = Line::new(algorithm, &quotas);
            steps.into_iter().for_each(|step| line.take(step));
            line.holds();
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{algorithm}: {failure}");
        }
    }
}

#[test]
fn reserved_turns_keep_the_definition_and_the_order_of_arrival() {
    by_the_definition(false);
}

#[test]
fn turns_that_are_given_back_keep_the_definition() {
    by_the_definition(true);
}

struct Line {
    algorithm: Algorithm,
    quotas: Vec<Quota>,
    clock: ManualClock,
    limiter: RateLimiter,
    /// When, how many units, and whether it was a reservation: in the order of arrival.
    admitted: Vec<(u64, u64, bool)>,
}

impl Line {
    fn new(algorithm: Algorithm, quotas: &[Quota]) -> Self {
        let (store, clock) = store();
        let mut policy = Policy::builder("line", algorithm, quotas[0]);
        for (index, quota) in quotas.iter().enumerate().skip(1) {
            policy = policy.and(*quota).named(format!("q{index}"));
        }
        let limiter = policy.on(&store).expect("it fits");
        Self { algorithm, quotas: quotas.to_vec(), clock, limiter, admitted: Vec::new() }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Advance(span) => self.clock.advance(us(span)),
            Step::Spend(cost) => {
                let decision = answer(self.limiter.check("k").cost(cost));
                self.admit(&decision, cost, false);
            }
            Step::Reserve { cost, longest } => {
                let ask = |line: &Self| answer(line.limiter.check("k").cost(cost).reserve(us(longest)));
                let mut decision = ask(self);
                if let Some(wait) = decision.retry_after() {
                    // A refused reservation says from when on it is granted, to the microsecond.
                    assert!(!wait.is_zero());
                    self.clock.advance(wait - us(1));
                    assert_eq!(ask(self).outcome(), Outcome::Denied, "{decision:?}");
                    self.clock.advance(us(1));
                    decision = ask(self);
                    assert!(decision.is_allowed(), "{decision:?}");
                }
                assert!(decision.delay() <= us(longest));
                self.admit(&decision, cost, true);
            }
            Step::GiveBack => {
                // Only who is last in line, and is still waiting.
                let now = self.clock.now_us();
                if let Some((_, cost, _)) = self.admitted.pop_if(|(at, _, reserved)| *reserved && *at > now) {
                    let _ = answer(self.limiter.refund("k", cost));
                }
            }
        }
    }

    fn admit(&mut self, decision: &Decision, cost: u64, reserved: bool) {
        if decision.is_allowed() {
            let delay = u64::try_from(decision.delay().as_micros()).expect("a delay fits");
            self.admitted.push((self.clock.now_us() + delay, cost, reserved));
        }
    }

    fn holds(mut self) {
        for (index, &(at, cost, reserved)) in self.admitted.iter().enumerate() {
            let overtaken =
                self.admitted[..index].iter().find(|(earlier, same, _)| *same == cost && *earlier > at);
            assert!(!reserved || overtaken.is_none(), "{at} goes before {overtaken:?}");
        }
        // A queue defines who may enter it, and when who is in it may go on; `model.rs` checks its delays.
        if is_queue(self.algorithm) {
            return;
        }
        self.admitted.sort_by_key(|(at, ..)| *at);
        for quota in &self.quotas {
            let mut model = promised(self.algorithm, *quota);
            for &(at, cost, _) in &self.admitted {
                assert!(model.passes(at, cost), "{cost} at {at} is above {quota} in {:?}", self.admitted);
                model.spend(at, cost);
            }
        }
    }
}

/// A log once stayed closed until a turn that nobody waited for any more, and named a wait that was too long.
#[test]
fn turns_given_back_leave_a_log_as_it_was_before_them() {
    let (store, _) = store();
    let limiter = limiter(&store, "turns", Algorithm::SlidingLog, Quota::per_minute(3));
    let _ = answer(limiter.check("k").cost(2));
    for turn in [60, 120] {
        assert_eq!(answer(limiter.check("k").cost(3).reserve(secs(3_600))).delay(), secs(turn));
    }
    let _ = answer(limiter.refund("k", 3));
    let refunded = answer(limiter.refund("k", 3));
    assert_eq!((refunded.remaining(), refunded.reset_after()), (1, secs(60)));
    assert_eq!(answer(limiter.peek("k").cost(3)).retry_after(), Some(secs(60)));
}

/// Where a window's units are worth less than a microsecond each, the turn is two windows away, and the counter then
/// knew nothing of the first.
#[test]
fn a_turn_given_back_two_windows_ahead_does_not_empty_the_counter() {
    let (store, _) = store();
    let limiter = limiter(&store, "turns", Algorithm::SlidingCounter, Quota::new(2_000, us(1_000)));
    let _ = answer(limiter.check("k").cost(2_000));
    let turn = answer(limiter.check("k").cost(2_000).reserve(secs(1)));
    assert_eq!(turn.delay(), us(2_000));
    let _ = answer(limiter.refund("k", 2_000));
    assert_eq!(answer(limiter.check("k")).outcome(), Outcome::Denied);
}

#[test]
fn a_waiting_policy_reserves_in_all_its_quotas_for_the_last_turn() {
    let (store, clock) = store();
    let policy =
        Policy::gcra("two", "1/s burst 1").and("3/min").wait_up_to(secs(60)).on(&store).expect("it fits");
    let delays: Vec<_> = (0..5).map(|_| answer(policy.check("k")).delay().as_secs()).collect();
    // Three a minute from rest, a second apart; then one in twenty seconds each.
    assert_eq!(delays, [0, 1, 2, 20, 40]);
    clock.advance(secs(41));
    let spent = answer(policy.check("k").mode(Mode::Spend));
    assert_eq!(spent.retry_after(), Some(secs(19)));
}

#[test]
fn a_waiting_window_serves_its_line_window_by_window() {
    let (store, _) = store();
    let policy = Policy::builder("line", Algorithm::FixedWindow(Anchor::Epoch), "2/s");
    let policy = policy.wait_up_to(secs(10)).on(&store).expect("it fits");
    let delays: Vec<_> = (0..7).map(|_| answer(policy.check("k")).delay().as_secs()).collect();
    assert_eq!(delays, [0, 0, 1, 1, 2, 2, 3]);
}
