//! What passes while a real server is gone.

use std::sync::Arc;
use std::time::Duration;

use sluicegate::rules::{Rules, RulesFile, Variables};
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{OnOutage, Policy, Quota, RateLimiter, Store};
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_resilient::{BreakerSettings, BreakerState};
use sluicegate_tests::servers::Server;

use crate::support;

/// How many of twenty pass, and by whom all of them were decided.
async fn passed(limiter: &RateLimiter) -> (usize, DecidedBy) {
    let (mut passed, mut by) = (0, DecidedBy::Off);
    for number in 0..20 {
        let decision = limiter.check("ada").await.expect("the policy decides");
        passed += usize::from(decision.is_allowed());
        assert!(number == 0 || by == decision.decided_by());
        by = decision.decided_by();
    }
    (passed, by)
}

/// Once `Local`, the default, let everything pass without `Resilient`.
#[tokio::test(flavor = "multi_thread")]
async fn a_bare_store_whose_server_is_killed_holds_limits_in_this_process() {
    let mut server = Server::start();
    let store =
        support::connected(RedisStore::builder().deadline(Duration::from_secs(5)), &server.url()).await;
    let of = |name, on_outage| Policy::gcra(name, "5/h").on_outage(on_outage).on(&store).unwrap();
    let [local, allow, deny] =
        [of("local", OnOutage::Local), of("allow", OnOutage::Allow), of("deny", OnOutage::Deny)];
    for limiter in [&local, &allow, &deny] {
        assert_eq!(passed(limiter).await, (5, DecidedBy::Store));
    }
    server.stop();
    for _ in 0..2 {
        assert_eq!(passed(&allow).await, (20, DecidedBy::Outage));
        assert_eq!(passed(&deny).await, (0, DecidedBy::Outage));
    }
    assert_eq!(passed(&local).await, (5, DecidedBy::Fallback));
    assert_eq!(passed(&local).await, (0, DecidedBy::Fallback));
    server.restart();
    store.connected(Duration::from_secs(20)).await.expect("it is back");
    assert_eq!(passed(&local).await, (5, DecidedBy::Store), "the server knows of no others");
    server.stop();
    assert_eq!(
        passed(&local).await,
        (0, DecidedBy::Fallback),
        "what passed in the outage before still counts"
    );
}

/// In code and in a file of rules, with a store that survives outages and with a bare one.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_for_outages_holds_while_the_server_is_gone_and_no_longer() {
    let rules = "version: 1
policies:
  ruled: { quota: [5/h, 50/d], on_outage: 8/h }
rules:
  - { name: all, limit: ruled, key: client }
";
    for is_bare in [false, true] {
        let mut server = Server::start();
        let settings = RedisStore::builder().deadline(Duration::from_secs(5));
        let redis = support::connected(settings, &server.url()).await;
        let resilient =
            Resilient::builder(&redis).replicas(4).breaker(BreakerSettings::new().ramp(Duration::ZERO));
        let resilient = resilient.build().unwrap();
        let store: Arc<dyn Store> = if is_bare { (&redis).into() } else { (&resilient).into() };
        let own = OnOutage::Quota(Quota::per_hour(8));
        let coded = Policy::gcra("coded", "5/h").on_outage(own).on(Arc::clone(&store)).unwrap();
        let rules = RulesFile::parse("rules.yaml", rules, &Variables::none()).expect("it can be read");
        let _in_force = Rules::new(Arc::clone(&store), rules).expect("they fit the store");
        let ruled = store.limiters().get("ruled").expect("the file has opened it");
        for limiter in [&coded, &ruled] {
            assert_eq!(passed(limiter).await, (5, DecidedBy::Store));
        }
        server.stop();
        // A store that survives outages knows of the five.
        let here = if is_bare { 8 } else { 3 };
        for limiter in [&coded, &ruled] {
            assert_eq!(passed(limiter).await, (here, DecidedBy::Fallback));
            assert_eq!(passed(limiter).await, (0, DecidedBy::Fallback));
        }
        server.restart();
        redis.connected(Duration::from_secs(20)).await.expect("it is back");
        for limiter in [&coded, &ruled] {
            while limiter.peek("ada").await.expect("it decides").decided_by() != DecidedBy::Store
                || resilient.status().breaker != BreakerState::Closed && !is_bare
            {
                tokio::task::yield_now().await;
            }
            assert_eq!(
                passed(limiter).await.0,
                5,
                "nothing was charged, and the server has forgotten the rest"
            );
        }
    }
}
