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
