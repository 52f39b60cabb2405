//! Requests that come before the first connection stands.

use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{OnOutage, Policy};
use sluicegate_fleet::Sharded;
use sluicegate_redis::RedisStore;
use sluicegate_resilient::Resilient;
use sluicegate_tests::servers::deployments::standalone;
use tokio::time::Instant;

/// A port on which nobody listens.
const NOBODY: &str = "redis://127.0.0.1:1";

#[tokio::test(flavor = "multi_thread")]
async fn from_the_first_moment_on_exactly_the_limit_passes() {
    for round in 0..10 {
        let store = RedisStore::builder()
            .prefix(format!("first-{round}"))
            .deadline(Duration::from_secs(5))
            .connect(&standalone().url())
            .unwrap();
        let api = Policy::gcra("api", "5/min").on(&store).unwrap();
        let decisions = join_all((0..200).map(|_| api.check("ada").start())).await;
        let passed = decisions.iter().filter(|decision| decision.as_ref().unwrap().is_allowed()).count();
        assert_eq!(passed, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn without_redis_the_first_answers_come_at_one_moment_and_later_ones_at_once() {
    let start = Instant::now();
    let store = RedisStore::builder().first_connection(Duration::from_secs(3)).connect(NOBODY).unwrap();
    for (name, on_outage) in [("open", OnOutage::Allow), ("closed", OnOutage::Deny)] {
        let limiter = Policy::gcra(name, "5/min").on_outage(on_outage).on(&store).unwrap();
        let decisions = join_all((0..20).map(|_| limiter.check("ada").start())).await;
        for decision in decisions {
            let decision = decision.unwrap();
            assert_eq!(decision.is_allowed(), on_outage == OnOutage::Allow);
            assert_eq!(decision.decided_by(), DecidedBy::Outage);
        }
        // The first policy's have waited, the second's have not.
        assert_eq!(start.elapsed().as_secs(), 3);
    }
}

/// Who decides in the place of a store that is not there yet does so from the first request on, also where there are shards between.
#[tokio::test(start_paused = true)]
async fn a_fallback_decides_from_the_first_request_on() {
    let start = Instant::now();
    let redis = RedisStore::connect(NOBODY).unwrap();
    let store = Resilient::new(Sharded::builder(&redis, 2).policy("hot").build().unwrap());
    let api = Policy::gcra("api", "5/min").on(&store).unwrap();
    for number in 0..9 {
        let decision = api.check("ada").await.unwrap();
        assert_eq!((decision.is_allowed(), decision.decided_by()), (number < 5, DecidedBy::Fallback));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_where_that_is_said() {
    let start = Instant::now();
    let store = RedisStore::builder().first_connection(Duration::ZERO).connect(NOBODY).unwrap();
    let api = Policy::gcra("api", "5/h").on(&store).unwrap();
    for number in 0..9 {
        let decision = api.check("ada").await.unwrap();
        assert_eq!((decision.is_allowed(), decision.decided_by()), (number < 5, DecidedBy::Fallback));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let error = RedisStore::builder().first_connection(Duration::from_secs(61)).connect(NOBODY).unwrap_err();
    assert!(error.to_string().contains("a wait of 61s for the first connection"), "{error}");
}
