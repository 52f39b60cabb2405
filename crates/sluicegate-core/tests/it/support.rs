//! What all tests need: a store on a clock that stands still, and answers without a runtime.

use std::time::Duration;

use sluicegate_core::algorithm::Drain;
use sluicegate_core::clock::ManualClock;
pub(crate) use sluicegate_core::conformance::ALGORITHMS as ALL;
use sluicegate_core::store::DecisionFuture;
use sluicegate_core::{Algorithm, Decision, MemoryStore, Policy, Quota, RateLimiter};

/// Whether it is a queue, which has one quota only.
pub(crate) fn is_queue(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::LeakyBucket(Drain::Queue | Drain::QueueAbove(_)))
}

/// A whole hour on the 14th of November 2023, so that aligned windows of up to an hour begin there.
pub(crate) const START: Duration = Duration::from_secs(1_700_000_000 - 800);

/// A small store whose clock shows [`START`].
pub(crate) fn store() -> (MemoryStore, ManualClock) {
    store_for(64, 65_536)
}

/// A store of this size whose clock shows [`START`].
pub(crate) fn store_for(keys: usize, log_entries: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    clock.set(START);
    let store = MemoryStore::builder().capacity(keys).log_entries(log_entries).clock(clock.clone()).build();
    (store.expect("a store of a sensible size can be built"), clock)
}

/// A limiter of one quota on a store.
pub(crate) fn limiter(store: &MemoryStore, name: &str, algorithm: Algorithm, quota: Quota) -> RateLimiter {
    Policy::builder(name, algorithm, quota).on(store).expect("the policy fits the store")
}

/// The answer of a memory store, which is there at once.
pub(crate) fn answer(verdict: DecisionFuture) -> Decision {
    verdict.now().expect("memory answers at once").expect("memory has an answer")
}

pub(crate) const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
