//! The language of a file for texts that clients and proxies write: paths, hosts, values of header fields, parameters, fields of bodies, and
//! entries of descriptors.
//!
//! A regular expression must match the whole text, as a text with `*` must. It takes time in proportion to the text, and a bounded size of memory.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};
use sluicegate_tower::limits::path::{Fold, PathPattern};

use crate::at::At;
use crate::error::Problems;
use crate::schema::TextWanted;
use crate::shown::short;

/// A text, or the texts of one form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TextPattern {
    /// The parts between its `*`, each of which stands for any text, also for none.
    Parts(Vec<String>),
    Regex(WholeRegex),
}

/// A path as axum writes it, or the paths of one form.
#[derive(Clone, Debug)]
pub(super) enum PathWanted {
    Pattern(PathPattern),
    Regex(WholeRegex),
}

/// A regular expression for whole texts.
#[derive(Clone, Debug)]
pub(super) struct WholeRegex {
    text: String,
    regex: Regex,
}

/// The texts of a field that a condition wants, of which a request may have one, several, or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FieldPattern {
    /// One of them has to match one of the texts.
    OneOf(Vec<TextPattern>),
    Absent,
}

/// The most bytes that a compiled expression may take: for texts of a request these are some hundred characters and classes.
const MOST_BYTES: usize = 1 << 16;

impl WholeRegex {
    /// Reads an expression, or reports the mistake in it.
    pub(super) fn of(
        text: &str,
        given: &At<TextWanted>,
        fold: Fold,
        problems: &mut Problems<'_>,
    ) -> Option<Self> {
        let build = |text: &str| {
            let mut builder = RegexBuilder::new(text);
            builder.unicode(false).dot_matches_new_line(true).case_insensitive(fold.case);
            builder.size_limit(MOST_BYTES).build()
        };
        // Alone first: a bracket too many could leave the group around it.
        let regex = build(text).and_then(|_| build(&format!(r"\A(?:{text})\z")));
        let regex = regex.map_err(|error| {
            let error = error.to_string();
            let why = error.lines().next_back().unwrap_or_default().trim_start_matches("error: ");
            problems.error(given.place, format!("{:?} is not a regular expression: {why}", short(text)));
        });
        Some(Self { text: text.to_owned(), regex: regex.ok()? })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }
}

impl TextPattern {
    /// Reads a text. Warns of one that was probably meant as a regular expression, and then matches other texts, or none.
    fn of(given: &At<TextWanted>, fold: Fold, problems: &mut Problems<'_>) -> Option<Self> {
        match &given.value {
            TextWanted::Regex(regex) => WholeRegex::of(regex, given, fold, problems).map(Self::Regex),
            TextWanted::Text(text) => {
                if looks_like_regex(text) {
                    let shown = short(text);
                    problems.warning(
                        given.place,
                        format!(
                            "{shown:?} looks like a regular expression, and is read as a text in which only '*' has a meaning: any text; write {{ regex: .. }} for an expression"
                        ),
                    );
                }
                Some(Self::of_parts(&fold.apply(&**text)))
            }
            TextWanted::Presence(_) | TextWanted::Several(_) => {
                problems.error(given.place, "a text is expected here, or { regex: .. }");
                None
            }
        }
    }

    /// A text in which `*` may stand for any text.
    pub(super) fn of_parts(text: &str) -> Self {
        Self::Parts(text.split('*').map(str::to_owned).collect())
    }

    /// The only text that matches, if there is one.
    pub(super) fn exact(&self) -> Option<&str> {
        match self {
            Self::Parts(parts) => {
                if let [text] = &parts[..] {
                    Some(text)
                } else {
                    None
                }
            }
            Self::Regex(_) => None,
        }
    }

    /// The texts for paths without the ignored differences: `/files/*` may be `/files` as well.
    fn with_folder(self, fold: Fold) -> impl Iterator<Item = Self> {
        let text = self.to_string();
        let folder = text.strip_suffix("/*").filter(|_| fold.trailing_slash).map(Self::of_parts);
        [Some(self), folder].into_iter().flatten()
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let parts = match self {
            Self::Parts(parts) => &parts[..],
            Self::Regex(regex) => return regex.matches(text),
        };
        let [first, rest @ ..] = parts else { return false };
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

impl PathWanted {
    /// Reads a path, or reports the mistake in it.
    pub(super) fn of(given: &At<TextWanted>, fold: Fold, problems: &mut Problems<'_>) -> Option<Self> {
        match &given.value {
            TextWanted::Text(text) => {
                let pattern = PathPattern::new(text, fold);
                pattern.map_err(|error| problems.error(given.place, error.problem())).ok().map(Self::Pattern)
            }
            TextWanted::Regex(text) if text.starts_with(|first: char| first.is_ascii_alphanumeric()) => {
                let shown = short(text);
                problems.error(
                    given.place,
                    format!("no path matches {shown:?}: the expression is for the whole path, which begins with \"/\""),
                );
                None
            }
            TextWanted::Regex(text) => WholeRegex::of(text, given, fold, problems).map(Self::Regex),
            TextWanted::Presence(_) | TextWanted::Several(_) => {
                problems.error(given.place, "a path is expected here, or { regex: .. }");
                None
            }
        }
    }

    /// The pattern, if it can be found by its segments, and need not be compared with each path.
    pub(super) fn indexed(&self) -> Option<&PathPattern> {
        match self {
            Self::Pattern(pattern) => Some(pattern).filter(|pattern| !pattern.is_glob()),
            Self::Regex(_) => None,
        }
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        match self {
            Self::Pattern(pattern) => pattern.matches(path),
            Self::Regex(regex) => regex.matches(path),
        }
    }

    /// Whether it surely matches all paths that the other one matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pattern(own), Self::Pattern(other)) => own.covers(other),
            (Self::Regex(own), Self::Regex(other)) => own == other,
            _ => false,
        }
    }
}

impl FieldPattern {
    /// The texts are compared with texts that the fold was applied to.
    pub(super) fn of(given: &At<TextWanted>, fold: Fold, problems: &mut Problems<'_>) -> Self {
        match &given.value {
            TextWanted::Presence(false) => Self::Absent,
            TextWanted::Presence(true) => Self::any(),
            _ => Self::OneOf(texts_of(given, fold, problems)),
        }
    }

    /// Any text.
    pub(super) fn any() -> Self {
        Self::OneOf(vec![TextPattern::of_parts("*")])
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
fn texts_of(given: &At<TextWanted>, fold: Fold, problems: &mut Problems<'_>) -> Vec<TextPattern> {
    let texts = given.each();
    if texts.is_empty() {
        problems
            .error(given.place, "an empty list says nothing: write what is meant, or \"*\" for any value");
    }
    let texts = texts.iter().filter_map(|text| TextPattern::of(text, fold, problems));
    texts.flat_map(|text| text.with_folder(fold)).collect()
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

impl PartialEq for WholeRegex {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str()
    }
}

impl Eq for WholeRegex {}

/// Writes the pattern as in a file.
impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts(parts) => f.write_str(&parts.join("*")),
            Self::Regex(regex) => regex.fmt(f),
        }
    }
}

impl fmt::Display for FieldPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneOf(wanted) => {
                f.write_str(&wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "))
            }
            Self::Absent => f.write_str("absent"),
        }
    }
}

impl fmt::Display for PathWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pattern(pattern) => pattern.fmt(f),
            Self::Regex(regex) => regex.fmt(f),
        }
    }
}

impl fmt::Display for WholeRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "regex {}", self.text)
    }
}
