//! What can be wrong with a configuration, and why a store gave no answer.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;

/// A quota, policy, store or layer that cannot work as it was written.
///
/// Its message names the offending value and says what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    kind: ConfigErrorKind,
    message: Cow<'static, str>,
}

/// What kind of mistake a [`ConfigError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// A limit, period or burst that is zero, unreadable or out of range.
    Quota,
    /// A quota that cannot be kept in exact integers, or not by the chosen algorithm.
    Inexact,
    /// A policy whose parts contradict each other, or whose name cannot be used.
    Policy,
    /// The name is already in use on this store for something else.
    NameTaken,
    /// A store that cannot be built, or is too small for the policy.
    Store,
    /// A middleware whose parts do not fit together.
    Layer,
}

impl ConfigError {
    /// Makes an error with a message that names the value and what would be accepted.
    pub fn new(kind: ConfigErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What kind of mistake this is.
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {}

impl From<Infallible> for ConfigError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The error that made a [`StoreError`].
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A store could not answer. A denial is a [`Decision`](crate::Decision), not an error.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    part: usize,
    source: Option<BoxError>,
}

/// Why a store could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It did not answer within its deadline; whether it has spent is unknown.
    Timeout,
    /// It cannot be reached, so that nothing was spent; or the connection broke before an answer came, and that is unknown.
    Unavailable,
    /// It answered something that is not an answer.
    Protocol,
    /// An ask named a policy that was opened on another store; a mistake in the program, never worth a retry.
    ForeignPolicy,
    /// A call without asks; a mistake in the program, never worth a retry.
    NothingAsked,
    /// One call named more asks or quotas than [`MAX_QUOTAS`](crate::policy::MAX_QUOTAS); never worth a retry.
    TooManyQuotas,
}

impl StoreError {
    /// An error without a deeper cause.
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, part: 0, source: None }
    }

    /// An error with its cause, which [`source`](Error::source) returns.
    pub fn with_source(kind: StoreErrorKind, source: impl Into<BoxError>) -> Self {
        Self { kind, part: 0, source: Some(source.into()) }
    }

    /// The error of one part of a store whose parts fail on their own; see [`Store::parts`](crate::Store::parts).
    #[must_use]
    pub fn in_part(mut self, part: usize) -> Self {
        self.part = part;
        self
    }

    /// Which part of the store failed; 0 if it is a store in one piece.
    pub fn part(&self) -> usize {
        self.part
    }

    /// Why the store could not answer.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without a change to the program.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Timeout | StoreErrorKind::Unavailable | StoreErrorKind::Protocol)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Timeout => "the store did not answer in time",
            StoreErrorKind::Unavailable => "the store cannot be reached",
            StoreErrorKind::Protocol => "the store answered something unexpected",
            StoreErrorKind::ForeignPolicy => "the policy was opened on another store",
            StoreErrorKind::NothingAsked => "the store was asked nothing",
            StoreErrorKind::TooManyQuotas => "more than 16 quotas were asked for in one call",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_prints_each_message_once() {
        let error = StoreError::with_source(StoreErrorKind::Unavailable, "connection refused");
        assert_eq!(error.to_string(), "the store cannot be reached");
        assert_eq!(error.source().unwrap().to_string(), "connection refused");
        assert!(error.is_transient());
        assert!(!StoreError::new(StoreErrorKind::ForeignPolicy).is_transient());
    }
}
