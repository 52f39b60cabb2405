//! Errors that keep a log from being replayed: [`ReplayError`].

use std::error::Error;
use std::fmt;
use std::io;

/// The reason why nothing was replayed.
///
/// It names the log, the line or the word, and says what to write instead. Retrying without a change helps only if a log
/// could not be read; then the error of the reader is its source. An outcome with lines that were not understood is not an error.
#[derive(Debug)]
pub struct ReplayError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ReplayError {
    /// An error without a source.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// The log of this name cannot be read beyond this line.
    pub(crate) fn reading(log: &str, line: u64, error: io::Error) -> Self {
        Self { message: format!("{log}: it cannot be read behind line {line}"), source: Some(error.into()) }
    }

    /// The rules have a policy that a store in memory cannot keep; the source names it and the reason.
    pub(crate) fn limits(error: impl Error + Send + Sync + 'static) -> Self {
        Self { message: "the rules cannot be replayed in memory".to_owned(), source: Some(error.into()) }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ReplayError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
