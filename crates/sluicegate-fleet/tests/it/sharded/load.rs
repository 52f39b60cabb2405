//! How much of a limit is used under even load, by several instances.

use std::time::Duration;

use sluicegate_core::{Algorithm, MemoryStore, Policy, Quota, RateLimiter};
use sluicegate_tests::memory::answer;

use super::model::Played;
use crate::support::splittable;

/// Admitted of a demand of six fifths of the limit that comes evenly, per ten thousand of what the whole would admit.
fn used(algorithm: Algorithm, limit: u64, shards: u64) -> u64 {
    let quota = Quota::new(limit, Duration::from_secs(60));
    let policy = Policy::builder("api", algorithm, quota).build().unwrap();
    let played = Played::new(&policy, shards);
    let own = MemoryStore::builder().table_size(64).clock(played.clock.clone()).build().unwrap();
    let one_place = RateLimiter::new(&own, policy).unwrap();
    let periods = 20;
    let (mut admitted, mut whole) = (0, 0);
    for request in 0..limit * 6 / 5 * periods {
        let instance = &played.instances[usize::from(request % 3 == 0)];
        admitted += u64::from(answer(instance.check("k")).is_allowed());
        whole += u64::from(answer(one_place.check("k")).is_allowed());
        played.clock.advance(Duration::from_secs(60) / u32::try_from(limit * 6 / 5).unwrap());
    }
    admitted * 10_000 / whole
}

#[test]
fn under_even_load_at_least_ninety_nine_hundredths_of_a_limit_are_used() {
    for algorithm in splittable() {
        let used = used(algorithm, 400, 4);
        assert!(used >= 9_900, "{algorithm}: {used} of 10,000");
    }
}
