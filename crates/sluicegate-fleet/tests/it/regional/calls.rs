//! Several limits over two stores, outages of either of them, and what is given back between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::limiter::check_all;
use sluicegate_core::limiter::{Inherit, Overrides};
use sluicegate_core::policy::Override;
use sluicegate_core::store::{DecidedBy, Place};
use sluicegate_core::{Key, MemoryStore, OnOutage, Outcome, Policy, RateLimiter, Store};
use sluicegate_fleet::Regional;
use sluicegate_resilient::Resilient;
use sluicegate_tests::memory::{answer, store};

use super::model::regional;
use crate::support::{failing, memory};

/// "eu" has 20 of 100 for itself, and 40 are the reserve.
fn on(store: &Arc<dyn Store>, policy: sluicegate_core::policy::PolicyBuilder) -> RateLimiter {
    RateLimiter::new(Arc::clone(store), policy.build().unwrap()).unwrap()
}

fn left(limiter: &RateLimiter) -> u64 {
    answer(limiter.peek("k")).remaining()
}

#[tokio::test]
async fn a_policy_that_is_switched_off_and_on_finds_its_keys_as_they_were() {
    let clock = ManualClock::new();
    let memory = || MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let api = on(&regional("eu", memory(), memory()), Policy::gcra("api", "100/min"));
    for mode in ["off", "shadow", "enforce"] {
        api.replace(api.policy().in_mode(mode.parse().unwrap()), Inherit::Spent).unwrap();
        assert!(api.check("k").cost(15).await.unwrap().is_allowed(), "{mode}");
    }
    assert_eq!(left(&api), 30, "what is off is not counted");
}

/// Its share and its part of the reserve stand under one name, each on its own store: an override and a replacement change both.
#[tokio::test]
async fn both_policies_of_a_name_follow_an_override_and_a_replacement() {
    let clock = ManualClock::new();
    let memory = || MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let (own, reserve) = (memory(), memory());
    let api = on(&regional("eu", &own, &reserve), Policy::gcra("api", "100/min"));
    let parts =
        || [&own, &reserve].map(|store| Arc::<dyn Store>::from(store).limiters().get("api").is_some());
    assert!(api.check("k").cost(30).await.unwrap().is_allowed());
    assert_eq!(left(&api), 30, "20 and 40, of which 30 are spent");
    let overrides = Overrides::of(Arc::clone(api.store()));
    let put = overrides.put(Override::builder("api", "ada").quota("200/min")).await.unwrap();
    assert_eq!((left(&api), answer(api.peek("k")).capacity()), (90, 120));
    for wrong in ["5/min", "500/min start 5"] {
        let change = Override::builder("api", "ada").quota(wrong).replacing(put.version());
        assert!(overrides.put(change).await.is_err(), "{wrong}");
        assert!(api.replace(Policy::gcra("api", wrong).build().unwrap(), Inherit::Spent).is_err(), "{wrong}");
        assert_eq!((left(&api), answer(api.peek("k")).capacity()), (90, 120), "{wrong}");
    }
    overrides.withdraw("api", put.version(), "ada").await.unwrap();
    assert_eq!(left(&api), 30);
    api.replace(Policy::gcra("api", "150/min").build().unwrap(), Inherit::Spent).unwrap();
    assert_eq!((left(&api), answer(api.peek("k")).capacity()), (60, 90));
    assert_eq!(parts(), [false, false], "the parts have no handles of their own");
}

#[tokio::test]
async fn what_no_region_can_have_a_share_of_is_refused_with_the_reason() {
    let clock = ManualClock::new();
    let memory = || MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let store = regional("eu", memory(), memory());
    for (policy, reason) in [
        (Policy::gcra("api", "5/min"), "one of 4 parts would have none of 5 units"),
        (Policy::leaky_queue("api", "500/min"), "a queue spaces its output in one place"),
        (Policy::gcra("api", "500/min start 5"), "would be known to one part and not to another"),
    ] {
        let error = policy.on(Arc::clone(&store)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn several_limits_on_two_stores_spend_together_or_not_at_all() {
    let (memory, clock) = store();
    let reserve = MemoryStore::builder().table_size(64).clock(clock).build().unwrap();
    let store = regional("eu", &memory, &reserve);
    let [wide, narrow] =
        [("wide", "100/h"), ("narrow", "50/h")].map(|(name, quota)| on(&store, Policy::gcra(name, quota)));
    let key = Key::from("k");
    let both = |costs: [u64; 2]| {
        answer(check_all([wide.check(&key).cost(costs[0]), narrow.check(&key).cost(costs[1])]))
    };
    // Own shares are 20 and 10, reserves 40 and 20.
    assert!(both([15, 5]).is_allowed());
    assert!(both([5, 15]).is_allowed(), "one from its share, the other from the reserve");
    assert_eq!((left(&wide), left(&narrow)), (40, 10));
    let refused = both([1, 11]);
    assert_eq!((refused.outcome(), refused.deciding().policy_index()), (Outcome::Denied, 1));
    assert_eq!((left(&wide), left(&narrow)), (40, 10), "nothing is kept on either store");
    assert!(both([40, 5]).is_allowed());
    assert_eq!((left(&wide), left(&narrow)), (0, 5));
}

#[test]
fn what_the_region_has_spent_is_given_back_when_the_reserve_is_away() {
    let clock = ManualClock::new();
    let ((own, _), (reserve, reserve_fails)) = (failing(&memory(&clock)), failing(&memory(&clock)));
    let store = regional("eu", own, reserve);
    let api = on(&store, Policy::gcra("api", "100/h").on_outage(OnOutage::Deny).refunds());
    assert!(answer(api.check("k").cost(10)).is_allowed());
    reserve_fails.store(true, Ordering::Relaxed);
    assert!(answer(api.check("k").cost(10)).is_allowed(), "its own share does not need the reserve");
    let refused = answer(api.check("k"));
    assert_eq!((refused.is_allowed(), refused.decided_by()), (false, DecidedBy::Outage));
    reserve_fails.store(false, Ordering::Relaxed);
    assert_eq!(left(&api), 40);
    assert!(answer(api.check("k").cost(40)).is_allowed());
}

/// Three regions with two instances each.
#[tokio::test]
async fn with_resilient_stores_within_no_outage_of_either_admits_more_than_the_whole() {
    for (own_is_away, reserve_is_away) in [(true, false), (false, true), (true, true)] {
        let clock = ManualClock::new();
        let (reserve, reserve_fails) = failing(&memory(&clock));
        let mut admitted = 0;
        let mut limiters = Vec::new();
        for (region, _) in super::model::REGIONS {
            let (own, own_fails) = failing(&memory(&clock));
            for _ in 0..2 {
                let resilient = |store: &Arc<dyn Store>, replicas| {
                    let store = Resilient::builder(Arc::clone(store)).replicas(replicas);
                    store.clock(clock.clone()).build().unwrap()
                };
                let store = regional(region, resilient(&own, 2), resilient(&reserve, 6));
                limiters.push(on(&store, Policy::gcra("api", "120/h")));
            }
            own_fails.store(own_is_away, Ordering::Relaxed);
        }
        reserve_fails.store(reserve_is_away, Ordering::Relaxed);
        for _ in 0..100 {
            for limiter in &limiters {
                let decision = limiter.check("k").await.unwrap();
                admitted += u64::from(decision.is_allowed());
            }
        }
        // Shares of 12, 24 and 36, and a reserve of 48, all of which divide evenly.
        assert_eq!(admitted, 120, "own away: {own_is_away}, reserve away: {reserve_is_away}");
        clock.advance(Duration::from_secs(60));
    }
}

#[test]
fn stores_that_survive_outages_go_within_and_those_that_decide_locally_around() {
    let resilient = || Resilient::new(MemoryStore::new());
    let store = regional("eu", resilient(), resilient());
    assert_eq!(store.place(), Some(Place::Resilient));
    assert!(Resilient::builder(Arc::clone(&store)).build().is_err());
    let plain = regional("eu", MemoryStore::new(), MemoryStore::new());
    assert_eq!(plain.place(), Some(Place::Shard));
    assert!(Resilient::builder(Arc::clone(&plain)).build().is_ok());
    let nested = Regional::builder("eu", plain, MemoryStore::new()).region("eu", 1).build();
    assert!(nested.unwrap_err().to_string().contains("around a store that is Sharded or Regional already"));
}
