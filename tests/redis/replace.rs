//! Policies that are replaced while their keys are in Redis.

use std::time::Duration;

use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::limiter::{self, Inherit};
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
async fn a_lower_limit_finds_what_was_spent_and_blocks_nobody_for_longer_than_that_counts() {
    let store = store().await;
    for algorithm in ALGORITHMS {
        let limiter = RateLimiter::new(&store, policy(algorithm, 2_000)).unwrap();
        assert!(limiter.check("lower").cost(2_000).await.unwrap().is_allowed());
        limiter.replace(policy(algorithm, 3), Inherit::AsIs).expect("the store can do that");
        let decision = limiter.check("lower").await.unwrap();
        assert!(!decision.is_allowed(), "{algorithm}: what was spent is forgotten");
        let wait = decision.retry_after().expect("it fits one day");
        assert!(wait <= Duration::from_secs(2 * 86_400), "{algorithm}: {wait:?}");
        // Once more with a debt: what is written under the new limit is read again.
        assert_eq!(limiter.charge("lower", 1).await.unwrap().remaining(), 0, "{algorithm}");
        assert!(!limiter.check("lower").await.unwrap().is_allowed(), "{algorithm}");
    }
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

/// Five policies, of which the third is one that no store here can keep if `is_bad`.
fn five(limit: u64, is_bad: bool) -> Vec<Policy> {
    let of = |name: &str| Policy::gcra(format!("five-{name}"), Quota::per_day(limit)).build().unwrap();
    let log = Quota::per_day(if is_bad { 1_000_000 } else { 5 });
    let third = Policy::sliding_log("five-c", log).build().unwrap();
    vec![of("a"), of("b"), third, of("d"), of("e")]
}

#[tokio::test(flavor = "multi_thread")]
async fn several_policies_of_which_one_is_refused_change_nothing() {
    let store = store().await;
    assert!(limiter::open_all(&store, five(9, true)).is_err());
    let opened = limiter::open_all(&store, five(5, false)).expect("none of the names is open");
    for limiter in &opened {
        assert!(limiter.check("several").cost(3).await.unwrap().is_allowed());
    }
    for inherit in [Inherit::Spent, Inherit::Reset, Inherit::AsIs] {
        assert!(limiter::replace_all(&store, five(9, true), |_| inherit, |_| Ok(())).is_err());
    }
    for limiter in &opened {
        assert_eq!(limiter.peek("several").await.unwrap().remaining(), 2);
        assert_eq!(limiter.replacements(), 0);
    }
    limiter::replace_all(&store, five(9, false), |_| Inherit::Spent, |_| Ok(()))
        .expect("the store can keep them");
    for (limiter, left) in opened.iter().zip([6, 6, 2, 6, 6]) {
        assert_eq!(limiter.peek("several").await.unwrap().remaining(), left);
    }
}
