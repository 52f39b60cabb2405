//! The decision on a request, in numbers and in words: [`Explanation`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use sluicegate_core::policy::PolicyMode;
use sluicegate_core::store::QuotaStatus;
use sluicegate_core::support::ceil_millis;
use sluicegate_core::{Key, Policy};

use crate::bandwidth::Direction;
use crate::settle::Settle;

/// The limits of a request, their state, and the expected decision: the result of
/// [`Limits::explain`](crate::limits::Limits::explain).
///
/// `Display` writes one line for the decision and one for each limit.
///
/// It shows operators why a request is refused: on a status page, in a log, on the command line. It only peeks,
/// so two explanations are equal if nothing else has happened. Keys that may be secrets are
/// shown as digests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The outcome that the request would have.
    pub outcome: WouldBe,
    /// Every limit, in order.
    pub limits: Vec<LimitExplained>,
}

/// The expected decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WouldBe {
    /// It skips all limits, because it is exempt.
    Exempt,
    /// It passes, and no enforced limit applies.
    Unlimited,
    /// It passes uncounted, because the store does not answer.
    Uncounted,
    /// It passes.
    Allowed,
    /// It waits for this long, and then passes.
    Delayed(Duration),
    /// It does not pass.
    Refused {
        /// The status of the response.
        status: StatusCode,
        /// The wait after which it could pass, if any. It is a lower bound if a policy
        /// [counts refused requests](sluicegate_core::policy::PolicyBuilder::count_rejected): a refusal makes it longer, and an
        /// explanation does not refuse.
        retry_after: Option<Duration>,
        /// The reason, for operators.
        why: String,
    },
}

/// One limit, and what it asks for the request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitExplained {
    /// The name of the limit, or of its first policy.
    pub name: String,
    /// Its ask, or the reason why it asks nothing.
    pub asks: Result<AskExplained, String>,
}

/// The ask of a limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AskExplained {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The tier that the request is in, if the limit has tiers.
    pub tier: Option<String>,
    /// The key. Its [kind](Key::kind) says whether operators may see it, and [`shown`](Key::shown) shows the permitted part.
    pub key: Key,
    /// The units that the request spends, at first if the limit settles by the response.
    pub cost: u64,
    /// The place of the true cost in the response, if the limit [settles](crate::Limit::settle) by it.
    pub settle: Option<Arc<Settle>>,
    /// The bodies with bytes that the limit counts, if it is a [bandwidth](crate::Limit::bandwidth) limit: the request itself spends
    /// nothing.
    pub bandwidth: Option<Direction>,
    /// The status of each quota of the policy; empty if the store does not answer.
    pub quotas: Vec<QuotaStatus>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outcome)?;
        self.limits.iter().try_for_each(|limit| write!(f, "\n  {limit}"))
    }
}

impl fmt::Display for WouldBe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exempt => f.write_str("passes: it is exempt"),
            Self::Unlimited => f.write_str("passes: no limit applies"),
            Self::Uncounted => f.write_str("passes uncounted: the store gives no answer"),
            Self::Allowed => f.write_str("passes"),
            Self::Delayed(wait) => write!(f, "waits {:?}, and then passes", shown(*wait)),
            Self::Refused { status, retry_after, why } => {
                write!(f, "is refused with {}: {why}", status.as_u16())?;
                retry_after.map_or(Ok(()), |wait| write!(f, "; could pass after {wait:?}"))
            }
        }
    }
}

/// `login: asks 1 of 5/min (sliding-log) for Key(..): 2 of 5 left, all back after 36s`
impl fmt::Display for LimitExplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        let AskExplained { policy, tier, key, cost, settle, bandwidth, quotas, .. } = match &self.asks {
            Ok(asks) => asks,
            Err(why) => return write!(f, "not asked: {why}"),
        };
        let is_enforced = policy.mode() == PolicyMode::Enforce;
        let asks = match (bandwidth, is_enforced) {
            (None, true) => format!("asks {cost}"),
            (None, false) => format!("would ask {cost}"),
            (Some(direction), true) => format!("holds {} to the bytes", direction.bodies()),
            (Some(direction), false) => format!("would hold {} to the bytes", direction.bodies()),
        };
        write!(f, "{asks} of {policy} for {}", key.shown())?;
        if policy.counts_rejected() {
            f.write_str(", refused requests count")?;
        }
        if let Some(tier) = tier {
            write!(f, ", tier {tier}")?;
        }
        if let Some(settle) = settle {
            write!(f, ", settled by {settle}")?;
        }
        for status in quotas {
            write!(f, "; {} of {} left", status.remaining(), status.capacity())?;
            if !status.passed() {
                let least = if policy.counts_rejected() { "at least " } else { "" };
                write!(f, ", room after {least}{:?}", shown(status.available_after()))?;
            }
            if !status.reset_after().is_zero() {
                write!(f, ", all back after {:?}", shown(status.reset_after()))?;
            }
        }
        Ok(())
    }
}

/// The time in whole milliseconds, rounded up, because microseconds do not help a reader.
fn shown(time: Duration) -> Duration {
    Duration::from_millis(ceil_millis(time))
}
