//! Copies of a policy that are tried out beside it: with other quotas, or under another algorithm.

use sluicegate_core::{Algorithm, ConfigError, Policy, Quota};

/// A policy that treats requests as this one does, with these quotas, under this algorithm and name; with room for as many keys
/// as are tried out at once, where that is known, and not for those of the service.
pub(crate) fn copy(
    policy: &Policy,
    name: &str,
    algorithm: Algorithm,
    quotas: &[Quota],
    keys: Option<usize>,
) -> Result<Policy, ConfigError> {
    let first = quotas.first().copied().unwrap_or(Quota::per_second(1));
    let mut builder = Policy::builder(name, algorithm, first).on_exceeded(policy.on_exceeded());
    for quota in quotas.iter().skip(1) {
        builder = builder.and(*quota);
    }
    if let Some(keys) = keys {
        builder = builder.keys(keys);
    }
    if let Some(suspension) = policy.suspension()
        && let (Some((after, within)), Some(first), Some(longest), Some(remembers)) =
            (suspension.after(), suspension.lasts(0), suspension.lasts(u64::MAX), suspension.remembers())
    {
        builder = builder.suspend(after, within, first).up_to(longest).remember(remembers);
    }
    builder.build()
}

/// The quotas of a policy by themselves.
pub(crate) fn quotas(policy: &Policy) -> Vec<Quota> {
    policy.quotas().iter().map(|quota| quota.quota()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_waits_and_suspends_as_its_policy_does_and_takes_no_room_of_the_service() {
        let policy =
            Policy::gcra("p", "5/min burst 3").keys(1_000_000).suspend(3, "1min", "5min").up_to("1h");
        let policy = policy.remember("2h").on_exceeded("wait 2s".parse().unwrap()).build().unwrap();
        let copied = copy(&policy, "p", policy.algorithm(), &quotas(&policy), Some(16)).unwrap();
        assert_eq!(copied.keys(), Some(16));
        assert_eq!(copied.to_string(), policy.to_string());
        assert_eq!((copied.on_exceeded(), copied.suspension()), (policy.on_exceeded(), policy.suspension()));
    }
}
