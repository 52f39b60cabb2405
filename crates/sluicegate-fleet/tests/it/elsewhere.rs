//! What one instance does to a key, as the others see it.

use std::sync::Arc;

use sluicegate_core::clock::ManualClock;
use sluicegate_core::{Policy, RateLimiter, Store};
use sluicegate_fleet::Sharded;
use sluicegate_tests::memory::answer;

use crate::regional::model::regional;
use crate::support::memory;

/// Two instances of one kind, each with a limiter.
fn two(instance: impl Fn() -> Arc<dyn Store>) -> [RateLimiter; 2] {
    [(); 2].map(|()| Policy::gcra("api", "100/h").on(instance()).unwrap())
}

/// One instance resets a key that another one has used up: all of what both may reach is there again, once.
fn is_reset_at_once([here, elsewhere]: &[RateLimiter; 2]) {
    let exhaust = |limiter: &RateLimiter| {
        let spent = (0..200).filter(|_| answer(limiter.check("ada")).is_allowed()).count();
        assert!(!answer(limiter.check("ada")).is_allowed());
        spent
    };
    let before = exhaust(here);
    _ = answer(elsewhere.reset("ada"));
    assert_eq!(exhaust(here), before);
    // And a charge: it is seen at the next request.
    _ = answer(elsewhere.reset("ada"));
    _ = answer(elsewhere.charge("ada", 100));
    assert!(!answer(here.check("ada")).is_allowed());
}

#[test]
fn a_reset_or_a_charge_by_another_instance_counts_at_once_in_all_shards() {
    let memory = memory(&ManualClock::new());
    is_reset_at_once(&two(|| Sharded::builder(&memory, 4).policy("api").build().unwrap().into()));
}

#[test]
fn a_reset_or_a_charge_by_another_instance_of_a_region_counts_at_once() {
    let clock = ManualClock::new();
    let (own, reserve) = (memory(&clock), memory(&clock));
    is_reset_at_once(&two(|| regional("eu", &own, &reserve)));
}

#[test]
fn an_instance_that_is_gone_leaves_spent_what_it_had_spent_and_nothing_else() {
    let clock = ManualClock::new();
    let (own, reserve) = (memory(&clock), memory(&clock));
    let kinds: [&dyn Fn() -> Arc<dyn Store>; 2] =
        [&|| Sharded::builder(&own, 4).policy("api").build().unwrap().into(), &|| {
            regional("eu", &own, &reserve)
        }];
    for (kind, key) in kinds.into_iter().zip(["ada", "eve"]) {
        let [here, gone] = two(kind);
        let all = answer(here.peek(key)).remaining();
        for _ in 0..10 {
            assert!(answer(gone.check(key)).is_allowed());
        }
        drop(gone);
        assert_eq!(answer(here.peek(key)).remaining(), all - 10);
    }
}
