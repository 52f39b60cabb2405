//! Suspension while the store cannot be reached.

use sluicegate_core::limiter::Inherit;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{OnOutage, Outcome, Policy, RateLimiter};
use sluicegate_tests::outages::{
    CHARGES_NOTHING_ALONE, CHARGES_NOTHING_ALONE_AND_LATE, FAILS, Scene, WORKS, now,
};

use super::suspended;
use crate::support::secs;

fn api(scene: &Scene, on_outage: OnOutage) -> RateLimiter {
    let policy = Policy::fixed_window("api", "1/d").suspend(4, "1h", "30min").everywhere_with_addresses();
    policy.on_outage(on_outage).on(&scene.store).expect("the policy fits the store")
}

#[tokio::test]
async fn a_suspension_that_cannot_be_read_is_decided_as_the_policy_says_of_an_outage() {
    for (on_outage, outcome) in [
        (OnOutage::Allow, Outcome::Allowed),
        (OnOutage::Deny, Outcome::Denied),
        (OnOutage::Local, Outcome::Allowed),
    ] {
        let scene = Scene::new(|builder| builder);
        let limiter = api(&scene, on_outage);
        suspended(&limiter.suspensions().suspend("ada", secs(1_800)).await.unwrap(), secs(1_800));
        scene.mood(FAILS);
        for _ in 0..20 {
            let decision = now(limiter.check("bob"));
            assert!(decision.outcome() != Outcome::Suspended, "{on_outage}: {decision:?}");
        }
        let decision = now(limiter.check("ada"));
        assert_eq!(decision.outcome(), outcome, "{on_outage}");
        assert_eq!(decision.quotas().len(), 1);
        assert!(
            limiter.suspensions().suspend("eve", secs(60)).await.is_err(),
            "whoever suspends by hand has to know"
        );
        scene.mood(WORKS);
        scene.advance(60);
        assert_eq!(now(limiter.check("ada")).outcome(), Outcome::Suspended, "{on_outage}");
        // What was settled meanwhile has suspended nobody.
        tokio::task::yield_now().await;
        let bob = now(limiter.check("bob"));
        assert!(bob.outcome() != Outcome::Suspended, "{on_outage}: refusals that no store made do not count");
    }
}

#[tokio::test]
async fn a_process_that_decides_alone_knows_its_own_suspensions_and_counts_with_its_share() {
    let scene = Scene::new(|builder| builder.replicas(2));
    let policy = Policy::fixed_window("api", "2/d").suspend(4, "1h", "30min");
    let limiter = policy.on(&scene.store).unwrap();
    suspended(&limiter.suspensions().suspend("ada", secs(1_800)).await.unwrap(), secs(1_800));
    scene.mood(FAILS);
    let ada = now(limiter.check("ada"));
    assert_eq!((ada.outcome(), ada.decided_by()), (Outcome::Suspended, DecidedBy::Fallback));
    let outcomes: Vec<_> = (0..4).map(|_| now(limiter.check("bob")).outcome()).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Denied, Outcome::Suspended, Outcome::Suspended]);
    scene.mood(WORKS);
    scene.advance(60);
    for key in ["eve", "zoe", "max"] {
        assert!(now(limiter.check(key)).is_allowed());
    }
    tokio::task::yield_now().await;
    let bob = now(limiter.check("bob"));
    assert_eq!((bob.outcome(), bob.decided_by()), (Outcome::Suspended, DecidedBy::Store));
    assert_eq!(bob.retry_after(), Some(secs(1_740)), "the store is told of what is left");
}

/// Each process has suspended the key by itself, and each told the store what was left: their suspensions added up.
#[tokio::test]
async fn processes_that_suspend_a_key_in_the_same_outage_suspend_it_once_and_until_the_latest_of_their_ends()
{
    let scene = Scene::new(|builder| builder.replicas(4));
    let others = [(); 3].map(|()| scene.another());
    let policy = || Policy::fixed_window("api", "4/d").suspend(4, "1h", "30min");
    let limiters: Vec<_> =
        [&scene.store].into_iter().chain(&others).map(|store| policy().on(store).unwrap()).collect();
    let settled = async || {
        for limiter in &limiters {
            // After some answers the store is trusted, and told of debts.
            for _ in 0..3 {
                assert!(now(limiter.peek("eve")).is_allowed());
            }
            tokio::task::yield_now().await;
        }
    };
    scene.mood(FAILS);
    for limiter in &limiters {
        let outcomes: Vec<_> = (0..3).map(|_| now(limiter.check("bob")).outcome()).collect();
        assert_eq!(outcomes, [Outcome::Allowed, Outcome::Suspended, Outcome::Suspended]);
        scene.advance(60);
    }
    scene.mood(WORKS);
    scene.advance(60);
    settled().await;
    let lasts = |limiter: &RateLimiter| {
        let bob = now(limiter.peek("bob"));
        assert_eq!((bob.outcome(), bob.decided_by()), (Outcome::Suspended, DecidedBy::Store));
        bob.retry_after().unwrap()
    };
    // The last of them has suspended it two minutes ago.
    for limiter in &limiters {
        assert_eq!(lasts(limiter), secs(1_680));
    }
    // It was suspended once: the next time lasts twice as long, and not sixteen times.
    scene.advance(1_680);
    let bob = loop {
        let bob = now(limiters[0].check("bob"));
        if bob.outcome() == Outcome::Suspended {
            break bob;
        }
        assert_eq!(bob.outcome(), Outcome::Denied);
    };
    assert_eq!(bob.retry_after(), Some(secs(3_600)));
}

#[tokio::test]
async fn a_suspension_that_the_store_knows_to_last_longer_is_left_as_it_is() {
    let scene = Scene::new(|builder| builder.replicas(1));
    let other = scene.another();
    let policy = || Policy::fixed_window("api", "1/d").suspend(2, "1h", "30min");
    let (here, there) = (policy().on(&scene.store).unwrap(), policy().on(&other).unwrap());
    assert!(now(here.check("bob")).is_allowed());
    suspended(&there.suspensions().suspend("bob", secs(86_400)).await.unwrap(), secs(86_400));
    scene.mood(FAILS);
    // This process does not know of it.
    let outcomes: Vec<_> = (0..2).map(|_| now(here.check("bob")).outcome()).collect();
    assert_eq!(outcomes, [Outcome::Denied, Outcome::Suspended]);
    scene.mood(WORKS);
    scene.advance(60);
    for key in ["eve", "zoe", "max"] {
        assert!(now(here.check(key)).is_allowed());
    }
    tokio::task::yield_now().await;
    assert_eq!(scene.store.status().debts, 0);
    let left = now(here.peek("bob")).retry_after().unwrap();
    assert_eq!(left, secs(86_340), "by hand it was a day");
}

/// The count failed after the key was suspended. When the store was told again, that was no new suspension, and it was never counted.
#[tokio::test]
async fn a_suspension_whose_count_failed_is_counted_when_the_store_takes_it() {
    let scene = Scene::new(|builder| builder.replicas(1));
    let limiter = Policy::fixed_window("api", "1/d").suspend(2, "1h", "30min").on(&scene.store).unwrap();
    let settled = async || settled(&scene, &limiter).await;
    suspends_alone(&scene, &limiter);
    scene.mood(CHARGES_NOTHING_ALONE);
    settled().await;
    let bob = now(limiter.peek("bob"));
    assert_eq!((bob.decided_by(), bob.retry_after()), (DecidedBy::Store, Some(secs(1_740))));
    scene.mood(WORKS);
    settled().await;
    assert_eq!(scene.store.status().debts, 0);
    assert_eq!(now(limiter.peek("bob")).retry_after(), Some(secs(1_680)), "it is not told again");
    scene.advance(1_680);
    let again = (0..3).map(|_| now(limiter.check("bob"))).find(|bob| bob.outcome() == Outcome::Suspended);
    assert_eq!(again.unwrap().retry_after(), Some(secs(3_600)), "the second one lasts twice as long");
}

/// A key is suspended by this process alone.
fn suspends_alone(scene: &Scene, limiter: &RateLimiter) {
    scene.mood(FAILS);
    let outcomes: Vec<_> = (0..3).map(|_| now(limiter.check("bob")).outcome()).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Denied, Outcome::Suspended]);
}

/// A minute later the store is trusted after some answers, and told of debts.
async fn settled(scene: &Scene, limiter: &RateLimiter) {
    scene.advance(60);
    for _ in 0..3 {
        assert!(now(limiter.peek("eve")).is_allowed());
    }
    tokio::task::yield_now().await;
}

/// Once it went on under the terms that were replaced while it was out, or was owed.
#[tokio::test]
async fn a_count_that_failed_is_made_once_under_the_terms_that_are_in_force_by_then() {
    for mood in [CHARGES_NOTHING_ALONE, CHARGES_NOTHING_ALONE_AND_LATE] {
        let scene = Scene::new(|builder| builder.replicas(1));
        let policy = |days: &str| Policy::fixed_window("api", "1/d").suspend(2, "1h", "30min").remember(days);
        let limiter = policy("1d").on(&scene.store).unwrap();
        suspends_alone(&scene, &limiter);
        scene.mood(mood);
        settled(&scene, &limiter).await;
        // The key is suspended there; its count has failed, or is about to.
        limiter.replace(policy("9d").build().unwrap(), Inherit::Spent).unwrap();
        tokio::task::yield_now().await;
        assert_eq!(limiter.suspensions().strikes("bob").await.unwrap().unwrap().suspensions, 0);
        scene.mood(WORKS);
        // The first round may meet the charge that is still to fail.
        for _ in 0..3 {
            settled(&scene, &limiter).await;
        }
        assert_eq!(limiter.suspensions().strikes("bob").await.unwrap().unwrap().suspensions, 1);
        assert_eq!(scene.store.status().debts, 0);
        // Under the old terms it would be forgotten by now.
        scene.advance(3 * 86_400);
        assert_eq!(limiter.suspensions().strikes("bob").await.unwrap().unwrap().suspensions, 1);
    }
}

/// Once it was dropped with the count of a later suspension that was none to the store.
#[tokio::test]
async fn a_count_that_failed_is_made_whatever_the_store_says_of_the_next_suspension() {
    let scene = Scene::new(|builder| builder.replicas(1));
    let other = scene.another();
    let policy = || Policy::fixed_window("api", "1/h").suspend(2, "1h", "30min").remember("9d");
    let (here, there) = (policy().on(&scene.store).unwrap(), policy().on(&other).unwrap());
    suspends_alone(&scene, &here);
    scene.mood(CHARGES_NOTHING_ALONE);
    settled(&scene, &here).await;
    scene.advance(7_200);
    suspended(&there.suspensions().suspend("bob", secs(86_400)).await.unwrap(), secs(86_400));
    suspends_alone(&scene, &here);
    scene.mood(WORKS);
    settled(&scene, &here).await;
    assert_eq!(scene.store.status().debts, 0);
    assert_eq!(now(here.peek("bob")).retry_after(), Some(secs(86_340)), "by hand it was a day");
    assert_eq!(here.suspensions().strikes("bob").await.unwrap().unwrap().suspensions, 1);
}
