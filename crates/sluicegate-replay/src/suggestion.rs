//! The limit to set: [`Suggestion`].

use sluicegate_core::Policy;

use crate::share::Share;

/// The least limit above which no limit rejects more than a share, its policy alone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suggestion {
    /// The policy with that limit; periods, and the relation of bursts and of several quotas to it, are as they were.
    pub policy: Policy,
    /// The limit of its first quota.
    pub limit: u64,
    /// The share that was asked for.
    pub share: Share,
    /// Requests that it rejects; estimated where the log was too large to be kept.
    pub rejected: u64,
    /// Keys of which it rejects at least one request.
    pub rejected_keys: u64,
    /// How far the true number of rejected requests may be from that, in nineteen cases of twenty; 0 if it is exact.
    pub uncertainty: u64,
    /// The next limit that was looked at was this much lower: 1 up to a limit of 512, and less than a hundredth above that.
    pub step: u64,
    /// Requests that it rejects beside the other suggestions, if they were replayed together.
    pub together: Option<u64>,
}
