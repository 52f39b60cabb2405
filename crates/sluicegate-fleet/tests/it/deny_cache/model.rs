//! Random traces, with a cache and without: who passes is the same, and no wait is too early.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::algorithm::{Drain, Refill};
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::{Ask, DecidedBy, Mode, PreparedPolicy, Store};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Algorithm, Decision, Key, Policy, Quota};
use sluicegate_fleet::DenyCache;
use sluicegate_tests::around::around;
use sluicegate_tests::memory::{answer, store_on};
use sluicegate_tests::time::on_the_hour;

const LONGEST: Duration = Duration::from_millis(1_500);

/// A store with the policies of a trace.
struct Home {
    store: Arc<dyn Store>,
    policies: [PreparedPolicy; 2],
}

impl Home {
    fn new(store: impl Into<Arc<dyn Store>>, policies: &[Policy; 2]) -> Self {
        let store = store.into();
        let policies = policies.clone().map(|policy| store.open(Arc::new(policy), None).unwrap());
        Self { store, policies }
    }

    fn replace(&mut self, index: usize, policy: &Policy, how: Inherit) {
        let old = self.policies[index].clone();
        let new = self.store.open(Arc::new(policy.clone()), Some((&old, how))).unwrap();
        self.store.replaced(&old, &new, how);
        self.policies[index] = new;
    }

    fn ask(&self, asks: &[Asked]) -> Decision {
        let keys: Vec<Key> = asks.iter().map(|ask| Key::from(ask.key)).collect();
        let asks: Vec<Ask<'_>> = asks
            .iter()
            .zip(&keys)
            .map(|(asked, key)| {
                let policy = &self.policies[asked.policy];
                let ask = Ask::new(policy, key.as_ref(), asked.costs[0], asked.mode);
                let quotas = policy.policy().quotas().len();
                if quotas > 1 && asked.mode != Mode::Take {
                    ask.with_costs(&asked.costs[..quotas])
                } else {
                    ask
                }
            })
            .collect();
        answer(self.store.decide(&asks))
    }
}

#[derive(Clone, Debug)]
struct Asked {
    policy: usize,
    key: u64,
    costs: [u64; 2],
    mode: Mode,
}

#[derive(Clone, Debug)]
enum Step {
    Ask(Vec<Asked>),
    Replace(usize, Inherit),
    Wait(u64),
}

fn mode() -> impl Strategy<Value = Mode> {
    let longest = (0_u64..3_000).prop_map(|ms| Mode::Reserve { longest: Duration::from_millis(ms) });
    prop_oneof![
        8 => Just(Mode::Spend),
        2 => Just(Mode::Take),
        1 => Just(Mode::Peek),
        2 => longest,
        1 => Just(Mode::Refund),
        1 => Just(Mode::Charge),
        1 => Just(Mode::Reset),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let costs = prop_oneof![4 => 1..=2_u64, 1 => 0..=7_u64];
    let asked = (0..2_usize, 0..2_u64, [costs.clone(), costs], mode())
        .prop_map(|(policy, key, costs, mode)| Asked { policy, key, costs, mode });
    let how = prop_oneof![Just(Inherit::Spent), Just(Inherit::Reset), Just(Inherit::AsIs)];
    let wait = prop_oneof![0..1_000_u64, 0..100_000_u64, 0..3_000_000_u64];
    prop_oneof![
        30 => prop::collection::vec(asked, 1..=3).prop_map(Step::Ask),
        1 => (0..2_usize, how).prop_map(|(policy, how)| Step::Replace(policy, how)),
        15 => wait.prop_map(Step::Wait),
    ]
}

/// Where keys start with less than a burst, if the algorithm can.
fn starting(algorithm: Algorithm, start: u64) -> Policy {
    let quota = Quota::new(5, Duration::from_secs(2));
    let short = Policy::builder("one", algorithm, quota.starting_with(start)).build();
    short.unwrap_or_else(|_| Policy::builder("one", algorithm, quota).build().unwrap())
}

fn starts_short(policies: &[Policy; 2]) -> bool {
    policies.iter().any(|policy| policy.quotas().iter().any(|of| of.quota().start().is_some()))
}

fn policies() -> impl Strategy<Value = [Policy; 2]> {
    let is_queue = |algorithm: &Algorithm| {
        matches!(algorithm, Algorithm::LeakyBucket(Drain::Queue | Drain::QueueAbove(_)))
    };
    let algorithms: Vec<Algorithm> = ALGORITHMS.into_iter().filter(|of| !is_queue(of)).collect();
    let algorithm = prop::sample::select(algorithms);
    (algorithm.clone(), algorithm, 0..=9_u64).prop_map(|(one, other, start)| {
        [starting(one, start), Policy::builder("other", other, "3/s").and("6/7s").build().unwrap()]
    })
}

/// Whether the wait of a higher cost is known to the microsecond.
fn is_even(policy: &Policy) -> bool {
    policy.quotas().len() == 1
        && matches!(
            policy.algorithm(),
            Algorithm::Gcra | Algorithm::TokenBucket(Refill::Greedy) | Algorithm::LeakyBucket(Drain::Meter)
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn it_refuses_exactly_what_the_store_would_refuse_and_no_wait_is_too_early(
        policies in policies(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let clock = on_the_hour();
        let mut direct = Home::new(store_on(clock.clone()), &policies);
        let cache = DenyCache::builder(store_on(clock.clone())).clock(clock.clone()).longest(LONGEST);
        let mut cached = Home::new(cache.build().unwrap(), &policies);
        let mut has_turns = false;
        for step in steps {
            match step {
                Step::Wait(us) => clock.advance(Duration::from_micros(us)),
                Step::Replace(index, how) => {
                    for home in [&mut direct, &mut cached] {
                        home.replace(index, &policies[index].with_table_size(1_001), how);
                    }
                }
                Step::Ask(mut asks) => {
                    // A request that the cache refuses for one limit makes no key of another one known to the store.
                    asks.truncate(if starts_short(&policies) { 1 } else { 3 });
                    has_turns |= asks.iter().any(|ask| matches!(ask.mode, Mode::Reserve { .. }));
                    let (ours, theirs) = (cached.ask(&asks), direct.ask(&asks));
                    let is_same = ours.is_allowed() == theirs.is_allowed() && ours.delay() == theirs.delay();
                    prop_assert!(is_same && ours.granted() == theirs.granted(), "{asks:?}: {ours:?} for {theirs:?}");
                    let [only] = &asks[..] else { continue };
                    if ours.decided_by() != DecidedBy::Cache {
                        prop_assert_eq!(ours.quotas(), theirs.quotas());
                        continue;
                    }
                    prop_assert_eq!(ours.outcome(), theirs.outcome(), "{:?}", only);
                    prop_assert!(ours.retry_after() >= theirs.retry_after(), "{only:?}: {ours:?} for {theirs:?}");
                    prop_assert_eq!(ours.at_us(), clock.now_us());
                    // What is refused a turn says of a spend only that it waits longer by the wait that was too short.
                    if is_even(&policies[only.policy]) && !has_turns {
                        let late = ours.retry_after().unwrap_or_default() - theirs.retry_after().unwrap_or_default();
                        prop_assert!(late <= Duration::from_micros(1), "{only:?}: {ours:?} for {theirs:?}");
                        prop_assert_eq!(ours.reset_after(), theirs.reset_after());
                    }
                }
            }
        }
    }

    #[test]
    fn a_key_costs_a_call_for_what_it_is_let_pass_and_one_for_each_retry_or_longest(
        algorithm in prop::sample::select(ALGORITHMS.to_vec()).prop_filter("queues wait", |of| {
            !matches!(of, Algorithm::LeakyBucket(Drain::Queue | Drain::QueueAbove(_)))
        }),
        waits in prop::collection::vec(0..200_000_u64, 1..300),
    ) {
        let clock = on_the_hour();
        let last = Arc::new(Mutex::new(None::<(u64, Duration)>));
        let store = around(store_on(clock.clone()), {
            let clock = clock.clone();
            move |within: &Within, asks: &[Ask<'_>]| called(&clock, &last, within, asks)
        });
        let cache = DenyCache::builder(store).clock(clock.clone()).longest(LONGEST).build().unwrap();
        let limiter = Policy::builder("api", algorithm, "5/7s").on(cache).unwrap();
        for wait in waits {
            clock.advance(Duration::from_micros(wait));
            _ = answer(limiter.check("ada"));
        }
    }
}

/// A call after a refusal comes when its retry or the longest time is over, and not before.
fn called(
    clock: &ManualClock,
    last: &Mutex<Option<(u64, Duration)>>,
    within: &Within,
    asks: &[Ask<'_>],
) -> sluicegate_core::store::DecisionFuture {
    let now_us = clock.now_us();
    let decision = answer(within.decide(asks));
    let mut last = last.lock().unwrap();
    if let Some((last_us, pause)) = *last {
        assert!(Duration::from_micros(now_us - last_us) >= pause, "{pause:?} after {decision:?}");
    }
    let pause = decision.retry_after().map_or(Duration::ZERO, |retry| retry.min(LONGEST));
    *last = Some((now_us, pause));
    sluicegate_core::store::DecisionFuture::ready(Ok(decision))
}
