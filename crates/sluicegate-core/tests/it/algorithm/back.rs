//! What each algorithm promises about any span of time, checked on random traces by adding up, without a model; and the rule for a
//! clock that steps back: what passed is never forgotten, and no key waits longer than the step beyond its rule.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::{Anchor, Drain, Refill, Rule};
use sluicegate_core::clock::Clock;
use sluicegate_core::limiter::check_all;
use sluicegate_core::{Algorithm, Decision, Key, Policy, Quota};

use crate::algorithm::model::quota;
use crate::support::{ALL, answer, limiter, ms, secs, store, store_for, us};

/// The furthest that the clock steps back behind the latest time.
const STEP_US: u64 = 10_000_000;

/// An ask: when, the units that passed, and the wait if it was refused.
struct Asked {
    at_us: u64,
    latest_us: u64,
    passed: u64,
    wait_us: u64,
}

#[test]
fn no_step_back_admits_more_and_no_key_waits_longer_than_the_step_beyond_its_rule() {
    // How far the clock goes on, in percent of the period, and how far behind the latest time it is then; the cost in percent.
    let steps = prop::collection::vec((0..=120_u64, prop_oneof![Just(0), 0..=STEP_US], 0..=100_u64), 1..60);
    for algorithm in ALL {
        let config = Config { failure_persistence: None, cases: 64, ..Config::default() };
        let outcome = TestRunner::new(config).run(&(quota(algorithm), steps.clone()), |(quota, steps)| {
            let asked = ask(algorithm, quota, &steps);
            never_above(algorithm, quota, &asked);
            let longest_us = Rule::new(algorithm, quota).expect("it is exact").longest_spend_us();
            for Asked { at_us, latest_us, wait_us, .. } in asked {
                assert!(wait_us <= longest_us + latest_us - at_us, "{algorithm} {quota}: {wait_us}");
            }
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{algorithm}: {failure}");
        }
    }
}

fn ask(algorithm: Algorithm, quota: Quota, steps: &[(u64, u64, u64)]) -> Vec<Asked> {
    let entries = usize::try_from(quota.limit().min(4_096) * 16).expect("a limit fits");
    let (store, clock) = store_for(8, entries);
    let limiter = limiter(&store, "back", algorithm, quota);
    let period_us = u64::try_from(quota.period().as_micros()).expect("it fits");
    let mut latest_us = clock.now_us();
    let each = steps.iter().flat_map(|&(percent, behind_us, cost)| {
        latest_us = latest_us.max(clock.now_us() + period_us / 100 * percent / 3);
        clock.set(us(latest_us - behind_us));
        let (at_us, cost) = (clock.now_us(), quota.burst_size() * cost / 100);
        [cost, 1].map(|cost| {
            let decision = answer(limiter.check("k").cost(cost));
            let wait = decision.retry_after().unwrap_or_default().as_micros();
            let passed = if decision.is_allowed() { cost } else { 0 };
            Asked { at_us, latest_us, passed, wait_us: u64::try_from(wait).expect("it fits") }
        })
    });
    each.collect()
}

/// In the order in which they came, whatever the clock shows: time that goes back lets nothing pass.
fn never_above(algorithm: Algorithm, quota: Quota, asked: &[Asked]) {
    let period = quota.period().as_micros();
    let (limit, burst) = (u128::from(quota.limit()), u128::from(quota.burst_size()));
    // Quotas that are counted in milliseconds may see a span up to one of them longer than it was.
    let cut = if burst * period > 1 << 52 { 999 } else { 0 };
    for (first, from) in asked.iter().enumerate().filter(|(_, asked)| asked.passed > 0) {
        let (mut sum, mut seen_us) = (0_u128, from.at_us);
        for to in &asked[first..] {
            (sum, seen_us) = (sum + u128::from(to.passed), seen_us.max(to.at_us));
            let (span, seen) = (to.at_us.saturating_sub(from.at_us), u128::from(seen_us - from.at_us));
            let within = match algorithm {
                // What it has seen to be over stays over.
                Algorithm::SlidingLog | Algorithm::SlidingLogIn(_) => seen >= period || sum <= limit,
                Algorithm::SlidingCounter | Algorithm::FixedWindow(Anchor::Epoch) => {
                    sum <= limit * (u128::from(seen_us) / period - u128::from(from.at_us) / period + 1)
                }
                Algorithm::FixedWindow(_) => sum <= limit * (seen / period + 2),
                Algorithm::TokenBucket(Refill::Interval | Refill::AlignedInterval) => {
                    sum <= burst + limit * (seen / period + 1)
                }
                _ => sum * period <= burst * period + limit * (u128::from(span) + cut),
            };
            assert!(
                to.passed == 0 || within,
                "{algorithm} {quota}: {sum} of {from}..{to}",
                from = from.at_us,
                to = to.at_us
            );
        }
    }
}

#[test]
fn no_span_of_time_admits_more_than_the_algorithm_defines() {
    // Greedy clients, who ask for what is left again and again: the spans that matter are full ones.
    let steps = prop::collection::vec((0..=120_u64, 1..=100_u64, 1..=4_u32), 1..60);
    for algorithm in ALL {
        let config = Config { failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&(quota(algorithm), steps.clone()), |(quota, steps)| {
            never_above(algorithm, quota, &admitted(algorithm, quota, &steps));
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{algorithm}: {failure}");
        }
    }
}

fn admitted(algorithm: Algorithm, quota: Quota, steps: &[(u64, u64, u32)]) -> Vec<Asked> {
    let entries = usize::try_from(quota.limit().min(4_096) * 16).expect("a limit fits");
    let (store, clock) = store_for(8, entries);
    let limiter = limiter(&store, "greedy", algorithm, quota);
    let mut admitted = Vec::new();
    for &(idle_percent, cost_percent, tries) in steps {
        // Long idles fill the bucket, short ones try it at its rate.
        let span = quota.period().as_nanos() * u128::from(idle_percent) / 100;
        let span = if idle_percent % 3 == 0 { span / u128::from(quota.limit()) } else { span };
        clock.advance(us(u64::try_from(span / 1_000).expect("a span fits")));
        let cost = (quota.burst_size() * cost_percent / 100).max(1);
        let remaining = answer(limiter.peek("k")).remaining().max(1);
        for cost in std::iter::repeat_n(cost, usize::try_from(tries).expect("few")).chain([remaining, 1]) {
            if answer(limiter.check("k").cost(cost)).is_allowed() {
                let at_us = clock.now_us();
                admitted.push(Asked { at_us, latest_us: at_us, passed: cost, wait_us: 0 });
            }
        }
    }
    admitted
}

/// A cost of nothing once forgot a key that was at rest, in memory and not in Redis: after a step back only one of them refused.
#[test]
fn what_spends_nothing_leaves_a_key_at_rest_to_a_clock_that_steps_back() {
    for algorithm in ALL {
        let (store, clock) = store();
        let quota = Quota::new(2, secs(5));
        let plain = limiter(&store, "plain", algorithm, quota);
        let beside = limiter(&store, "beside", algorithm, quota);
        let accounts = Policy::builder("accounts", algorithm, quota).refunds().on(&store).expect("it fits");
        let key = Key::from("k");
        let all = [&plain, &beside, &accounts];
        let full = all.map(|limiter| answer(limiter.check(&key).cost(2)));
        assert!(full.iter().all(Decision::is_allowed), "{algorithm}");
        let spent = us(clock.now_us());
        clock.set(spent + secs(if is_log(algorithm) { 1 } else { 11 }));
        for limiter in all {
            _ = answer(limiter.check(&key).cost(0));
            _ = answer(limiter.charge(&key, 0));
            _ = answer(limiter.check(&key).cost(0).reserve(secs(1)));
        }
        _ = answer(check_all([plain.check(&key).cost(0), beside.check(&key).cost(0)]));
        clock.set(spent);
        for limiter in all {
            assert!(
                !answer(limiter.check(&key).cost(2)).is_allowed(),
                "{algorithm}, {}",
                limiter.policy().name()
            );
        }
    }
}

fn is_log(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::SlidingLog | Algorithm::SlidingLogIn(_))
}

/// An exact queue of this quota is at rest a microsecond after it let a unit go, and 223 after that is still to come by a clock that
/// stepped back by 222. A charge of nothing at rest changes nothing of that.
#[test]
fn a_queue_is_at_rest_when_its_last_unit_has_left_by_a_clock_that_stepped_back_as_well() {
    let (store, clock) = store();
    let quota: Quota = "65537/333us burst 1".parse().expect("it is a quota");
    let queue = limiter(&store, "queue", Algorithm::LeakyBucket(Drain::Queue), quota);
    assert!(answer(queue.check("k")).is_allowed());
    let begun = us(clock.now_us());
    for (back, rest) in [(0, 1), (222, 223)] {
        clock.set(begun + secs(1));
        assert_eq!(answer(queue.charge("k", 0)).reset_after(), ms(0));
        clock.set(begun - us(back));
        assert_eq!(answer(queue.peek("k")).reset_after(), us(rest));
    }
    clock.set(begun + us(1));
    assert!(answer(queue.check("k")).is_allowed());
}
