//! Which policies are in shards, and which settings are refused.

use std::sync::Arc;

use sluicegate_core::algorithm::{Anchor, Drain};
use sluicegate_core::limiter::Inherit;
use sluicegate_core::policy::{Override, PolicyBuilder};
use sluicegate_core::{Algorithm, MemoryStore, Policy, RateLimiter, Store};
use sluicegate_fleet::Sharded;
use sluicegate_tests::memory::{answer, store};

fn refusal(policy: PolicyBuilder) -> String {
    let store = Sharded::builder(MemoryStore::new(), 4).policy("api").build().unwrap();
    policy.on(&store).unwrap_err().to_string()
}

/// Whether the store within has shards of the policy.
fn is_sharded(store: &Sharded, memory: &MemoryStore, policy: PolicyBuilder) -> bool {
    let policy = policy.build().unwrap();
    let limiter = RateLimiter::new(store, policy.clone()).unwrap();
    let _ = answer(limiter.check("ada"));
    let whole = RateLimiter::new(memory, policy);
    let is_whole = whole.is_ok_and(|whole| {
        answer(whole.peek("ada")).remaining() + 1 == answer(whole.peek("eve")).remaining()
    });
    !is_whole
}

#[test]
fn a_named_policy_that_shards_cannot_keep_is_refused_with_the_reason() {
    let queue = Algorithm::LeakyBucket(Drain::Queue);
    let first_hit = Algorithm::FixedWindow(Anchor::FirstHit);
    for (policy, reason) in [
        (Policy::gcra("api", "3/s"), "one of 4 parts would have none of 3 units: use fewer parts"),
        (Policy::gcra("api", "300/s burst 2"), "would have none of 2 units"),
        (Policy::builder("api", queue, "300/s"), "cannot be split into 4 parts: a queue spaces its output"),
        (Policy::builder("api", first_hit, "300/s"), "would begin at several times"),
        (Policy::gcra("api", "300/s start 5"), "would be known to one part and not to another"),
        (
            Policy::gcra("api", "30/s").and("60/min").and("99/h").and("99/d").and("999/w"),
            "4 parts of 5 quotas are 20 buckets, and at most 16 are decided together: use at most 3 parts",
        ),
    ] {
        let message = refusal(policy);
        assert!(message.contains(reason) && message.contains("api"), "{message}");
    }
}

#[test]
fn settings_that_cannot_be_are_refused_with_the_value() {
    for (shards, problem) in [(0, "0 shards"), (1, "1 shards"), (17, "17 shards of a key: use 2 to 16")] {
        let error = Sharded::builder(MemoryStore::new(), shards).above(1).build().unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
    let error = Sharded::builder(MemoryStore::new(), 2).build().unwrap_err();
    assert!(error.to_string().contains("no policy would be in shards"), "{error}");
}

#[test]
fn of_all_above_a_limit_those_are_in_shards_that_can_be() {
    let (memory, _) = store();
    let store = Sharded::builder(&memory, 4).policy("small").above(1_000).build().unwrap();
    let builder = |name: &str, quota: &str| Policy::gcra(name, quota);
    for (policy, expected) in [
        (builder("large", "1001/h"), true),
        (builder("at-it", "1000/h"), false),
        (builder("small", "8/h"), true),
        (builder("one-small", "2000/h").and("500/min"), false),
        (builder("both", "2000/h").and("1500/min"), true),
        (builder("narrow", "2000/h burst 3"), false),
        (builder("starting", "2000/h start 1999"), false),
        (Policy::leaky_queue("queue", "2000/h"), false),
        (Policy::builder("first", Algorithm::FixedWindow(Anchor::FirstHit), "2000/h"), false),
    ] {
        let name = policy.clone().build().unwrap().to_string();
        assert_eq!(is_sharded(&store, &memory, policy), expected, "{name}");
    }
}

#[test]
fn a_policy_that_is_replaced_keeps_its_shards_and_its_keys() {
    let (memory, _) = store();
    let store = Sharded::builder(&memory, 4).above(50).build().unwrap();
    let (large, small) =
        (Policy::gcra("large", "100/h").on(&store), Policy::gcra("small", "40/h").on(&store));
    let (large, small) = (large.unwrap(), small.unwrap());
    let left = |limiter: &RateLimiter| answer(limiter.peek("ada")).remaining();
    for _ in 0..60 {
        assert!(answer(large.check("ada")).is_allowed());
    }
    assert!(answer(small.check("ada").cost(30)).is_allowed());
    large.replace(Policy::gcra("large", "40/h").build().unwrap(), Inherit::Spent).unwrap();
    small.replace(Policy::gcra("small", "100/h").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!((left(&large), left(&small)), (0, 70));
    large.replace(Policy::gcra("large", "100/h").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!(left(&large), 40);
    large.replace(Policy::gcra("large", "200/h").build().unwrap(), Inherit::Reset).unwrap();
    assert_eq!(left(&large), 200);
    let error = large.replace(Policy::gcra("large", "3/h").build().unwrap(), Inherit::Spent).unwrap_err();
    assert!(error.to_string().contains("one of 4 parts would have none of 3 units"), "{error}");
    assert_eq!(left(&large), 200, "the old policy stays in force");
}

#[tokio::test]
async fn an_override_holds_for_all_shards_until_it_is_withdrawn() {
    let (memory, _) = store();
    let store: Arc<dyn Store> = Sharded::builder(&memory, 4).policy("api").build().unwrap().into();
    let api = RateLimiter::new(Arc::clone(&store), Policy::gcra("api", "100/h").build().unwrap()).unwrap();
    assert!(api.check("ada").cost(10).await.unwrap().is_allowed());
    let overrides = sluicegate_core::limiter::Overrides::of(Arc::clone(&store));
    let put = overrides.put(Override::builder("api", "operator").quota("40/h")).await.unwrap();
    assert_eq!(api.peek("ada").await.unwrap().remaining(), 30);
    let error =
        overrides.put(Override::builder("api", "operator").quota("3/h").replacing(put.version())).await;
    assert!(error.is_err(), "shards cannot keep it");
    let starting =
        overrides.put(Override::builder("api", "operator").quota("40/h start 8").replacing(put.version()));
    let error = starting.await.unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(
        format!("{error}: {source}").contains("would be known to one part and not to another"),
        "{error}: {source}"
    );
    assert_eq!(api.peek("ada").await.unwrap().remaining(), 30, "the first one stands");
    overrides.withdraw("api", put.version(), "operator").await.unwrap();
    assert_eq!(api.peek("ada").await.unwrap().remaining(), 90);
}
