//! A cache of refusals around a store on Redis.

use std::time::Duration;

use sluicegate_core::Policy;
use sluicegate_core::clock::ManualClock;
use sluicegate_fleet::DenyCache;
use sluicegate_tests::servers::{self, Server};

use crate::support::{connected, patient};

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_a_thousand_refused_keys_costs_redis_less_than_one_call_in_a_hundred() {
    let (server, clock) = (Server::start(), ManualClock::new());
    clock.set(Duration::from_secs(1_800_000_000));
    let redis = connected(patient("flood").clock(clock.clone()), &server.url()).await;
    let cache = DenyCache::builder(redis).clock(clock.clone()).longest(Duration::from_secs(3));
    let login = Policy::gcra("login", "5/min").on(cache.build().unwrap()).unwrap();
    let (keys, seconds, mut admitted) = (1_000_u64, 15, 0);
    let before = servers::script_calls(&mut server.admin());
    for _ in 0..seconds * 100 {
        for key in 0..keys {
            admitted += u64::from(login.check(key).await.unwrap().is_allowed());
        }
        clock.advance(Duration::from_millis(10));
    }
    let (asked, calls) = (keys * seconds * 100, servers::script_calls(&mut server.admin()) - before);
    assert_eq!(admitted, keys * (5 + 1));
    assert!(calls * 100 < asked, "{calls} of {asked}");
}
