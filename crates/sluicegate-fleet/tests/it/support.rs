//! What all tests need: policies that parts can keep, and parts to look at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluicegate_core::algorithm::{Anchor, Drain, Refill};
use sluicegate_core::clock::ManualClock;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::store::{Ask, DecisionFuture};
use sluicegate_core::wrap::Within;
use sluicegate_core::{Algorithm, MemoryStore, Policy, Quota, Store, StoreError};
use sluicegate_tests::around::around;

/// A small store on this clock.
pub(crate) fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().table_size(64).clock(clock.clone()).build().unwrap()
}

/// A store that is away while it is said to be.
pub(crate) fn failing(memory: &MemoryStore) -> (Arc<dyn Store>, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&fails);
    let store = around(memory, move |within: &Within, asks: &[Ask<'_>]| {
        if flag.load(Ordering::Relaxed) {
            return DecisionFuture::ready(Err(StoreError::new(StoreErrorKind::Unavailable).unsent()));
        }
        within.decide(asks)
    });
    (store, fails)
}

/// Every algorithm whose policies can be in parts.
pub(crate) fn splittable() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| {
        !matches!(
            algorithm,
            Algorithm::LeakyBucket(Drain::Queue | Drain::QueueAbove(_))
                | Algorithm::FixedWindow(Anchor::FirstHit)
                | Algorithm::TokenBucket(Refill::Interval)
        )
    })
}

/// A policy of one quota.
pub(crate) fn policy(algorithm: Algorithm, quota: Quota) -> PolicyBuilder {
    Policy::builder("api", algorithm, quota)
}

/// Whether the burst of such a policy may differ from its limit.
pub(crate) fn has_burst(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Gcra
            | Algorithm::TokenBucket(Refill::Greedy | Refill::AlignedInterval)
            | Algorithm::LeakyBucket(Drain::Meter)
    )
}

/// The policy without a resolution, which lets units back late: as late as the last one that came beside them, in one place.
pub(crate) fn finest(policy: &Policy) -> Policy {
    let quotas: Vec<Quota> = policy.quotas().iter().map(|quota| quota.quota()).collect();
    match policy.algorithm() {
        Algorithm::SlidingLogIn(_) => {
            let log = Policy::sliding_log(policy.name(), quotas[0]).build().unwrap();
            log.with_quotas(&quotas).unwrap()
        }
        _ => policy.clone(),
    }
}
