//! Policies that are replaced while their keys are in Redis.

use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::limiter::Inherit;
use sluicegate_core::{Algorithm, Policy, Quota, RateLimiter};
use sluicegate_redis::RedisStore;
use sluicegate_tests::servers::deployments::standalone;

use crate::support::{connected, patient};

async fn store() -> RedisStore {
    connected(patient("replace"), &standalone().url()).await
}

fn policy(algorithm: Algorithm, limit: u64) -> Policy {
    let name = algorithm.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Policy::builder(name, algorithm, Quota::per_day(limit)).build().expect("the policy is possible")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_starts_everybody_afresh_on_every_instance() {
    let (store, other) = (store().await, store().await);
    for algorithm in ALGORITHMS {
        let limiters = [&store, &other].map(|store| RateLimiter::new(store, policy(algorithm, 2)).unwrap());
        assert!(limiters[0].check("reset").cost(2).await.unwrap().is_allowed());
        for limiter in &limiters {
            assert!(!limiter.check("reset").await.unwrap().is_allowed(), "{algorithm}");
            limiter.replace(policy(algorithm, 4), Inherit::Reset).expect("the store can do that");
        }
        assert!(limiters[0].check("reset").cost(4).await.unwrap().is_allowed(), "{algorithm}");
        assert!(
            !limiters[1].check("reset").await.unwrap().is_allowed(),
            "{algorithm}: they share the new keys"
        );
    }
}

/// Once a reset of a policy with a version did nothing, as if another instance had said it already.
#[tokio::test(flavor = "multi_thread")]
async fn reset_all_forgets_every_key_with_a_version_or_without() {
    let (store, other) = (store().await, store().await);
    for algorithm in ALGORITHMS {
        for version in [None, Some(3)] {
            let name = format!("all-{}-{}", policy(algorithm, 2).name(), version.is_some());
            let opened = |store: &RedisStore| {
                let policy = Policy::builder(name.clone(), algorithm, Quota::per_day(2));
                version.into_iter().fold(policy, |policy, version| policy.version(version)).on(store).unwrap()
            };
            let (resets, shares) = (opened(&store), opened(&other));
            for key in ["ada", "bob", "eve"] {
                assert!(shares.check(key).cost(2).await.unwrap().is_allowed());
            }
            assert!(shares.check("dave").await.unwrap().is_allowed());
            resets.reset_all().expect("the store keeps the policy already");
            // Until an instance that was told so decides about it, a key stays as it is.
            assert!(!shares.check("ada").await.unwrap().is_allowed(), "{algorithm}, {version:?}");
            // With what others spend on it until then, as the documentation says.
            assert!(shares.check("dave").await.unwrap().is_allowed(), "{algorithm}, {version:?}");
            for key in ["ada", "bob", "dave"] {
                assert!(resets.check(key).cost(2).await.unwrap().is_allowed(), "{algorithm}, {version:?}");
                for limiter in [&resets, &shares] {
                    assert!(!limiter.check(key).await.unwrap().is_allowed(), "{algorithm}, {version:?}");
                }
            }
            // One that starts later knows nothing of it.
            let started = opened(&connected(patient("replace"), &standalone().url()).await);
            assert!(!started.check("eve").await.unwrap().is_allowed(), "{algorithm}, {version:?}");
        }
    }
}

/// Once the names from before the reset came back, with what was spent under them, and what was spent since was forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn what_replaces_a_policy_after_a_reset_finds_what_was_spent_since() {
    let store = store().await;
    for algorithm in ALGORITHMS {
        let limiter = RateLimiter::new(&store, policy(algorithm, 2)).unwrap();
        assert!(limiter.check("since").await.unwrap().is_allowed());
        limiter.replace(policy(algorithm, 1_000), Inherit::Reset).expect("the store can do that");
        assert!(limiter.check("since").cost(1_000).await.unwrap().is_allowed(), "{algorithm}");
        limiter.replace(policy(algorithm, 1_001), Inherit::AsIs).expect("the store can do that");
        let left = limiter.peek("since").await.unwrap().remaining();
        assert!(left <= 1, "{algorithm}: {left} are left of what was spent but for one");
    }
}
