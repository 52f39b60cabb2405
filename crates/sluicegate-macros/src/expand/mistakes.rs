//! Mistakes in an attribute and its function: [`Mistakes`].

use syn::{Error, Result};

/// Mistakes found so far.
///
/// They are reported together, so that one run of the compiler shows all
/// mistakes.
#[derive(Default)]
pub(super) struct Mistakes(Option<Error>);

impl Mistakes {
    /// The value; a mistake is added to the others.
    pub(super) fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                match &mut self.0 {
                    Some(first) => first.combine(error),
                    none => *none = Some(error),
                }
                None
            }
        }
    }

    /// The value, if there was no mistake.
    pub(super) fn none_or<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}
