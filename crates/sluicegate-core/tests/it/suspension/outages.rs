//! Suspension while the store cannot be reached.

use sluicegate_core::store::DecidedBy;
use sluicegate_core::{OnOutage, Outcome, Policy, RateLimiter};

use super::suspended;
use crate::resilient::outages::{FAILS, Scene, WORKS, now};
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
        suspended(&limiter.suspend("ada", secs(1_800)).await.unwrap(), secs(1_800));
        scene.mood(FAILS);
        for _ in 0..20 {
            let decision = now(limiter.check("bob"));
            assert!(decision.outcome() != Outcome::Suspended, "{on_outage}: {decision:?}");
        }
        let decision = now(limiter.check("ada"));
        assert_eq!(decision.outcome(), outcome, "{on_outage}");
        assert_eq!(decision.quotas().len(), 1);
        assert!(limiter.suspend("eve", secs(60)).await.is_err(), "whoever suspends by hand has to know");
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
    suspended(&limiter.suspend("ada", secs(1_800)).await.unwrap(), secs(1_800));
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
