//! An outage that is decided by a quota of its own, not by a share of the policy's.

use std::time::Duration;

use sluicegate_core::limiter::check_all;
use sluicegate_core::policy::Quotas;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Key, OnOutage, Outcome, Policy, Quota, RateLimiter};
use sluicegate_tests::outages::{FAILS, Scene, WORKS, admitted, now};

fn seven_an_hour() -> OnOutage {
    OnOutage::Quota(Quota::per_hour(7))
}

#[test]
fn each_instance_decides_by_the_whole_of_it_in_the_place_of_all_quotas() {
    let scene = Scene::new(|builder| builder.replicas(4));
    let limiter = Policy::fixed_window("api", "100/h").and("900/d").on_outage(seven_an_hour());
    let limiter = limiter.on(&scene.store).unwrap();
    let plan = limiter.with_quotas("2/h, 2/d".parse::<Quotas>().unwrap()).unwrap();
    scene.mood(FAILS);
    let decision = now(limiter.check("ada"));
    assert_eq!((decision.quotas().len(), decision.capacity(), decision.remaining()), (1, 7, 6));
    assert_eq!(decision.decided_by(), DecidedBy::Fallback);
    assert_eq!(admitted(&limiter, "ada", 20), 6);
    assert_eq!(admitted(&plan, "bob", 20), 7, "it is for all keys");
    let ada = now(limiter.check("ada"));
    assert_eq!(
        (ada.outcome(), ada.retry_after().map(|wait| wait.as_secs() <= 3_600)),
        (Outcome::Denied, Some(true))
    );
    // Too much for it, and not for the policy: it can pass when the store is back.
    let batch = now(limiter.check("eve").cost(8));
    assert_eq!((batch.outcome(), batch.decided_by()), (Outcome::Denied, DecidedBy::Outage));
}

#[test]
fn it_begins_with_what_the_store_has_let_pass() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(seven_an_hour());
    assert_eq!(admitted(&limiter, "ada", 5), 5);
    scene.mood(FAILS);
    assert_eq!(admitted(&limiter, "ada", 20), 2);
}

#[tokio::test]
async fn what_passes_by_it_is_given_back_to_it_and_not_charged_to_the_store() {
    let scene = Scene::new(|builder| builder);
    let limiter = scene.limiter(seven_an_hour());
    scene.mood(FAILS);
    let mut first = limiter.check("ada").cost(7).await.unwrap();
    let mut receipt = first.take_receipt(0).unwrap();
    let _ = limiter.refund("ada", 3).of(&mut receipt).await.unwrap();
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 3);
    // What is reported is known to be owed, whatever an outage says of requests.
    let _ = limiter.charge("bob", 9).await.unwrap();
    scene.mood(WORKS);
    assert_eq!(scene.store.close(Duration::from_secs(5)).await, Ok(()));
    assert_eq!(limiter.peek("ada").await.unwrap().remaining(), 100);
    assert_eq!(limiter.peek("bob").await.unwrap().remaining(), 91);
}

#[test]
fn it_is_decided_together_with_what_others_say_of_the_outage() {
    let scene = Scene::new(|builder| builder);
    let of = |name, on_outage| Policy::gcra(name, "40/h").on_outage(on_outage).on(&scene.store).unwrap();
    let [own, local, allow, deny] = [
        of("own", seven_an_hour()),
        of("local", OnOutage::Local),
        of("allow", OnOutage::Allow),
        of("deny", OnOutage::Deny),
    ];
    scene.mood(FAILS);
    let ada = Key::from("ada");
    let all = |limiters: &[&RateLimiter]| now(check_all(limiters.iter().map(|of| of.check(&ada))));
    assert!(!all(&[&own, &deny]).is_allowed());
    for number in 0..9 {
        let decision = all(&[&allow, &own, &local]);
        assert_eq!(decision.is_allowed(), number < 7);
        assert_eq!(decision.deciding().policy_index(), 1);
    }
    assert_eq!(now(local.peek("ada")).remaining(), 3, "all have spent, or none");
}

#[test]
fn a_quota_that_the_algorithm_cannot_keep_is_refused_when_the_policy_is_built() {
    let nine = OnOutage::Quota(Quota::per_minute(5).burst(9));
    let error = Policy::sliding_log("login", "5/min").on_outage(nine).build().unwrap_err().to_string();
    assert!(error.starts_with("policy \"login\": in an outage, by 5/min burst 9: "), "{error}");
    assert!(error.contains("sliding-log"), "{error}");
}
