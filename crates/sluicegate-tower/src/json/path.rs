//! The place of a field in a JSON object: [`FieldPath`].

use std::fmt;
use std::sync::Arc;

use memchr::memmem::Finder;
use sluicegate_core::ConfigError;

use crate::key::text::config_error;

/// The longest path, in bytes.
const LONGEST: usize = 256;

/// The names of nested objects and a field, as in `usage.total_tokens`. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FieldPath(Arc<Names>);

struct Names {
    names: Box<[Box<str>]>,
    /// Searches for the last of them.
    last: Finder<'static>,
}

impl FieldPath {
    /// The path with these names, separated by dots.
    pub(crate) fn parse(path: &str) -> Result<Self, ConfigError> {
        let problem = if path.len() > LONGEST {
            Some(format!("has {} bytes: at most {LONGEST} fit", path.len()))
        } else if path.split('.').any(str::is_empty) {
            Some("has an empty name: write names that dots separate, as in \"usage.total_tokens\"".to_owned())
        } else if path.contains(|letter: char| letter.is_whitespace() || "[]*$/\"".contains(letter)) {
            Some("is not a list of names: write names that dots separate, as in \"usage.total_tokens\"; elements of lists cannot be named".to_owned())
        } else {
            None
        };
        match problem {
            Some(problem) => Err(config_error(format!("the field {path:?} {problem}"))),
            None => {
                let last = path.rsplit('.').next().unwrap_or(path);
                let last = Finder::new(last).into_owned();
                Ok(Self(Arc::new(Names { names: path.split('.').map(Box::from).collect(), last })))
            }
        }
    }

    /// Whether it is equal to this text.
    pub(crate) fn is(&self, path: &str) -> bool {
        self.names().iter().map(|name| &**name).eq(path.split('.'))
    }

    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.0.names
    }

    /// Whether a text without escapes may have the field.
    pub(crate) fn may_be_in(&self, text: &[u8]) -> bool {
        self.0.last.find(text).is_some()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join("."))
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
