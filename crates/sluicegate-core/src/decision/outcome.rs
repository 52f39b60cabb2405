//! The outcome of a decision, and the quota that decides it: [`Outcome`].

use super::status::QuotaStatus;

/// The outcome of a decision.
///
/// | | spent | worth a retry | over HTTP |
/// |---|---|---|---|
/// | [`Allowed`](Self::Allowed) | its cost | | the service's answer |
/// | [`Denied`](Self::Denied) | nothing | after [`retry_after`](super::Decision::retry_after) | 429 and `Retry-After` |
/// | [`Impossible`](Self::Impossible) | nothing | never with this cost | no `Retry-After` |
/// | [`Suspended`](Self::Suspended) | nothing | after [`retry_after`](super::Decision::retry_after) | `Retry-After` |
///
/// The order is that of strictness: of several quotas the greatest outcome counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The request may proceed after [`Decision::delay`](super::Decision::delay); its cost is spent.
    Allowed,
    /// The request exceeds a quota now, and could pass after [`Decision::retry_after`](super::Decision::retry_after); nothing is spent.
    Denied,
    /// The cost is above the most that a quota ever passes at once; no wait helps, and nothing is spent.
    Impossible,
    /// The key is suspended, because it continued after many refusals: every request is refused, whatever its cost, until
    /// [`Decision::retry_after`](super::Decision::retry_after) is over. Nothing is spent.
    Suspended,
}

impl Outcome {
    /// The word for this outcome in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "rejected",
            Self::Impossible => "impossible",
            Self::Suspended => "suspended",
        }
    }
}

/// The index of the tightest quota, which decides.
#[inline]
pub(super) fn deciding(outcome: Outcome, quotas: &[QuotaStatus]) -> u8 {
    let is_before = |one: &QuotaStatus, other: &QuotaStatus| match outcome {
        Outcome::Allowed => {
            let resets_us = |status: &QuotaStatus| status.balance.reset_after_us;
            (one.remaining(), resets_us(other)) < (other.remaining(), resets_us(one))
        }
        // The quota that refuses longest says when the request could pass, also for a suspended key.
        Outcome::Denied | Outcome::Suspended => {
            (one.passed(), other.available_after_us, one.remaining())
                < (other.passed(), one.available_after_us, other.remaining())
        }
        Outcome::Impossible => {
            (other.is_impossible(), one.capacity()) < (one.is_impossible(), other.capacity())
        }
    };
    let tightest = (0_u8..).zip(quotas).reduce(
        |tightest, next| {
            if is_before(next.1, tightest.1) { next } else { tightest }
        },
    );
    tightest.map_or(0, |(index, _)| index)
}
