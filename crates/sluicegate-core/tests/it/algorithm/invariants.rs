//! What each algorithm promises about any span of time, checked on random traces by adding up, without a model.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::{Anchor, Refill};
use sluicegate_core::clock::Clock;
use sluicegate_core::{Algorithm, Quota};

use crate::algorithm::model::quota;
use crate::support::{ALL, answer, limiter, store_for, us};

/// What was admitted: when, in microseconds, and how many units.
type Admitted = Vec<(u64, u64)>;

#[test]
fn no_span_of_time_admits_more_than_the_algorithm_defines() {
    // Greedy clients, who ask for what is left again and again: the spans that matter are full ones.
    let steps = prop::collection::vec((0..=120_u64, 1..=100_u64, 1..=4_u32), 1..60);
    for algorithm in ALL {
        let config = Config { failure_persistence: None, ..Config::default() };
        let outcome = TestRunner::new(config).run(&(quota(algorithm), steps.clone()), |(quota, steps)| {
            holds(algorithm, quota, &admitted(algorithm, quota, &steps));
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{algorithm}: {failure}");
        }
    }
}

fn admitted(algorithm: Algorithm, quota: Quota, steps: &[(u64, u64, u32)]) -> Admitted {
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
                admitted.push((clock.now_us(), cost));
            }
        }
    }
    admitted
}

fn holds(algorithm: Algorithm, quota: Quota, admitted: &Admitted) {
    let period = quota.period().as_micros();
    let (limit, burst) = (u128::from(quota.limit()), u128::from(quota.burst_size()));
    // Quotas that are counted in milliseconds may see a span up to one of them longer than it was.
    let cut = if burst * period > 1 << 52 { 999 } else { 0 };
    for (first, &(from, _)) in admitted.iter().enumerate() {
        let mut sum = 0_u128;
        for &(to, cost) in &admitted[first..] {
            sum += u128::from(cost);
            let span = u128::from(to - from);
            let within = match algorithm {
                Algorithm::SlidingLog | Algorithm::SlidingLogIn(_) => span >= period || sum <= limit,
                Algorithm::SlidingCounter | Algorithm::FixedWindow(Anchor::Epoch) => {
                    // Within one aligned window never above the limit, over a border never above twice that.
                    let windows = u128::from(to) / period - u128::from(from) / period + 1;
                    sum <= limit * windows
                }
                // A window may begin with every first hit.
                Algorithm::FixedWindow(_) => sum <= limit * (span / period + 2),
                Algorithm::TokenBucket(Refill::Interval | Refill::AlignedInterval) => {
                    sum <= burst + limit * (span / period + 1)
                }
                _ => sum * period <= burst * period + limit * (span + cut),
            };
            assert!(within, "{algorithm} {quota}: {sum} in {span} us");
        }
    }
}
