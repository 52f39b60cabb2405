//! The reason why an override was not put or withdrawn: [`OverrideError`].

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::error::{ConfigError, StoreError};
use crate::policy::Override;

/// An override that was not put or withdrawn. Nothing has changed, unless the [kind](Self::kind) says that the effect is unknown.
#[derive(Debug)]
pub struct OverrideError(pub(super) OverrideProblem);

/// The kind of problem of an [`OverrideError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverrideErrorKind {
    /// No policy of this name is open on this store, or the store cannot support the changed policy, or the override itself is invalid.
    Invalid,
    /// The override in force is not the one that the operator has seen, or there is none.
    OutOfDate,
    /// The shared store did not answer; it is unknown whether it has taken the override.
    Store,
}

#[derive(Debug)]
pub(super) enum OverrideProblem {
    Invalid(ConfigError),
    OutOfDate { wanted: String, last: Option<Arc<Override>> },
    Store(StoreError),
}

impl OverrideError {
    /// The kind of problem.
    pub fn kind(&self) -> OverrideErrorKind {
        match self.0 {
            OverrideProblem::Invalid(_) => OverrideErrorKind::Invalid,
            OverrideProblem::OutOfDate { .. } => OverrideErrorKind::OutOfDate,
            OverrideProblem::Store(_) => OverrideErrorKind::Store,
        }
    }

    /// The problem, as data.
    pub fn config(&self) -> Option<&ConfigError> {
        match &self.0 {
            OverrideProblem::Invalid(error) => Some(error),
            _ => None,
        }
    }

    /// The override that another operator has put in the meantime; `None` if that operator has withdrawn it.
    pub fn standing(&self) -> Option<&Override> {
        match &self.0 {
            OverrideProblem::OutOfDate { last, .. } => last.as_deref().filter(|last| !last.is_withdrawal()),
            _ => None,
        }
    }
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            OverrideProblem::Invalid(error) => error.fmt(f),
            OverrideProblem::OutOfDate { wanted, last: Some(last) } if last.is_withdrawal() => {
                write!(
                    f,
                    "not done: {wanted}. The last override is {last}: put another one without `replacing`"
                )
            }
            OverrideProblem::OutOfDate { wanted, last: Some(last) } => {
                let version = last.version();
                write!(f, "not done: {wanted}. Another override stands: {last}, with version {version}. ")?;
                f.write_str("Name that version to replace or withdraw it")
            }
            OverrideProblem::OutOfDate { wanted, last: None } => {
                write!(f, "not done: {wanted}. No override stands: put one without `replacing`")
            }
            OverrideProblem::Store(_) => {
                f.write_str("the store did not take the override, or did not say so: look again")
            }
        }
    }
}

impl Error for OverrideError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            OverrideProblem::Invalid(error) => error.source(),
            OverrideProblem::OutOfDate { .. } => None,
            OverrideProblem::Store(error) => Some(error),
        }
    }
}

impl From<ConfigError> for OverrideError {
    fn from(error: ConfigError) -> Self {
        Self(OverrideProblem::Invalid(error))
    }
}

impl From<StoreError> for OverrideError {
    fn from(error: StoreError) -> Self {
        Self(OverrideProblem::Store(error))
    }
}
