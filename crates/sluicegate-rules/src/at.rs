//! Values with their position in the file.
//!
//! Places are lines and columns from 1, as editors count them. A value keeps its place until the last check that can fail.

use std::borrow::Cow;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// A position in the file. Lines and columns count from 1, and columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub line: usize,
    pub column: usize,
    /// The number of characters of the value on this line.
    pub length: usize,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub value: T,
    pub place: Position,
}

impl Position {
    pub(crate) fn of(location: serde_saphyr::Location) -> Self {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let length = usize::try_from(location.span().len()).unwrap_or(usize::MAX);
        Self { line: number(location.line()), column: number(location.column()), length }
    }

    /// Whether the other place begins inside this one.
    pub(crate) fn has(self, other: Self) -> bool {
        self.line == other.line
            && (self.column..self.column.saturating_add(self.length)).contains(&other.column)
    }

    /// The place of a part of the plain text at this place. `range` counts bytes of `text` as it was read.
    pub(crate) fn part(self, text: &str, range: &Range<usize>) -> Self {
        let chars = |range: Range<usize>| text.get(range).map(|part| part.chars().count());
        match (chars(0..range.start), chars(range.clone())) {
            // A quoted or assembled text is longer than its value: then the place of the whole text is returned.
            (Some(before), Some(length)) if self.length == text.chars().count() => {
                Self { column: self.column + before, length, ..self }
            }
            _ => self,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { value, place: Position::of(referenced) })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
