//! Refusals of buckets in several places.

use std::sync::Arc;

use sluicegate_core::{MemoryStore, Policy, Store};
use sluicegate_fleet::{DenyCache, Sharded};
use sluicegate_tests::memory::{answer, store, store_on};

use crate::regional::model::regional;

/// Once a part that was empty was taken for a key that is.
#[test]
fn a_part_that_is_empty_refuses_nothing_that_another_one_has() {
    let (memory, clock) = store();
    let reserve: MemoryStore = store_on(clock.clone());
    let sharded: Arc<dyn Store> = Sharded::builder(&memory, 4).policy("api").build().unwrap().into();
    // "eu" has 20 of 100 for itself, and 40 are the reserve.
    for (name, within, most) in
        [("sharded", sharded, 100), ("regional", regional("eu", &memory, &reserve), 60)]
    {
        let cache = DenyCache::builder(within).clock(clock.clone()).build().unwrap();
        for policy in [Policy::gcra("api", "100/h"), Policy::fixed_window("api", "100/h")] {
            let limiter = policy.on(&cache).unwrap();
            let passed = (0..200).filter(|_| answer(limiter.check("ada")).is_allowed()).count();
            assert_eq!(passed, most, "{name}: {}", limiter.policy().algorithm());
            drop(answer(limiter.reset("ada")));
        }
        assert!(cache.status().refused > 100, "{name}: {:?}", cache.status());
    }
}
