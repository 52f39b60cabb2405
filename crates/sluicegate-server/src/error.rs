//! Errors of a server: [`ServeError`].

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// A server cannot start.
#[derive(Debug)]
pub struct ServeError {
    kind: ServeErrorKind,
    problem: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The cause of a [`ServeError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeErrorKind {
    /// A setting is wrong, or two settings contradict each other.
    Setting,
    /// An address is not available.
    Listen,
    /// A certificate or a key cannot be used.
    Tls,
}

impl ServeError {
    pub(crate) fn new(kind: ServeErrorKind, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, problem: problem.into(), source: None }
    }

    pub(crate) fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The cause.
    pub fn kind(&self) -> ServeErrorKind {
        self.kind
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Error for ServeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
