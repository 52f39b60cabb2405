//! What all tests need: a store on a clock that stands still, and answers without a runtime.

use std::time::Duration;

pub(crate) use sluicegate_conformance::ALGORITHMS as ALL;
use sluicegate_core::algorithm::Drain;
use sluicegate_core::clock::ManualClock;
use sluicegate_core::{Algorithm, MemoryStore, Policy, Quota, RateLimiter};
pub(crate) use sluicegate_tests::memory::{answer, store_for};
pub(crate) use sluicegate_tests::time::START;

/// Whether it is a queue, which has one quota only.
pub(crate) fn is_queue(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::LeakyBucket(Drain::Queue | Drain::QueueAbove(_)))
}

/// A small store whose clock shows [`START`].
pub(crate) fn store() -> (MemoryStore, ManualClock) {
    store_for(64, 65_536)
}

/// A limiter of one quota on a store.
pub(crate) fn limiter(store: &MemoryStore, name: &str, algorithm: Algorithm, quota: Quota) -> RateLimiter {
    Policy::builder(name, algorithm, quota).on(store).expect("the policy fits the store")
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
