//! Copies of a policy that are tried out beside it, under another algorithm.
//!
//! A trial has to equal the policy in everything but the one tried difference, or its figures would compare two differences at once. So it
//! is built by the same builder, and a test compares a copy that changes nothing with its original.

use sluicegate_core::{Algorithm, ConfigError, Policy, Quota};

/// A policy of this name with these quotas, under this algorithm. Its waits, its counting of refused requests, its suspensions and its room
/// for keys are those of `policy`.
///
/// # Errors
/// When the algorithm cannot keep the quotas, such as a burst under an algorithm that supports none.
pub(super) fn copy(
    policy: &Policy,
    name: &str,
    algorithm: Algorithm,
    quotas: &[Quota],
) -> Result<Policy, ConfigError> {
    let first = quotas.first().copied().unwrap_or(Quota::per_second(1));
    let mut builder = Policy::builder(name, algorithm, first).on_exceeded(policy.on_exceeded());
    for quota in quotas.iter().skip(1) {
        builder = builder.and(*quota);
    }
    if policy.counts_rejected() {
        builder = builder.count_rejected();
    }
    if let Some(keys) = policy.table_size() {
        builder = builder.table_size(keys);
    }
    builder = builder.on_full(policy.on_full());
    if let Some(suspension) = policy.suspension()
        && let (Some((after, within)), Some(first), Some(longest), Some(remembers)) =
            (suspension.after(), suspension.lasts(0), suspension.lasts(u64::MAX), suspension.remembers())
    {
        builder = builder.suspend(after, within, first).up_to(longest).remember(remembers);
    }
    let copy = builder.build()?;
    Ok(if policy.takes_quotas() { copy.taking_quotas() } else { copy })
}

/// The quotas of a policy alone, as they are written in a file.
pub(super) fn quotas(policy: &Policy) -> Vec<Quota> {
    policy.quotas().iter().map(|quota| quota.quota()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_waits_counts_suspends_and_has_room_as_its_policy_does() {
        let policy = Policy::gcra("p", "5/min burst 3").suspend(3, "1min", "5min").up_to("1h").remember("2h");
        let policy = policy.on_exceeded("wait 2s".parse().unwrap()).count_rejected();
        let policy = policy.table_size(50).on_full("inherit".parse().unwrap()).build().unwrap();
        assert_eq!(copy(&policy, "p", policy.algorithm(), &quotas(&policy)).unwrap(), policy);
        let mixed = Policy::gcra("p", "5/min").and("9/d by sliding-log").build().unwrap();
        assert_eq!(copy(&mixed, "p", mixed.algorithm(), &quotas(&mixed)).unwrap(), mixed);
    }
}
