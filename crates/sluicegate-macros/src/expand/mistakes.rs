//! Mistakes in an attribute and its function: [`Mistakes`].

use syn::{Error, Result};

/// Mistakes found so far.
///
/// All of them are reported together: who fixes a limit sees the next mistake in the same run of
/// the compiler.
#[derive(Default)]
pub(super) struct Mistakes(Option<Error>);

impl Mistakes {
    /// The value, or the mistake put with the others.
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
