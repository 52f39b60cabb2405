//! What passes while a real server is gone, without `Resilient`.

use std::time::Duration;

use sluicegate_core::store::DecidedBy;
use sluicegate_core::{OnOutage, Policy, RateLimiter};
use sluicegate_redis::RedisStore;
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

/// Once `Local`, the default, let everything pass.
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
