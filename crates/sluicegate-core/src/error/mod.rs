//! Errors of configurations, and of stores that give no answer.
//!
//! | error | comes from | what to do |
//! |---|---|---|
//! | [`ConfigError`] | building a quota, policy, store or layer | correct the value that its message names; it occurs when the program starts |
//! | [`StoreError`] | a store that was asked | nothing: layers follow the policy's [`OnOutage`](crate::OnOutage) |
//! | `AcquireError` | waiting for a turn | send the work back, or try again later: it was not admitted |
//!
//! A refusal of a check is no error: it is a [`Decision`](crate::Decision) that is not allowed.
//! [`StoreError::may_succeed_later`] distinguishes an outage, which may be over soon, from a mistake in the
//! program.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let error = Policy::gcra("login", "5/fortnight").on(&MemoryStore::new()).unwrap_err();
//! assert!(error.to_string().contains("\"fortnight\" is not a unit of time"));
//! ```
//!
//! Messages name the offending value and a correction. They leave out their source, so that a
//! chain (`{error}: {source}`) prints each message once.

#[cfg(feature = "tokio")]
mod acquire;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::acquire::{AcquireError, AcquireErrorKind};

/// Writes an error and its sources, each once: `the store cannot be reached: connection refused`.
fn write_chain(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{error}")?;
    let mut source = error.source();
    while let Some(cause) = source {
        write!(f, ": {cause}")?;
        source = cause.source();
    }
    Ok(())
}

/// A quota, policy, store or layer that cannot work as written.
///
/// Its message names the offending value and says what would be accepted. Programs get the same information as data: the
/// [kind](Self::kind) of the mistake, the [policy](Self::policy) and [quota](Self::quota) that contain it, and its position
/// in a [text](Self::span).
///
/// ```
/// use sluicegate_core::Policy;
/// use sluicegate_core::error::ConfigErrorKind;
///
/// let error = Policy::gcra("login", "5/min").and("20/fortnight").build().unwrap_err();
/// assert_eq!(error.kind(), ConfigErrorKind::Unreadable);
/// assert_eq!((error.policy(), error.quota()), (Some("login"), Some(1)));
/// assert_eq!(error.span().map(|span| &"20/fortnight"[span]), Some("fortnight"));
/// ```
#[derive(Clone)]
pub struct ConfigError {
    kind: ConfigErrorKind,
    problem: Cow<'static, str>,
    policy: Option<Box<str>>,
    quota: Option<usize>,
    span: Option<Range<usize>>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kind of mistake of a [`ConfigError`].
///
/// Match on it to answer a mistake in a program, such as an editor of rules; show the message to
/// people. Later versions add kinds, so a match needs an arm for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// A text that is not a valid quota, span of time or option.
    Unreadable,
    /// A limit, period or burst that is zero or out of range, or a start above the burst.
    Quota,
    /// A burst under an algorithm without bursts, or a start under an algorithm that starts full.
    Burst,
    /// A quota that cannot be counted in exact integers.
    Inexact,
    /// A name that cannot be used in headers, logs and keys.
    Name,
    /// Two quotas of one policy with the same label in headers.
    SameLabel,
    /// More quotas than one request can have.
    TooManyQuotas,
    /// Several quotas in a policy that is a queue.
    QueueOfSeveral,
    /// Another setting of a policy that is out of range.
    Policy,
    /// The name is already in use on this store for something else.
    NameTaken,
    /// A replacement of a policy with another name.
    OtherName,
    /// A replacement of a policy on another store.
    OtherStore,
    /// A policy that this store does not support, although others do.
    Unsupported,
    /// Quotas of a key, when the store has no room for more different quotas.
    QuotasExhausted,
    /// An override that changes nothing, ends before it begins or too late, or names no operator.
    Override,
    /// A store that cannot be built with these settings.
    Store,
    /// A middleware whose parts do not fit together.
    Layer,
}

impl From<std::convert::Infallible> for ConfigError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl ConfigError {
    /// Makes an error with a message that names the value and what would be accepted.
    ///
    /// ```
    /// use sluicegate_core::ConfigError;
    /// use sluicegate_core::error::ConfigErrorKind;
    ///
    /// let error = ConfigError::new(ConfigErrorKind::Store, "a pool of 0 connections: use at least 1").in_policy("login");
    /// assert_eq!(error.to_string(), "policy \"login\": a pool of 0 connections: use at least 1");
    /// assert_eq!(error.problem(), "a pool of 0 connections: use at least 1");
    /// ```
    pub fn new(kind: ConfigErrorKind, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, problem: problem.into(), policy: None, quota: None, span: None, source: None }
    }
}

crate::setters! { ConfigError
    /// This error in the policy of this name, which begins the message.
    #[must_use]
    pub fn in_policy(it, name: &str) { it.policy = Some(name.into()) }

    /// This error in the quota at this index of its policy.
    #[must_use]
    pub fn in_quota(it, index: usize) { it.quota = Some(index) }

    /// This error at these bytes of the text that was read.
    #[must_use]
    pub fn at(it, span: Range<usize>) { it.span = Some(span) }

    /// This error with its cause, which [`source`](Error::source) returns and the message leaves out.
    #[must_use]
    pub fn with_source(it, source: impl Into<Box<dyn Error + Send + Sync>>) {
        it.source = Some(source.into().into())
    }
}

impl ConfigError {
    /// The kind of mistake.
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }

    /// The message, without the name of its policy.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The name of the policy with the mistake.
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The index of the quota with the mistake in its policy.
    pub fn quota(&self) -> Option<usize> {
        self.quota
    }

    /// The bytes of the text that the error refers to.
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }
}

/// Two errors are equal if their kind, message and position are, whatever their sources.
impl PartialEq for ConfigError {
    fn eq(&self, other: &Self) -> bool {
        let place = |error: &Self| (error.kind, error.quota, error.span.clone());
        place(self) == place(other) && self.problem == other.problem && self.policy == other.policy
    }
}

impl Eq for ConfigError {}

/// The message and its chain of sources, as a `main` that returns the error prints it.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(self, f)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = &self.policy {
            write!(f, "policy {policy:?}: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// A store could not answer. A denial is a [`Decision`](super::Decision), not an error.
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
    /// The store does not know the [mode](super::store::Mode) of an ask: it is older than the rest of the program, never worth a
    /// retry.
    UnknownMode,
    /// One call named more asks or quotas than [`MAX_QUOTAS`](super::policy::MAX_QUOTAS); never worth a retry.
    TooManyQuotas,
    /// A key brought quotas of its own, but the policy has no room for more different quotas: see
    /// [`RateLimiter::with_quotas`](super::RateLimiter::with_quotas).
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
}

crate::setters! { StoreError
    /// Sets the failed part of a store with parts that fail independently; see [`Parts`](super::store::Parts).
    #[must_use]
    pub fn in_part(it, part: usize) { it.part = part }

    /// Marks the call as never sent: it has certainly spent nothing. For authors of stores.
    #[must_use]
    pub fn unsent(it) { it.is_unsent = true }
}

impl StoreError {
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

#[cfg(test)]
mod tests;
