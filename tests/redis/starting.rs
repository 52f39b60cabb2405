//! `Quota::starting_with` on a server: what a key is that it knows, and for how long it does.

use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Policy, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::deployments::standalone;

use crate::support::{connected, patient};

const START: Duration = Duration::from_secs(1_800_000_000);

async fn instance(prefix: &str, clock: &ManualClock) -> RedisStore {
    connected(patient(prefix).clock(clock.clone()), &standalone().url()).await
}

async fn remaining(limiter: &RateLimiter, key: &str) -> u64 {
    limiter.peek(key).await.expect("the server answers").remaining()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_is_kept_until_a_full_burst_has_refilled_once_more() {
    let store = connected(patient("starting-expiry"), &standalone().url()).await;
    let limiter = Policy::gcra("p", "60/min start 10").on(&store).unwrap();
    let name = store.key_name("p", "ada");
    let left = || standalone().run::<i64>(&format!("PTTL {name}"));
    assert_eq!((remaining(&limiter, "ada").await, left()), (10, -2), "a peek makes nobody known");
    let _ = limiter.refund("ada", 5).await.unwrap();
    assert_eq!(left(), -2, "a refund neither");
    let refused = limiter.check("ada").cost(11).await.unwrap();
    assert!(!refused.is_allowed());
    // Full after 50 seconds, and kept for a minute more, and up to a second.
    assert!((100_000..=111_000).contains(&left()), "{}", left());
    let _ = limiter.reset("ada").await.unwrap();
    assert_eq!((left(), remaining(&limiter, "ada").await), (-2, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_of_which_one_starts_newcomers_short_agree_about_who_is_known() {
    let clock = ManualClock::new();
    clock.set(START);
    let [one, other] = [instance("starting-mixed", &clock).await, instance("starting-mixed", &clock).await];
    let plain = Policy::gcra("p", "60/min").on(&one).unwrap();
    let starting = Policy::gcra("p", "60/min start 10").on(&other).unwrap();
    // Known by what it has spent under the other text.
    let _ = plain.check("ada").cost(5).await.unwrap();
    assert_eq!(remaining(&starting, "ada").await, 55);
    // Not known to either: what a newcomer lacks counts as spent under the other text, too.
    assert!(!starting.check("bob").cost(11).await.unwrap().is_allowed());
    let _ = starting.check("bob").cost(10).await.unwrap();
    assert_eq!((remaining(&starting, "bob").await, remaining(&plain, "bob").await), (0, 0));
    clock.advance(Duration::from_secs(30));
    let _ = starting.check("bob").cost(30).await.unwrap();
    assert_eq!((remaining(&starting, "bob").await, remaining(&plain, "bob").await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_key_stays_known_under_a_policy_with_another_start() {
    let clock = ManualClock::new();
    clock.set(START);
    let store = instance("starting-replaced", &clock).await;
    let limiter = Policy::token_bucket("p", "60/min start 10").on(&store).unwrap();
    let _ = limiter.check("full").cost(5).await.unwrap();
    clock.advance(Duration::from_secs(60));
    let _ = limiter.check("spent").cost(4).await.unwrap();
    for (quota, full, spent, new) in
        [("90/min start 3", 90, 36, 3), ("120/min", 120, 66, 120), ("60/min start 0", 60, 6, 0)]
    {
        limiter.replace(Policy::token_bucket("p", quota).build().unwrap(), Inherit::Spent).unwrap();
        let found = [remaining(&limiter, "full").await, remaining(&limiter, "spent").await];
        assert_eq!(found, [full, spent], "{quota}");
        assert_eq!(remaining(&limiter, "never seen").await, new, "{quota}");
    }
    limiter.reset_all().unwrap();
    assert_eq!(remaining(&limiter, "spent").await, 0);
}
