//! Quotas by periods of a calendar, of which Redis knows only the borders that come with a call.

use std::time::Duration;

use sluicegate_core::calendar::CalendarPeriod;
use sluicegate_core::clock::{Clock, ManualClock, SystemClock};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::{PolicyBuilder, Quotas};
use sluicegate_core::store::QuotaStatus;
use sluicegate_core::{Decision, MemoryStore, Policy, RateLimiter};
use sluicegate_tests::random::Random;
use sluicegate_tests::servers::deployments::standalone;
use sluicegate_tests::servers::skewed::Skewed;

use crate::support::{connected, patient};

const HOUR: u64 = 3_600_000_000;

fn policies() -> [PolicyBuilder; 6] {
    [
        Policy::gcra("day", "6/day in Europe/Berlin").refunds(),
        Policy::gcra("month", "20/month in America/New_York carry over 25%"),
        Policy::sliding_counter("three", "9/week from sunday in Asia/Seoul")
            .and("4/h")
            .and("30/quarter")
            .refunds(),
        Policy::gcra("both", "7/month").and("50/d burst 3").named("even"),
        Policy::gcra("short", "5/day in Europe/Berlin burst 12 start 3 by token-bucket-aligned").refunds(),
        Policy::gcra("week", "9/week in UTC")
            .and("9/week by fixed-window")
            .named("even")
            .and("12/week carry over 5")
            .named("more"),
    ]
}

/// All numbers of a decision.
fn numbers(decision: &Decision) -> Vec<String> {
    let of = |status: &QuotaStatus| {
        let (left, reset) = (status.remaining(), status.reset_after());
        format!("{left} of {} left, {reset:?}, {} spent", status.capacity(), status.spent())
    };
    let whole = format!("{:?}, {:?}, {:?}", decision.outcome(), decision.retry_after(), decision.delay());
    std::iter::once(whole).chain(decision.quotas().iter().map(of)).collect()
}

/// Limiters of one policy, in Redis and in memory.
async fn both(name: &str, clock: &ManualClock, policy: &Policy) -> [RateLimiter; 2] {
    let redis = connected(patient(name).clock(clock.clone()), &standalone().url()).await;
    let memory = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    [RateLimiter::new(&redis, policy.clone()).unwrap(), RateLimiter::new(&memory, policy.clone()).unwrap()]
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_decides_as_memory_does_over_borders_of_days_weeks_months_and_changes_of_the_clocks_on_the_wall()
 {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut random = |bound| random.below(bound);
        let clock = ManualClock::new();
        clock.set(Duration::from_secs(1_767_225_600 + seed * 5_000_000)); // 2026
        for policy in policies() {
            let policy = policy.build().unwrap();
            let both = both(&format!("calendar-{seed}"), &clock, &policy).await;
            let period = policy.quotas()[0].quota().calendar().unwrap();
            let (mut trace, mut receipts) = (String::new(), Vec::new());
            for _ in 0..120 {
                let now_us = clock.now_us();
                let (_, border_us) = period.around(now_us);
                let next_us = match random(8) {
                    0 => border_us - 1,
                    1 => border_us,
                    2 => border_us + random(3 * HOUR),
                    3 => now_us + random(300 * HOUR) * random(20),
                    4 => now_us + random(HOUR),
                    _ => now_us,
                };
                clock.set(Duration::from_micros(next_us));
                let (way, key, cost) = (random(8), ["ada", "bob"][usize::from(random(2) > 0)], random(5));
                trace.push_str(&format!("\n{next_us}: {way} {key} {cost}"));
                let longest = Duration::from_micros(random(1_000 * HOUR));
                let mut told = Vec::new();
                if way == 7 && !receipts.is_empty() {
                    let [ours, theirs]: [sluicegate_core::limiter::Receipt; 2] = receipts.pop().unwrap();
                    for (limiter, mut receipt) in both.iter().zip([ours, theirs]) {
                        told.push(limiter.refund("ada", 2).of(&mut receipt).await.unwrap());
                    }
                } else {
                    for limiter in &both {
                        told.push(match way {
                            5 => limiter.peek(key).cost(cost).await.unwrap(),
                            6 => limiter.charge(key, cost * 5).await.unwrap(),
                            // A turn in a later period, if this one has no room. In memory, it stops the refunds of all keys.
                            4 if !policy.gives_back() => {
                                limiter.check(key).cost(cost).reserve(longest).await.unwrap()
                            }
                            _ => limiter.check(key).cost(cost).await.unwrap(),
                        });
                    }
                }
                let [ours, reference] = <[Decision; 2]>::try_from(told).unwrap();
                let [shown, expected] = [&ours, &reference].map(numbers);
                assert_eq!(shown, expected, "{policy}:{trace}");
                let mut told = [ours, reference];
                if way < 5 && key == "ada" && policy.gives_back() && told[0].is_allowed() && cost > 0 {
                    receipts.push(told.each_mut().map(|decision| decision.take_receipt(0).unwrap()));
                }
            }
        }
    }
}

/// Once, a key that idled for more than one period was given its units twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_idles_and_a_debt_are_counted_by_the_calendar_in_redis_as_in_memory() {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_738_627_200)); // 4 February 2025
    let idle = Policy::gcra("idle", "10/month in UTC carry over 10").build().unwrap();
    for limiter in both("idle", &clock, &idle).await {
        clock.set(Duration::from_secs(1_738_627_200));
        assert!(limiter.check("ada").cost(5).await.unwrap().is_allowed());
        let mut granted = Vec::new();
        // On 30 March, and on the first of April, May and June.
        for second in [1_743_292_800, 1_743_465_600, 1_746_057_600, 1_748_736_000] {
            clock.set(Duration::from_secs(second));
            let left = limiter.peek("ada").await.unwrap().remaining();
            assert!(limiter.check("ada").cost(left).await.unwrap().is_allowed());
            granted.push(left);
        }
        assert_eq!(granted, [15, 10, 10, 10]);
    }
    for unit in ["day", "month", "quarter", "year"] {
        for zone in ["UTC", "Asia/Seoul", "Europe/Berlin"] {
            let debts = Policy::gcra("debts", format!("10/{unit} in {zone} carry over 5")).build().unwrap();
            let both =
                both(&format!("debts-{unit}-{}", zone.to_lowercase().replace("/", ".")), &clock, &debts)
                    .await;
            let longest_s = debts.quotas()[0].quota().period().as_secs();
            for charge in (25_u64..=55).step_by(10) {
                let (key, start_s) = (charge.to_string(), 1_738_627_200 + charge * longest_s / 7);
                clock.set(Duration::from_secs(start_s));
                for limiter in &both {
                    let _ = limiter.charge(key.as_str(), charge).await.unwrap();
                }
                for part in 0..40 {
                    clock.set(Duration::from_secs(start_s + part * longest_s / 8));
                    let mut told = Vec::new();
                    for limiter in &both {
                        told.push(numbers(&limiter.peek(key.as_str()).cost(3).await.unwrap()));
                    }
                    assert_eq!(told[0], told[1], "{debts}, {charge} charged, {part} eighths later");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_border_it_does_not_matter_whose_clock_is_ahead() {
    let skewed = Skewed::start();
    let month: CalendarPeriod = "month in Asia/Seoul".parse().unwrap();
    let now_us = SystemClock::new().now_us();
    let (_, border_us) = month.around(now_us);
    let before = i64::try_from(border_us - now_us).unwrap() - 3_600_000_000;
    let limiters = async |name: &str| {
        let mut limiters = Vec::new();
        for _ in 0..2 {
            let store = connected(patient("border"), &skewed.server.url()).await;
            limiters.push(Policy::gcra(name, "10/month in Asia/Seoul").on(&store).unwrap());
        }
        limiters
    };
    // The old instances have known the server's time before it jumped; the fresh ones ask first after that.
    for (name, jump) in [("over", 2 * 3_600_000_000), ("back", -2 * 3_600_000_000)] {
        let shift = if jump > 0 { before } else { before - jump };
        skewed.shift(shift);
        let old = limiters(name).await;
        for (limiter, cost) in old.iter().zip([3, 4]) {
            assert!(limiter.check("ada").cost(cost).await.unwrap().is_allowed());
        }
        skewed.shift(shift + jump);
        let (fresh, mut allowed) = (limiters(name).await, 0);
        for limiter in [&old[0], &fresh[0], &old[1], &fresh[1]] {
            allowed += u64::from(limiter.check("ada").cost(3).await.unwrap().is_allowed());
        }
        // After the border nothing is spent. What is spent after it counts for its month, also when the clock goes back and forth.
        let most = if jump > 0 { 3 } else { 1 };
        assert!(if jump > 0 { allowed == most } else { allowed <= most }, "{name}: {allowed}");
        skewed.shift(before + 2 * 3_600_000_000);
        let left = if jump > 0 { 10 } else { 3 } - allowed * 3;
        for limiter in [&old[0], &fresh[0], &old[1], &fresh[1]] {
            assert_eq!(limiter.peek("ada").await.unwrap().remaining(), left, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_was_replaced_and_keys_with_numbers_of_their_own_keep_what_they_spent_over_a_border() {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(1_767_225_600));
    let store = connected(patient("replaced").clock(clock.clone()), &standalone().url()).await;
    let month = Policy::gcra("month", "10/month").on(&store).unwrap();
    let spent = async |limiter: &RateLimiter, key: &str, cost| {
        let decision = limiter.check(key).cost(cost).await.unwrap();
        (decision.is_allowed(), decision.remaining())
    };
    assert_eq!(spent(&month, "ada", 4).await, (true, 6));
    let own: Quotas = "100/month".parse().unwrap();
    let own = month.with_quotas(&own).unwrap();
    assert_eq!(spent(&own, "bob", 90).await, (true, 10));
    month.replace(Policy::gcra("month", "12/month").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(spent(&month, "ada", 1).await, (true, 7));
    month.replace(Policy::gcra("month", "12/month").version(2).build().unwrap(), Inherit::Reset).unwrap();
    assert_eq!(spent(&month, "ada", 2).await, (true, 10));
    clock.advance(Duration::from_secs(31 * 86_400));
    // February, which is shorter.
    assert_eq!(spent(&month, "ada", 12).await, (true, 0));
    assert_eq!(spent(&own, "bob", 1).await, (true, 99));
    clock.advance(Duration::from_secs(28 * 86_400 - 1));
    assert_eq!(spent(&month, "ada", 1).await, (false, 0));
    assert_eq!(spent(&own, "bob", 1).await, (true, 98));
    clock.advance(Duration::from_secs(1));
    assert_eq!(spent(&month, "ada", 1).await, (true, 11));
    assert_eq!(spent(&own, "bob", 1).await, (true, 99));
    // Units above a lower limit end with their month.
    assert_eq!(spent(&month, "ada", 7).await, (true, 4));
    month.replace(Policy::gcra("month", "3/month").version(3).build().unwrap(), Inherit::Spent).unwrap();
    let refusal = month.check("ada").await.unwrap();
    assert_eq!(refusal.retry_after(), Some(Duration::from_secs(31 * 86_400)));
    clock.advance(Duration::from_secs(31 * 86_400));
    assert_eq!(spent(&month, "ada", 3).await, (true, 0));
}
