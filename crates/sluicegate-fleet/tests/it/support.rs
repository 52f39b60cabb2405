//! What all tests need: policies that parts can keep, and parts to look at.

use sluicegate_core::algorithm::{Anchor, Drain, Refill};
use sluicegate_core::policy::PolicyBuilder;
use sluicegate_core::{Algorithm, Policy, Quota};

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
