//! The error of a limited call: [`CallError`].

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use sluicegate_core::{Decision, Outcome, StoreError};
#[cfg(feature = "in-flight")]
use sluicegate_in_flight::NoPermit;

/// The reason why a call behind a [`CallLimitLayer`](crate::call::CallLimitLayer) or a
/// `CallInFlightLayer`, or an outgoing call, gave no response.
///
/// An error of the service displays as itself, so each message occurs once in a chain of sources.
///
/// ```
/// use std::error::Error;
/// use std::io;
/// use sluicegate_tower::call::CallError;
///
/// let error = CallError::Inner(io::Error::other("the disk is full"));
/// assert_eq!(error.to_string(), "the disk is full");
/// assert!(error.source().is_none() && !error.is_refusal());
/// ```
///
/// | variant | the service was called | spent | worth a retry |
/// |---|---|---|---|
/// | [`Limited`](Self::Limited) | no | nothing | after [`retry_after`](Self::retry_after), if there is one |
/// | [`Store`](Self::Store) | no | perhaps | later |
/// | [`HeldOff`](Self::HeldOff) | no | nothing | after the wait |
/// | [`QueueFull`](Self::QueueFull) | no | nothing | after the wait |
/// | `NoPermit` | no | nothing | after [`retry_after`](Self::retry_after), if there is one, and otherwise when a call has ended |
/// | [`Inner`](Self::Inner) | yes | the cost | depends on the error |
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The call exceeds its limit, and has spent nothing; the service was not called.
    Limited(Box<Decision>),
    /// The store gave no answer, and the policy denies in an outage; the service was not called.
    Store(StoreError),
    /// The other side asked for no calls for this long from now, which is longer than the call may wait; it was not made.
    /// Only outgoing calls have this error.
    HeldOff(Duration),
    /// The call would have had to wait for this long, but the queue is full; it has spent nothing, and
    /// the service was not called.
    QueueFull(Duration),
    /// The limit of concurrent calls is reached; the service was not called.
    #[cfg(feature = "in-flight")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-flight")))]
    NoPermit(NoPermit),
    /// The service was called, and failed.
    Inner(E),
}

impl<E> CallError<E> {
    /// Whether the service was not called at all.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Inner(_))
    }

    /// The shortest wait after which the same call could pass, if it is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Limited(decision) => decision.retry_after(),
            Self::HeldOff(wait) | Self::QueueFull(wait) => Some(*wait),
            #[cfg(feature = "in-flight")]
            Self::NoPermit(none) => none.retry_after(),
            Self::Store(_) | Self::Inner(_) => None,
        }
    }

    /// The decision, if the call exceeds its limit.
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Self::Limited(decision) => Some(decision),
            _ => None,
        }
    }

    /// The error of the service, if the service failed.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            _ => None,
        }
    }

    /// Boxes the refusal, or returns the service's error unchanged: for services with a boxed error, which does not implement
    /// [`Error`] itself. A refusal in the box is a `CallError<Infallible>`.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    /// use sluicegate_tower::call::{CallError, CallLimitLayer};
    /// use tower::{BoxError, ServiceBuilder, service_fn};
    ///
    /// let jobs = Policy::gcra("jobs", "10/s").on(&MemoryStore::new())?;
    /// let service = ServiceBuilder::new()
    ///     .map_err(CallError::<BoxError>::into_box)
    ///     .layer(CallLimitLayer::new(jobs, |tenant: &u64| *tenant))
    ///     .service(service_fn(|_: u64| async { Err::<(), BoxError>("broken".into()) }));
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn into_box(self) -> Box<dyn Error + Send + Sync>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let refusal: CallError<Infallible> = match self {
            Self::Limited(decision) => CallError::Limited(decision),
            Self::Store(error) => CallError::Store(error),
            Self::HeldOff(wait) => CallError::HeldOff(wait),
            Self::QueueFull(wait) => CallError::QueueFull(wait),
            #[cfg(feature = "in-flight")]
            Self::NoPermit(none) => CallError::NoPermit(none),
            Self::Inner(error) => return error.into(),
        };
        refusal.into()
    }
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limited(decision) => match (decision.outcome(), decision.retry_after()) {
                (Outcome::Impossible, _) => write!(
                    f,
                    "the call costs more than the {} units that its limit ever lets pass at once",
                    decision.capacity()
                ),
                (Outcome::Suspended, Some(wait)) => {
                    write!(f, "the key is suspended after too many refusals: try again in {wait:?}")
                }
                (_, Some(wait)) => write!(f, "the rate limit is exceeded: try again in {wait:?}"),
                (_, None) => f.write_str("the rate limit is exceeded"),
            },
            Self::Store(_) => f.write_str("the rate limiter gave no answer"),
            Self::HeldOff(wait) => write!(f, "the server asked not to be called for another {wait:?}"),
            Self::QueueFull(wait) => write!(
                f,
                "too many calls are waiting for their turn, which would come in {wait:?}: try again then, or raise longest_queue"
            ),
            #[cfg(feature = "in-flight")]
            Self::NoPermit(none) => none.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Inner(error) => error.source(),
            _ => None,
        }
    }
}
