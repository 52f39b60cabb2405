//! The language of a file for texts that clients and proxies write: values of header fields, parameters, fields of bodies, and entries of
//! descriptors.

use std::fmt;

use sluicegate_tower::limits::path::Fold;

use crate::at::At;
use crate::error::Problems;
use crate::read::short;
use crate::schema::{FieldWanted, OneOrMany};

/// A text: the parts between its `*`, each of which stands for any text, also for none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TextPattern(Vec<String>);

/// The texts of a field that a condition wants, of which a request may have one, several, or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FieldPattern {
    /// One of them has to match one of the texts.
    OneOf(Vec<TextPattern>),
    Absent,
}

impl TextPattern {
    /// Warns of a text that was probably meant as a regular expression, and then matches other texts, or none.
    pub(super) fn of(text: &At<String>, problems: &mut Problems<'_>) -> Self {
        if looks_like_regex(&text.value) {
            problems.warning(
                text.place,
                format!(
                    "{:?} looks like a regular expression, and is read as a text in which only '*' has a meaning: any text",
                    short(&text.value)
                ),
            );
        }
        Self(text.value.split('*').map(str::to_owned).collect())
    }

    /// The only text that matches, if there is one.
    pub(super) fn exact(&self) -> Option<&str> {
        if let [text] = &self.0[..] { Some(text) } else { None }
    }

    /// The texts for paths without the ignored differences: `/files/*` may be `/files` as well.
    pub(super) fn folded(self, fold: Fold) -> impl Iterator<Item = Self> {
        let text = fold.apply(self.to_string()).into_owned();
        let folder = text.strip_suffix("/*").filter(|_| fold.trailing_slash).map(str::to_owned);
        [Some(text), folder]
            .into_iter()
            .flatten()
            .map(|text| Self(text.split('*').map(str::to_owned).collect()))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let [first, rest @ ..] = &self.0[..] else { return false };
        let [middle @ .., last] = rest else { return text == first };
        let Some(mut left) = text.strip_prefix(&**first) else { return false };
        // The first place of each part leaves the most text for later parts.
        for part in middle {
            let Some(at) = left.find(&**part) else { return false };
            left = &left[at + part.len()..];
        }
        left.ends_with(&**last)
    }
}

impl FieldPattern {
    pub(super) fn of(given: &At<FieldWanted>, problems: &mut Problems<'_>) -> Self {
        match &given.value {
            FieldWanted::Presence { present: false } => Self::Absent,
            FieldWanted::Presence { present: true } => Self::OneOf(vec![TextPattern(vec![String::new(); 2])]),
            FieldWanted::Texts(texts) => {
                let texts = At { value: texts.clone(), place: given.place };
                Self::OneOf(texts_of(&texts, problems))
            }
        }
    }

    /// Whether the texts of a field meet it.
    pub(super) fn is_met_by<T: AsRef<str>>(&self, texts: impl IntoIterator<Item = T>) -> bool {
        let mut texts = texts.into_iter();
        match self {
            Self::OneOf(wanted) => texts.any(|text| wanted.iter().any(|one| one.matches(text.as_ref()))),
            Self::Absent => texts.next().is_none(),
        }
    }

    /// The texts of which one has to be there; `None` if other texts, or none, may meet it.
    pub(super) fn exact(&self) -> Option<Vec<&str>> {
        match self {
            Self::OneOf(wanted) => wanted.iter().map(TextPattern::exact).collect(),
            Self::Absent => None,
        }
    }
}

/// The patterns of a text or a list. An empty list is a mistake.
pub(super) fn texts_of(given: &At<OneOrMany>, problems: &mut Problems<'_>) -> Vec<TextPattern> {
    let texts = given.all();
    if texts.is_empty() {
        problems
            .error(given.place, "an empty list says nothing: write what is meant, or \"*\" for any value");
    }
    texts.iter().map(|text| TextPattern::of(text, problems)).collect()
}

/// Whether a text was probably meant as a regular expression.
fn looks_like_regex(text: &str) -> bool {
    const PARTS: [&str; 14] =
        [".*", ".+", "\\d", "\\w", "\\s", "\\b", "\\.", "\\/", "(?", "[a-", "[A-", "[0-", "[^", "]+"];
    text.starts_with('^')
        || text.ends_with('$')
        || text.contains('(') && text.contains('|')
        || PARTS.iter().any(|part| text.contains(part))
}

/// Writes the pattern as in a file.
impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("*"))
    }
}
