//! A configuration that cannot work as written: [`ConfigError`].

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::write_chain;

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

    /// This error in the policy of this name, which begins the message.
    #[must_use]
    pub fn in_policy(mut self, name: &str) -> Self {
        self.policy = Some(name.into());
        self
    }

    /// This error in the quota at this index of its policy.
    #[must_use]
    pub fn in_quota(mut self, index: usize) -> Self {
        self.quota = Some(index);
        self
    }

    /// This error at these bytes of the text that was read.
    #[must_use]
    pub fn at(mut self, span: Range<usize>) -> Self {
        self.span = Some(span);
        self
    }

    /// This error with its cause, which [`source`](Error::source) returns and the message leaves out.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

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
