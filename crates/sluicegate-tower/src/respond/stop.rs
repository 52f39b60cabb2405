//! The reason for a refusal, with the data for its answer ([`Stop`]), and what delays that answer or the next attempt.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use sluicegate_core::store::Undecided;
use sluicegate_core::support::random;
use sluicegate_core::{ConfigError, Outcome, StoreError};

use super::decided::ceil_seconds;
use super::problem::ProblemJson;
use super::refusal::{IntoRefusalResponse, Later, Refusal, Respond};
use crate::key::MissingKey;
use crate::key::text::config_error;
use crate::respond::decided::Decided;
use crate::respond::refusal::RefusalReason;

/// The reason for a refusal.
#[derive(Debug)]
pub(crate) enum Stop {
    Decided(Decided),
    MissingKey(MissingKey, StatusCode),
    /// The tier is unknown; clients see a missing key.
    UnknownTier(MissingKey, StatusCode),
    Mistake(ConfigError),
    /// A reason without other data.
    Plain(RefusalReason<'static>),
}

impl Stop {
    /// Requests without a tier are refused with this status.
    pub(crate) fn unknown_tier(status: StatusCode) -> Self {
        Self::UnknownTier(MissingKey::new("the request is in no known tier"), status)
    }

    /// The store rejected the asks of the limits, by a mistake in the program. An outage is a decision, not an error.
    pub(crate) fn mistake(error: &StoreError) -> Self {
        Self::Mistake(config_error(error.to_string()))
    }

    /// The reason for the responder.
    pub(crate) fn reason(&self) -> RefusalReason<'_> {
        match self {
            Self::Decided(decided) => match decided.outcome() {
                Outcome::Impossible => RefusalReason::Impossible(decided),
                Outcome::Suspended => RefusalReason::Suspended(decided),
                _ => RefusalReason::Exceeded(decided),
            },
            Self::MissingKey(missing, status) | Self::UnknownTier(missing, status) => {
                RefusalReason::MissingKey(missing, *status)
            }
            Self::Mistake(error) => RefusalReason::Mistake(error),
            Self::Plain(reason) => *reason,
        }
    }

    /// The word for the reason, in traces.
    pub(crate) fn as_str(&self) -> &'static str {
        match (self, self.undecided()) {
            (_, Some(why)) => why.as_str(),
            (Self::Decided(decided), _) => decided.outcome().as_str(),
            (Self::Plain(RefusalReason::Outage), _) => "outage",
            _ => "error",
        }
    }

    /// The wait in the answer of a full queue.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Plain(RefusalReason::QueueFull(wait)) => Some(*wait),
            _ => None,
        }
    }

    /// The reason why no store was asked, if none was.
    pub(crate) fn undecided(&self) -> Option<Undecided> {
        match self {
            Self::Mistake(_) => Some(Undecided::Mistake),
            Self::MissingKey(_, status) if status.is_server_error() => Some(Undecided::Mistake),
            Self::MissingKey(..) => Some(Undecided::MissingKey),
            Self::UnknownTier(..) => Some(Undecided::UnknownTier),
            Self::Plain(RefusalReason::QueueFull(_)) => Some(Undecided::QueueFull),
            Self::Plain(RefusalReason::Blocked(_)) => Some(Undecided::Blocked),
            Self::Plain(RefusalReason::LookupTimeout(_)) => Some(Undecided::LookupTimeout),
            Self::Decided(_) | Self::Plain(_) => None,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(decided) => match decided.policy() {
                Some(policy) if decided.outcome() == Outcome::Suspended => {
                    write!(f, "the key of the request is suspended by policy {policy}")
                }
                Some(policy) => write!(f, "the request exceeds policy {policy}"),
                None => f.write_str("the request exceeds a limit"),
            },
            Self::MissingKey(missing, _) | Self::UnknownTier(missing, _) => missing.fmt(f),
            Self::Mistake(error) => error.fmt(f),
            Self::Plain(RefusalReason::QueueFull(_)) => f.write_str("as many requests wait as may wait"),
            Self::Plain(RefusalReason::LookupTimeout(longest)) => {
                write!(f, "its key or tier was looked up, and did not come within {longest:?}")
            }
            Self::Plain(RefusalReason::Outage) => f.write_str("the store gives no answer"),
            Self::Plain(RefusalReason::Blocked(_)) => f.write_str("such requests are denied"),
            Self::Plain(_) => f.write_str("the request is refused"),
        }
    }
}

/// Makes asynchronous responses; made by
/// [`respond_async`](crate::rate_limit::RateLimitLayerBuilder::respond_async). If there is no time to wait, it responds as
/// [`ProblemJson`].
#[derive(Clone, Copy, Debug)]
pub struct RespondLater<F>(pub(crate) F);

// Only `respond_async` makes one, so a message about a missing responder does not have to name it.
#[diagnostic::do_not_recommend]
impl<F, A, B> Respond<B> for RespondLater<F>
where
    F: Fn(&Refusal<'_>) -> A + Send + Sync + 'static,
    A: Future<Output: IntoRefusalResponse<B>> + Send + 'static,
    B: From<Bytes>,
{
    fn respond(&self, refusal: &Refusal<'_>) -> Response<B> {
        ProblemJson::new().respond(refusal)
    }

    fn respond_later(&self, refusal: &Refusal<'_>) -> Option<Later<B>> {
        let (response, status) = ((self.0)(refusal), refusal.status());
        Some(Box::pin(async move { response.await.into_refusal_response(status) }))
    }
}

/// Returns the addition to a wait.
pub(crate) type Spread = Box<dyn Fn() -> Duration + Send + Sync>;

/// A random time from zero to `longest`, in whole seconds.
pub(crate) fn up_to(longest: Duration) -> Spread {
    let longest = longest.as_secs();
    Box::new(move || Duration::from_secs(random() % longest.saturating_add(1)))
}

/// Whole seconds that are added to the wait of one refusal.
pub(crate) fn seconds(spread: Option<&Spread>) -> u64 {
    spread.map_or(0, |spread| ceil_seconds(spread()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_second_up_to_the_longest_comes_up_and_none_beyond_it() {
        let spread = up_to(Duration::from_millis(4_900));
        let seen: HashSet<u64> = (0..1_000).map(|_| seconds(Some(&spread))).collect();
        assert_eq!(seen, (0..=4).collect());
        assert_eq!(seconds(Some(&up_to(Duration::ZERO))), 0);
        assert_eq!(seconds(None), 0);
        seconds(Some(&up_to(Duration::MAX)));
    }
}
