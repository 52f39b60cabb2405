//! Many requests under two limits at once, that wait, leave and spend: each limit keeps its own definition.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::Receipt;
use sluicegate_core::store::{Mode, PreparedPolicy};
use sluicegate_core::{Algorithm, Decision, Policy, Quota};

use crate::algorithm::exact::promised;
use crate::support::{ALL, is_queue, us};
use crate::wait::turns::Desk;

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(u64),
    /// Spends from the first limit alone, or waits for it.
    Alone(u64, Option<u64>),
    /// Waits for both.
    Both(u64),
    /// One of those who wait leaves.
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let longest = || prop_oneof![2 => Just(u64::MAX), 1 => 0..=3_000_000_u64];
    prop_oneof![
        4 => prop_oneof![0..=3_u64, 0..=400_000_u64, 0..=5_000_000_u64].prop_map(Step::Advance),
        4 => (1..=3_u64, prop::option::of(longest())).prop_map(|(cost, wait)| Step::Alone(cost, wait)),
        6 => longest().prop_map(Step::Both),
        4 => (0..6_usize).prop_map(Step::Leave),
    ]
}

/// What a request has of each limit, unless it has given it back.
type Spends = [Option<Receipt>; 2];

struct Crowd {
    desk: Desk,
    limits: [(PreparedPolicy, Algorithm, Quota); 2],
    requests: Vec<Spends>,
}

impl Crowd {
    fn new(terms: [(Algorithm, Quota); 2]) -> Self {
        let desk = Desk::new();
        let mut names = ["shared", "own"].into_iter();
        let limits = terms.map(|(algorithm, quota)| {
            let name = names.next().expect("there are two");
            (desk.open(Policy::builder(name, algorithm, quota)), algorithm, quota)
        });
        Self { desk, limits, requests: Vec::new() }
    }

    fn take(&mut self, step: Step) {
        let now = self.desk.clock.now_us();
        let [shared, own] = self.limits.each_ref().map(|(opened, ..)| opened);
        match step {
            Step::Advance(span) => self.desk.clock.advance(us(span)),
            Step::Alone(cost, wait) => {
                let mode = wait.map_or(Mode::Spend, |longest| Mode::Reserve { longest: us(longest) });
                let decision = self.desk.ask(shared, cost, mode);
                self.enter(decision);
            }
            Step::Both(longest) => {
                let decision = self.desk.both([shared, own], Mode::Reserve { longest: us(longest) });
                self.enter(decision);
            }
            Step::Leave(which) => {
                let waits = |receipt: &&Receipt| receipt.at_us() > now;
                let is_waiting =
                    |index: &usize| self.requests[*index].iter().flatten().any(|own| waits(&own));
                let Some(index) = (0..self.requests.len()).rev().filter(is_waiting).nth(which) else {
                    return;
                };
                let receipts = self.requests[index].each_ref().map(|own| own.as_ref().filter(waits));
                let turns = self.limits.iter().zip(receipts);
                let turns: Vec<_> = turns.filter_map(|((opened, ..), own)| Some((opened, own?))).collect();
                if self.desk.of(Mode::Return, &turns) {
                    self.requests[index]
                        .iter_mut()
                        .for_each(|own| *own = own.take().filter(|own| !waits(&own)));
                }
            }
        }
    }

    fn enter(&mut self, mut decision: Decision) {
        if decision.is_allowed() {
            self.requests.push([0, 1].map(|ask| decision.take_receipt(ask)));
        }
    }

    /// All that each limit counts, in the order of the moments from which it counts, is within its definition.
    fn holds(&self) {
        for (place, (_, algorithm, quota)) in self.limits.iter().enumerate() {
            let mut spent: Vec<_> = self
                .requests
                .iter()
                .filter_map(|receipts| receipts[place].as_ref())
                .map(|receipt| (receipt.at_us(), receipt.cost()))
                .collect();
            spent.sort_by_key(|(at, _)| *at);
            let mut model = promised(*algorithm, *quota);
            for &(at, cost) in &spent {
                assert!(model.passes(at, cost), "{cost} at {at} is above {quota} in {spent:?}");
                model.spend(at, cost);
            }
        }
    }
}

#[test]
fn who_waits_under_two_limits_and_who_leaves_never_lift_either_of_them() {
    // Windows that begin with a key's first unit begin with that of a request that has left, too: another history.
    let anchored = [Algorithm::FixedWindow(Anchor::FirstHit), Algorithm::TokenBucket(Refill::Interval)];
    let exact = |algorithm: &Algorithm| !is_queue(*algorithm) && !anchored.contains(algorithm);
    for algorithm in ALL.into_iter().filter(exact) {
        let period = || prop::sample::select(vec![99_991_u64, 1_000_000, 3_000_000, 60_000_000]);
        let quota = || (1..=9_u64, period()).prop_map(|(limit, period)| Quota::new(limit, us(period)));
        let other = prop::sample::select(vec![algorithm, Algorithm::Gcra]);
        let trace = (quota(), other, quota(), prop::collection::vec(step(), 1..60));
        let config = Config { failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&trace, |(shared, other, own, steps)| {
            let mut crowd = Crowd::new([(algorithm, shared), (other, own)]);
            steps.into_iter().for_each(|step| crowd.take(step));
            crowd.holds();
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{algorithm}: {failure}");
        }
    }
}
