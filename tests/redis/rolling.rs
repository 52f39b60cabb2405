//! Instances that disagree about a policy while a new version of the service is rolled out, and share its keys.

use std::fmt::Write as _;
use std::time::Duration;

use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::algorithm::Rule;
use sluicegate_core::algorithm::{Anchor, Drain};
use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Algorithm, Policy, Quota, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::random::Random;
use sluicegate_tests::servers::deployments::standalone;

use crate::support::{connected, patient, seeds};

const START: Duration = Duration::from_secs(1_800_000_000);

/// An instance of the service.
async fn instance(prefix: &str, clock: &ManualClock) -> RedisStore {
    connected(patient(prefix).clock(clock.clone()), &standalone().url()).await
}

fn on(store: &RedisStore, policy: PolicyBuilder) -> RateLimiter {
    policy.on(store).expect("the quota is possible")
}

/// Units that a rule lets pass at once, at most, and those that come back in a second.
fn most(limiter: &RateLimiter) -> (f64, f64) {
    let policy = limiter.policy();
    let quota = &policy.quotas()[0];
    let (limit, capacity) = (quota.quota().limit() as f64, quota.rule().capacity() as f64);
    let at_once = match quota.rule() {
        // Before a border and behind it.
        Rule::FixedWindow(_) | Rule::StartingWindow(_) | Rule::SlidingLog(_) => capacity + limit,
        _ => capacity,
    };
    (at_once, limit / quota.quota().period().as_secs_f64())
}

fn random_policy(random: &mut Random) -> PolicyBuilder {
    let algorithm = ALGORITHMS[usize::try_from(random.below(ALGORITHMS.len() as u64)).unwrap()];
    let limit = [1, 2, 5, 7, 30, 60, 100][usize::try_from(random.below(7)).unwrap()];
    let seconds = [1, 7, 10, 60, 100][usize::try_from(random.below(5)).unwrap()];
    let quota = Quota::new(limit, Duration::from_secs(seconds));
    let has_burst = matches!(
        algorithm,
        Algorithm::Gcra | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(Drain::Meter)
    );
    let burst = [1, 3, 100][usize::try_from(random.below(3)).unwrap()];
    // A queue delays what it lets in: those are other questions.
    let algorithm = if matches!(algorithm, Algorithm::LeakyBucket(_)) { Algorithm::Gcra } else { algorithm };
    let quota = if has_burst && random.below(2) == 0 { quota.burst(burst) } else { quota };
    let starts = has_burst && random.below(3) == 0;
    let start = random.below(quota.burst_size() + 1);
    Policy::builder("p", algorithm, if starts { quota.starting_with(start) } else { quota })
}

/// Once 100/h and 60/h in turns admitted 60 more with each round, without end.
#[tokio::test(flavor = "multi_thread")]
async fn two_limits_in_turns_admit_no_more_than_the_larger_one() {
    for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let clock = ManualClock::new();
        clock.set(START);
        let prefix = format!("turns-{index}");
        let (one, other) = (instance(&prefix, &clock).await, instance(&prefix, &clock).await);
        let large = on(&one, Policy::builder("p", algorithm, "100/h"));
        let small = on(&other, Policy::builder("p", algorithm, "60/h"));
        let mut passed = 0;
        for turn in 0..24 {
            let limiter = if turn % 2 == 0 { &large } else { &small };
            while limiter.check("ada").await.unwrap().is_allowed() {
                passed += 1;
            }
            clock.advance(Duration::from_millis(10));
        }
        assert_eq!(passed, 100, "{algorithm}");
    }
}

/// The bound is that of the larger burst and the larger rate, over every span between two admissions.
#[tokio::test(flavor = "multi_thread")]
async fn random_pairs_of_rules_admit_no_more_than_the_larger_burst_and_rate_and_starve_nobody() {
    let clock = ManualClock::new();
    for seed in seeds(120) {
        let mut random = Random::new(seed);
        clock.set(START + Duration::from_secs(10_000 * seed));
        let prefix = format!("pairs-{seed}");
        let stores = [instance(&prefix, &clock).await, instance(&prefix, &clock).await];
        let limiters = match seed {
            1 => [
                on(&stores[0], Policy::gcra("p", "100/min burst 1")),
                on(&stores[1], Policy::gcra("p", "1/min burst 100")),
            ],
            2 => [
                on(&stores[0], Policy::gcra("p", "60/min")),
                on(&stores[1], Policy::fixed_window("p", "60/min")),
            ],
            3 => [
                on(&stores[0], Policy::sliding_log("p", "60/min")),
                on(&stores[1], Policy::gcra("p", "60/min burst 1")),
            ],
            4 => [
                on(&stores[0], Policy::builder("p", Algorithm::FixedWindow(Anchor::FirstHit), "60/min")),
                on(&stores[1], Policy::fixed_window("p", "60/min")),
            ],
            _ => stores.each_ref().map(|store| on(store, random_policy(&mut random))),
        };
        let mut trace = format!("seed {seed}: {} and {}", limiters[0].policy(), limiters[1].policy());
        let [(at_once, rate), (other_at_once, other_rate)] = limiters.each_ref().map(most);
        let (at_once, rate) = (at_once.max(other_at_once), rate.max(other_rate));
        let slowest = limiters.each_ref().map(|limiter| most(limiter).1).into_iter().fold(f64::MAX, f64::min);
        let period = limiters[0].policy().quotas()[0].quota().period();
        let mut passed: Vec<(u64, f64)> = Vec::new();
        let began_us = clock.now_us();
        for _ in 0..150 {
            let step = match random.below(6) {
                0 => period.mul_f64(random.below(1_000) as f64 / 900.0),
                1 => Duration::from_secs_f64(1.0 / rate),
                2 => Duration::from_secs_f64(0.3 / slowest),
                _ => Duration::from_millis(random.below(50)),
            };
            // Whole microseconds.
            clock.advance(Duration::from_micros(u64::try_from(step.as_micros()).unwrap()));
            let which = usize::try_from(random.below(2)).unwrap();
            let cost = [1, 1, 1, 2, 5][usize::try_from(random.below(5)).unwrap()];
            for _ in 0..1 + random.below(20) {
                let decision = limiters[which].check("ada").cost(cost).await.unwrap();
                if !decision.is_allowed() {
                    break;
                }
                // Writing to a string cannot fail.
                let _ = write!(trace, "\n{} us: {cost} of {which}", clock.now_us() - began_us);
                passed.push((clock.now_us(), cost as f64));
            }
            let now_us = clock.now_us();
            let mut sum = 0.0;
            for (at_us, cost) in passed.iter().rev() {
                sum += cost;
                let span = (now_us - at_us) as f64 / 1e6;
                let bound = at_once + rate * span + 1.0;
                assert!(sum <= bound, "{sum} in {span} s, above {bound}\n{trace}");
            }
        }
        // Whatever came before, each is let in again by itself, within its own time.
        for limiter in &limiters {
            let mut waited = Duration::ZERO;
            let longest = Duration::from_secs_f64(2.0 * (at_once + 2.0) / slowest)
                + 3 * period
                + Duration::from_secs(300);
            loop {
                let decision = limiter.check("ada").await.unwrap();
                if decision.is_allowed() {
                    break;
                }
                let wait = decision.retry_after().expect("one unit fits");
                waited += wait;
                assert!(waited <= longest, "{} waits for {waited:?}\n{trace}", limiter.policy());
                clock.advance(wait);
            }
        }
    }
}

/// Once a tool that looked at a key by rules that were not in force left them in its value, where they counted for as long as a
/// whole burst takes.
#[tokio::test]
async fn a_peek_of_an_onlooker_writes_nothing() {
    let clock = ManualClock::new();
    clock.set(START);
    let service = instance("onlooker", &clock).await;
    let settings = patient("onlooker").clock(clock.clone()).onlooker();
    let onlooker = connected(settings, &standalone().url()).await;
    for (index, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let name = format!("p-{index}");
        let limiter = on(&service, Policy::builder(name.clone(), algorithm, "10/min"));
        let other = on(&onlooker, Policy::builder(name.clone(), algorithm, "30/min"));
        let _ = limiter.check("ada").cost(4).await.unwrap();
        let value = || standalone().run::<Vec<u8>>(&format!("DUMP {}", service.key_name(&name, "ada")));
        let before = value();
        for _ in 0..3 {
            let seen = other.peek("ada").await.unwrap();
            assert!(seen.remaining() < 30, "{algorithm:?}: what was spent counts");
            assert_eq!(value(), before, "{algorithm:?}");
            clock.advance(Duration::from_secs(1));
        }
        // Its other verbs do as those of any instance.
        let _ = other.check("ada").await.unwrap();
        assert_ne!(value(), before, "{algorithm:?}");
    }
}
