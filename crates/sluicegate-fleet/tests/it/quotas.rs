//! Keys that bring quotas of their own, through the stores around stores.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::store::DecidedBy;
use sluicegate_core::{Algorithm, MemoryStore, Policy, Quota, RateLimiter, Store};
use sluicegate_fleet::{DenyCache, Leased, Sharded};
use sluicegate_resilient::Resilient;
use sluicegate_tests::around::broken;
use sluicegate_tests::memory::answer;

use crate::support::splittable;

fn memory(clock: &ManualClock) -> MemoryStore {
    clock.set(Duration::from_secs(1_800_000_000));
    MemoryStore::builder().table_size(4_096).clock(clock.clone()).build().unwrap()
}

fn cached(store: impl Into<Arc<dyn Store>>, clock: &ManualClock) -> DenyCache {
    DenyCache::builder(store).clock(clock.clone()).build().unwrap()
}

fn leased(store: impl Into<Arc<dyn Store>>, clock: &ManualClock) -> Leased {
    Leased::builder(store).clock(clock.clone()).build().unwrap()
}

fn sharded(store: impl Into<Arc<dyn Store>>) -> Sharded {
    Sharded::builder(store, 2).policy("api").build().unwrap()
}

type MakeStore = fn(&ManualClock) -> Arc<dyn Store>;

fn passed(limiter: &RateLimiter, key: &str) -> usize {
    (0..40).filter(|_| answer(limiter.check(key)).is_allowed()).count()
}

#[test]
fn each_key_is_held_to_its_own_quota_through_every_order_of_stores() {
    let clock = ManualClock::new();
    let stores: [(&str, MakeStore); 5] = [
        ("cache", |clock| cached(memory(clock), clock).into()),
        ("leases", |clock| leased(memory(clock), clock).into()),
        ("shards", |clock| sharded(memory(clock)).into()),
        ("cache, leases", |clock| cached(leased(memory(clock), clock), clock).into()),
        ("cache, leases, shards", |clock| cached(leased(sharded(memory(clock)), clock), clock).into()),
    ];
    for (algorithm, (title, store)) in
        splittable().flat_map(|algorithm| stores.map(|store| (algorithm, store)))
    {
        let api = Policy::builder("api", algorithm, "10/h").on(store(&clock)).unwrap();
        for customer in (0..2).flat_map(|_| 0..7_u64) {
            let own = api.with_quotas(Quota::per_hour(3 + customer)).unwrap();
            let count = passed(&own, &format!("customer-{customer}"));
            let before = api.peek(format!("customer-{customer}")).now().unwrap().unwrap();
            assert!(
                count == 0 || count as u64 == 3 + customer,
                "{algorithm}, {title}: {count} of {}",
                3 + customer
            );
            assert!(before.capacity() == 10, "who brings none has those of the policy");
        }
        // A key that was refused passes at once when its plan grows, and is refused again when it is back.
        let (small, large) = (api.with_quotas("4/h").unwrap(), api.with_quotas("30/h").unwrap());
        assert_eq!(passed(&small, "ada"), 4, "{algorithm}, {title}");
        let grown = passed(&large, "ada");
        assert!((25..=26).contains(&grown), "{algorithm}, {title}: {grown} of 26");
        assert_eq!(passed(&small, "ada"), 0, "{algorithm}, {title}");
    }
}

#[test]
fn parts_that_would_have_no_unit_of_a_keys_quota_are_refused_with_the_reason() {
    let clock = ManualClock::new();
    let api = Policy::gcra("api", "10/h").on(sharded(memory(&clock))).unwrap();
    let error = api.with_quotas("1/h").map(drop).unwrap_err();
    assert!(error.to_string().contains("api"), "{error}");
    assert!(api.with_quotas("2/h").is_ok());
}

#[tokio::test(start_paused = true)]
async fn in_an_outage_a_key_has_a_share_of_its_own_quota() {
    let store = Resilient::builder(broken(true)).replicas(2).build().unwrap();
    let api = Policy::builder("api", Algorithm::Gcra, "100/h").on(store).unwrap();
    for (quota, share) in [("8/h", 4), ("60/h", 30), ("1/h", 1)] {
        let own = api.with_quotas(quota).unwrap();
        let mut count = 0;
        for _ in 0..50 {
            let decision = own.check(quota).await.unwrap();
            assert_eq!(decision.decided_by(), DecidedBy::Fallback);
            count += usize::from(decision.is_allowed());
        }
        assert_eq!(count, share, "half of {quota}");
    }
}
