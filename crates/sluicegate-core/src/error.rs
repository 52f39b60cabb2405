//! What can be wrong with a configuration, and why a store gave no answer.
//!
//! | error | comes from | what to do |
//! |---|---|---|
//! | [`ConfigError`] | building a quota, policy, store or layer | correct what its message names; it comes when the program starts |
//! | [`StoreError`] | a store that was asked | nothing: layers do what the policy's [`OnOutage`](crate::OnOutage) says |
//!
//! A refusal is neither of them: it is a [`Decision`](crate::Decision) that is not allowed.
//! [`StoreError::may_succeed_later`] tells an outage, which may be over soon, from a mistake in the
//! program.
//!
//! ```
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let error = Policy::gcra("login", "5/fortnight").on(&MemoryStore::new()).unwrap_err();
//! assert!(error.to_string().contains("\"fortnight\" is not a unit of time"));
//! ```
//!
//! Messages name the offending value and say what to write. They leave out their source, so that a
//! chain (`{error}: {source}`) prints each message once.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A quota, policy, store or layer that cannot work as it was written.
///
/// Its message names the offending value and says what would be accepted. For programs it says the same as data: the
/// [kind](Self::kind) of the mistake, the [policy](Self::policy) and [quota](Self::quota) that it is in, and where it
/// stands in a [text](Self::span).
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
#[derive(Clone, Debug)]
pub struct ConfigError {
    kind: ConfigErrorKind,
    problem: Cow<'static, str>,
    policy: Option<Box<str>>,
    quota: Option<usize>,
    span: Option<Range<usize>>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What kind of mistake a [`ConfigError`] is about.
///
/// Match on it to answer a mistake in a program, such as an editor of rules; show the message to
/// people. Kinds are added as mistakes are, so a match needs an arm for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// A text that is no quota, no span of time, or no word of an option.
    Unreadable,
    /// A limit, period or burst that is zero or out of range.
    Quota,
    /// A burst under an algorithm that has none.
    Burst,
    /// A quota that cannot be kept in exact integers.
    Inexact,
    /// A name that cannot be used in headers, logs and keys.
    Name,
    /// Two quotas of one policy that headers could not tell apart.
    SameLabel,
    /// More quotas than one request can be checked against.
    TooManyQuotas,
    /// Several quotas in a policy that is a queue.
    QueueOfSeveral,
    /// Another setting of a policy that is out of range.
    Policy,
    /// The name is already in use on this store for something else.
    NameTaken,
    /// A policy that was to replace one of another name.
    OtherName,
    /// A policy that was to replace one of another store.
    OtherStore,
    /// A policy that this store cannot keep, although others can.
    Unsupported,
    /// An override that changes nothing, ends before it begins or too late, or is by an operator without a name.
    Override,
    /// A store that cannot be built with these settings.
    Store,
    /// A middleware whose parts do not fit together.
    Layer,
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

    /// The same, in the policy of this name, which the message then begins with.
    #[must_use]
    pub fn in_policy(mut self, name: &str) -> Self {
        self.policy = Some(name.into());
        self
    }

    /// The same, in the quota at this place of its policy.
    #[must_use]
    pub fn in_quota(mut self, index: usize) -> Self {
        self.quota = Some(index);
        self
    }

    /// The same, at these bytes of the text that was read.
    #[must_use]
    pub fn at(mut self, span: Range<usize>) -> Self {
        self.span = Some(span);
        self
    }

    /// The same, with the error that it comes from, which [`source`](Error::source) returns and the message leaves out.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// What kind of mistake this is.
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }

    /// The message, without the policy that it is in.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The name of the policy that it is in.
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The place of the quota that it is in, among those of its policy.
    pub fn quota(&self) -> Option<usize> {
        self.quota
    }

    /// The bytes that it is about, of a text that was read.
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }
}

/// Two errors are equal if they say the same about the same place, whatever they come from.
impl PartialEq for ConfigError {
    fn eq(&self, other: &Self) -> bool {
        let place = |error: &Self| (error.kind, error.quota, error.span.clone());
        place(self) == place(other) && self.problem == other.problem && self.policy == other.policy
    }
}

impl Eq for ConfigError {}

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

/// A store could not answer. A denial is a [`Decision`](crate::Decision), not an error.
///
/// | kind | may succeed later | may have spent |
/// |---|---|---|
/// | [`Timeout`](StoreErrorKind::Timeout) | yes | yes |
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
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    part: usize,
    is_unsent: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Why a store could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It did not answer within its deadline; whether it has spent is unknown.
    Timeout,
    /// It cannot be reached, so that nothing was spent; or the connection broke before an answer came, and that is unknown.
    Unavailable,
    /// Its reply could not be understood.
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
    /// A key was to be suspended or released under a policy that suspends no key; a mistake in the program, never worth a retry.
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

    /// The error of one part of a store whose parts fail on their own; see [`Store::parts`](crate::Store::parts).
    #[must_use]
    pub fn in_part(mut self, part: usize) -> Self {
        self.part = part;
        self
    }

    /// The same error, of a call of which nothing was sent: it has certainly spent nothing. For authors of stores.
    #[must_use]
    pub fn unsent(mut self) -> Self {
        self.is_unsent = true;
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

    /// Whether the same call may succeed later without a change to the program. It is another question whether it is safe to
    /// repeat it: see [`may_have_spent`](Self::may_have_spent).
    pub fn may_succeed_later(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Timeout | StoreErrorKind::Unavailable | StoreErrorKind::Protocol)
    }

    /// Whether the call may have spent what it asked for, so that the same call may spend it twice: when an answer did not
    /// come, or cannot be read. Not when nothing was sent, and when the call itself was a mistake.
    pub fn may_have_spent(&self) -> bool {
        self.may_succeed_later() && !self.is_unsent
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
            StoreErrorKind::NoSuspension => {
                "the policy suspends no key: it has no suspension, or is not enforced"
            }
            StoreErrorKind::UnknownMode => {
                "the store does not know the mode of an ask: use one that is as new as the core"
            }
            StoreErrorKind::TooManyQuotas => "more than 16 quotas were asked for in one call",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_says_where_it_is_and_leaves_its_source_to_the_chain() {
        let error = ConfigError::new(ConfigErrorKind::Store, "the CA is not a certificate in PEM");
        let error = error.with_source("no end line").in_policy("login").in_quota(2).at(3..5);
        assert_eq!(error.to_string(), "policy \"login\": the CA is not a certificate in PEM");
        assert_eq!((error.policy(), error.quota(), error.span()), (Some("login"), Some(2), Some(3..5)));
        assert_eq!(error.source().unwrap().to_string(), "no end line");
        assert_eq!(error.clone(), error);
        assert_ne!(error.clone().at(3..6), error);
    }

    #[test]
    fn a_chain_prints_each_message_once() {
        let error = StoreError::with_source(StoreErrorKind::Unavailable, "connection refused");
        assert_eq!(error.to_string(), "the store cannot be reached");
        assert_eq!(error.source().unwrap().to_string(), "connection refused");
    }

    /// An error after which a call may succeed later was called transient, as if that made it safe to repeat.
    #[test]
    fn an_error_tells_what_may_succeed_later_from_what_is_safe_to_repeat() {
        for (error, later, spent) in [
            (StoreError::new(StoreErrorKind::Timeout), true, true),
            (StoreError::new(StoreErrorKind::Unavailable), true, true),
            (StoreError::new(StoreErrorKind::Unavailable).unsent(), true, false),
            (StoreError::new(StoreErrorKind::Protocol), true, true),
            (StoreError::new(StoreErrorKind::ForeignPolicy), false, false),
        ] {
            assert_eq!((error.may_succeed_later(), error.may_have_spent()), (later, spent), "{error:?}");
        }
    }
}
