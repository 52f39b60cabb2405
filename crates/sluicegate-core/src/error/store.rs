//! The reason why a store did not answer: [`StoreError`].

use std::error::Error;
use std::fmt;

use super::write_chain;

/// A store could not answer. A denial is a [`Decision`](crate::Decision), not an error.
///
/// | kind | may succeed later | may have spent |
/// |---|---|---|
/// | [`Timeout`](StoreErrorKind::Timeout) | yes | yes, unless nothing was sent |
/// | [`Unavailable`](StoreErrorKind::Unavailable) | yes | yes, unless nothing was sent |
/// | [`Protocol`](StoreErrorKind::Protocol) | yes | yes |
/// | the others: mistakes in the program | no | no |
///
/// ```
/// use sluicegate_core::StoreError;
/// use sluicegate_core::error::StoreErrorKind;
///
/// let lost = StoreError::new(StoreErrorKind::Unavailable);
/// assert!(lost.may_succeed_later() && lost.may_have_spent());
/// let never_sent = lost.unsent();
/// assert!(never_sent.may_succeed_later() && !never_sent.may_have_spent());
/// ```
pub struct StoreError {
    kind: StoreErrorKind,
    part: usize,
    is_unsent: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The reason why a store could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store did not answer within its deadline. It may have spent the cost, unless the deadline passed before it was asked.
    Timeout,
    /// The store cannot be reached, so nothing was spent; or the connection broke before an answer arrived, and it is unknown
    /// whether the store has spent the cost.
    Unavailable,
    /// The store's reply could not be understood.
    Protocol,
    /// An ask named a policy that was opened on another store; a mistake in the program, never worth a retry.
    ForeignPolicy,
    /// A call without asks; a mistake in the program, never worth a retry.
    NothingAsked,
    /// The store does not know the [mode](crate::store::Mode) of an ask: it is older than the rest of the program, never worth a
    /// retry.
    UnknownMode,
    /// One call named more asks or quotas than [`MAX_QUOTAS`](crate::policy::MAX_QUOTAS); never worth a retry.
    TooManyQuotas,
    /// A key brought quotas of its own, but the policy has no room for more different quotas: see
    /// [`RateLimiter::with_quotas`](crate::RateLimiter::with_quotas).
    QuotasExhausted,
    /// A call to suspend or release a key under a policy that suspends no key; a mistake in the program, never worth a retry.
    NoSuspension,
}

impl StoreError {
    /// An error without a deeper cause.
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, part: 0, is_unsent: false, source: None }
    }

    /// An error with its cause, which [`source`](Error::source) returns.
    ///
    /// ```
    /// use std::error::Error;
    /// use sluicegate_core::StoreError;
    /// use sluicegate_core::error::StoreErrorKind;
    ///
    /// let error = StoreError::with_source(StoreErrorKind::Unavailable, "connection refused");
    /// let chain = format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default());
    /// assert_eq!(chain, "the store cannot be reached: connection refused");
    /// ```
    pub fn with_source(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, part: 0, is_unsent: false, source: Some(source.into()) }
    }

    /// Sets the failed part of a store with parts that fail independently; see [`Parts`](crate::store::Parts).
    #[must_use]
    pub fn in_part(mut self, part: usize) -> Self {
        self.part = part;
        self
    }

    /// Marks the call as never sent: it has certainly spent nothing. For authors of stores.
    #[must_use]
    pub fn unsent(mut self) -> Self {
        self.is_unsent = true;
        self
    }

    /// The part of the store that failed; 0 for a store in one piece.
    pub fn part(&self) -> usize {
        self.part
    }

    /// The reason why the store could not answer.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without a change to the program. Whether it is safe to repeat the call is another
    /// question: see [`may_have_spent`](Self::may_have_spent).
    pub fn may_succeed_later(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Timeout | StoreErrorKind::Unavailable | StoreErrorKind::Protocol)
    }

    /// Whether the call may have spent its cost, so that a repeated call may spend it twice: when an answer did not
    /// arrive or could not be read. `false` when nothing was sent, and when the call itself was a mistake.
    pub fn may_have_spent(&self) -> bool {
        self.may_succeed_later() && !self.is_unsent
    }
}

/// The message and its chain of sources, as a `main` that returns the error prints it.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(self, f)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Timeout => "the store did not answer in time",
            StoreErrorKind::Unavailable => "the store cannot be reached",
            StoreErrorKind::Protocol => "the store answered something unexpected",
            StoreErrorKind::ForeignPolicy => "the policy was opened on another store",
            StoreErrorKind::NothingAsked => "the call contained no asks",
            StoreErrorKind::NoSuspension => {
                "the policy suspends no key: it has no suspension, or is not enforced"
            }
            StoreErrorKind::UnknownMode => {
                "the store does not know the mode of an ask: use one that is as new as the core"
            }
            StoreErrorKind::TooManyQuotas => "more than 16 quotas were asked for in one call",
            StoreErrorKind::QuotasExhausted => {
                "a key brought quotas of its own, and there is no room for more different ones under its policy"
            }
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
