//! A cache of refusals around a store on Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_core::clock::{Clock, ManualClock};
use sluicegate_core::limiter::check_all;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Decision, Key, Policy, Quota, RateLimiter, Store};
use sluicegate_fleet::DenyCache;
use sluicegate_tests::servers::deployments::Cluster;
use sluicegate_tests::servers::{self, Server};
use tokio::sync::oneshot;

use crate::support::{GoesOn, connected, patient};

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

/// How a request asks for one unit of the narrow limit, all of it in one slot.
#[derive(Clone, Copy, Debug)]
enum Way {
    Check,
    UpTo,
    /// A limit inside a limit, of the same key.
    Within,
}

/// Two limits, of a user and of an address, which live in two slots.
#[derive(Clone)]
struct Two {
    narrow: RateLimiter,
    inner: RateLimiter,
    wide: RateLimiter,
    user: Key,
    address: Key,
}

impl Two {
    fn on(store: impl Into<Arc<dyn Store>>, narrow: u64) -> Self {
        // Nothing comes back during a test.
        let quota = |limit| Quota::new(limit, Duration::from_secs(300 * 86_400));
        let store = store.into();
        let on = |policy: Policy| RateLimiter::new(Arc::clone(&store), policy).unwrap();
        Self {
            narrow: on(Policy::gcra("narrow", quota(narrow)).and(quota(50)).named("second").build().unwrap()),
            inner: on(Policy::gcra("inner", quota(7)).build().unwrap()),
            wide: on(Policy::gcra("wide", quota(9)).build().unwrap()),
            user: Key::from("ada"),
            address: Key::from("198.51.100.7"),
        }
    }

    async fn narrow(&self, way: Way) -> Decision {
        let decision = match way {
            Way::Check => self.narrow.check(&self.user).start(),
            Way::UpTo => self.narrow.check(&self.user).up_to(3).start(),
            Way::Within => check_all([self.narrow.check(&self.user), self.inner.check(&self.user)]),
        };
        decision.await.unwrap()
    }
}

/// A request in two slots has spent a unit of the narrow limit, which somebody asks for who is cached; then the wide limit refuses it, and
/// the unit comes back. The answer to the one who asked, and a cache that has heard it.
async fn held_for_a_moment(narrow: u64, way: Way) -> (Decision, Two, ManualClock) {
    let (clock, cluster) = (ManualClock::new(), Cluster::shared());
    let moment = Duration::from_secs(1_800_000_000);
    clock.set(moment);
    let prefix = format!("held-{narrow}-{way:?}").to_lowercase();
    let clocked =
        async |clock: Arc<dyn Clock>| connected(patient(&prefix).clock(clock), &cluster.url()).await;
    let redis = clocked(Arc::new(clock.clone())).await;
    let cache = DenyCache::builder(redis.clone())
        .clock(clock.clone())
        .longest(Duration::from_secs(5))
        .build()
        .unwrap();
    let (cached, direct) = (Two::on(cache, narrow), Two::on(redis, narrow));
    let (runtime, (asks, elsewhere)) = (tokio::runtime::Handle::current(), (cached.clone(), direct.clone()));
    let (tell, told) = oneshot::channel();
    let mut tell = Some(tell);
    let before = move || {
        let (runtime, asks, elsewhere) = (runtime.clone(), asks.clone(), elsewhere.clone());
        let ask = move || {
            runtime.block_on(async move {
                assert!(elsewhere.wide.check(&elsewhere.address).cost(9).await.unwrap().is_allowed());
                asks.narrow(way).await
            })
        };
        let answer = std::thread::spawn(ask).join().unwrap();
        _ = tell.take().unwrap().send(answer);
    };
    let goes_on = Arc::new(GoesOn::new([moment; 2], before));
    let both = Two::on(clocked(Arc::clone(&goes_on) as Arc<dyn Clock>).await, narrow);
    goes_on.begin();
    let refused = check_all([both.wide.check(&both.address).cost(2), both.narrow.check(&both.user)]);
    assert!(!refused.await.unwrap().is_allowed());
    let answer = told.await.unwrap();
    let left = narrow - u64::from(answer.is_allowed());
    let until = Instant::now() + Duration::from_secs(20);
    while direct.narrow.peek(&direct.user).await.unwrap().remaining() < left {
        assert!(Instant::now() < until, "the unit does not come back");
    }
    (answer, cached, clock)
}

/// Once such a refusal was kept for two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_unit_that_a_request_in_two_slots_gives_back_passes_at_once_through_a_cache() {
    for way in [Way::Check, Way::UpTo, Way::Within] {
        let (refused, cached, clock) = held_for_a_moment(1, way).await;
        assert!(!refused.is_allowed(), "{way:?}");
        let lines: Vec<_> = refused.quotas().iter().map(|of| (of.passed(), of.is_provisional())).collect();
        assert_eq!(lines[..2], [(false, true), (true, true)], "{way:?}");
        let passes = cached.narrow(way).await;
        assert!(passes.is_allowed() && passes.decided_by() == DecidedBy::Store, "{way:?}: {passes:?}");
        // Long after everybody has decided, a refusal is certain, and is kept.
        clock.advance(Duration::from_secs(60));
        for by in [DecidedBy::Store, DecidedBy::Cache] {
            let refused = cached.narrow(way).await;
            assert_eq!((refused.is_allowed(), refused.decided_by()), (false, by), "{way:?}");
        }
    }
}

/// As long as the other unit was held, this was the last one; once the cache refused the next request for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_unit_that_passes_beside_one_that_is_given_back_is_not_kept_as_the_last() {
    for way in [Way::Check, Way::Within] {
        let (passed, cached, _) = held_for_a_moment(2, way).await;
        assert_eq!((passed.is_allowed(), passed.quotas()[0].remaining()), (true, 0), "{way:?}");
        assert!(cached.narrow(way).await.is_allowed(), "{way:?}");
    }
}
