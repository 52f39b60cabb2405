//! Checks of one key around a store that decides them without an ask.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sluicegate_conformance::ALGORITHMS;
use sluicegate_core::store::{Ask, Store};
use sluicegate_core::wrap::Within;
use sluicegate_core::{MemoryStore, Policy};
use sluicegate_fleet::DenyCache;
use sluicegate_tests::around::around;
use sluicegate_tests::memory::{answer, store_on};
use sluicegate_tests::time::on_the_hour;

proptest! {
    #[test]
    fn a_check_is_answered_and_counted_as_an_ask_is(
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        steps in prop::collection::vec((0..400_000_u64, 0..3_u64, 0..7_u64, any::<bool>()), 1..120),
    ) {
        let clock = on_the_hour();
        let cached = |store: Arc<dyn Store>| {
            let cache = DenyCache::builder(store).clock(clock.clone()).build().unwrap();
            (Policy::builder("api", algorithm, "5/7s").on(&cache).unwrap(), cache)
        };
        let memory = || -> MemoryStore { store_on(clock.clone()) };
        // A store around another one has no short way of its own.
        let asking = around(memory(), |within: &Within, asks: &[Ask<'_>]| within.decide(asks));
        let (by_ask, by_short) = (cached(asking), cached(memory().into()));
        for (wait_us, key, cost, resets) in steps {
            clock.advance(Duration::from_micros(wait_us));
            let [theirs, ours] = [&by_ask, &by_short].map(|(limiter, _)| answer(limiter.check(key).cost(cost)));
            prop_assert_eq!((ours.outcome(), ours.decided_by()), (theirs.outcome(), theirs.decided_by()));
            prop_assert_eq!((ours.quotas(), ours.retry_after()), (theirs.quotas(), theirs.retry_after()));
            if resets && cost == 6 {
                let [theirs, ours] = [&by_ask, &by_short].map(|(limiter, _)| answer(limiter.reset(key)));
                prop_assert_eq!(ours.quotas(), theirs.quotas());
            }
            let [theirs, ours] = [&by_ask, &by_short].map(|(_, cache)| cache.status());
            prop_assert_eq!((ours.asked, ours.refused, ours.keys), (theirs.asked, theirs.refused, theirs.keys));
        }
    }
}
