//! Mistakes in a rules file, with their places.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;

use crate::at::Position;
use crate::shown::shown;
use crate::variables::{hidden, without_values};

/// A rules file that cannot be used: all mistakes in its values, or all mistakes in its shape.
///
/// `Display` writes it as a compiler would: file, line and column, the mistake and what would be accepted, and the line with a caret under
/// the value. Only lines of sections without secrets are shown.
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let text = "version: 1\npolicies:\n  free: { quota: 5/fortnight }\nrules: [{ name: all, limit: free, key: client }]\n";
/// let error = RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_err();
/// assert!(error.to_string().starts_with("rules.yaml:3:20: error: "), "{error}");
/// ```
///
/// At most a hundred mistakes are reported, in the order of the file; warnings are left out if there are errors. If the shape is wrong,
/// as by an unknown word or a value of another type, only such mistakes are reported, up to fifty.
///
/// # Secrets
/// No line of `jwt`, `store` and `api_keys` is shown, nor of an unknown section, nor of a file that is one value in braces. A rule is shown up
/// to the first line with a word that may have a secret after it, such as `header` and `query`:
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let text = "version: 1
/// policies: { api: { quota: 5/min } }
/// rules:
///   - { name: a, limit: api, key: client, only_if: { method: get, header: { x-token: s3cret } } }
/// ";
/// let error = RulesFile::parse("rules.yaml", text, &Variables::none()).unwrap_err().to_string();
/// assert_eq!(error, "rules.yaml:4:60: error: \"get\" is not a method: write it in capitals, as GET");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RulesError {
    problems: Vec<Problem>,
}

/// One mistake, or something that is worth a second look. `Display` writes it as a compiler does, on three lines if its line may be
/// shown; programs read [`line`](Self::line), [`column`](Self::column) and [`text`](Self::text).
#[derive(Clone, PartialEq, Eq)]
pub struct Problem {
    source: String,
    place: Option<Position>,
    is_error: bool,
    text: String,
    line: Option<String>,
}

impl RulesError {
    pub(crate) fn new(problems: Vec<Problem>) -> Self {
        Self { problems }
    }

    /// An error about the file as a whole.
    pub(crate) fn of_file(name: &str, problem: &str) -> Self {
        let mut problems = Problems::of(name, "");
        problems.error(None, problem);
        problems.into_errors()
    }

    /// All mistakes, in the order of the file.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl Problem {
    /// The line, counted from 1; `None` if the problem is about the file as a whole.
    pub fn line(&self) -> Option<usize> {
        self.place.map(|place| place.line)
    }

    /// The column in characters, counted from 1.
    pub fn column(&self) -> Option<usize> {
        self.place.map(|place| place.column)
    }

    /// The mistake, and what would be accepted: a sentence without the place and without a full stop. It contains no values of secret
    /// sections. Later versions may word it differently.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Collects the mistakes in a file.
pub(crate) struct Problems<'a> {
    source: &'a str,
    text: &'a str,
    found: Vec<Problem>,
    /// The number of mistakes that are not reported.
    more: usize,
    /// Places with a known mistake: later errors there are not reported.
    known: Vec<Position>,
    /// The variables whose values are not shown.
    hidden: Vec<(String, String)>,
}

impl<'a> Problems<'a> {
    /// `source` is the name of the file.
    pub(crate) fn of(source: &'a str, text: &'a str) -> Self {
        Self { source, text, found: Vec::new(), more: 0, known: Vec::new(), hidden: Vec::new() }
    }

    /// Shows the values of these variables by their names.
    pub(crate) fn hide(&mut self, values: &HashMap<String, String>) {
        self.hidden = hidden(values);
    }

    /// The variables whose values are not shown, each with its value.
    pub(crate) fn hidden(&self) -> &[(String, String)] {
        &self.hidden
    }

    pub(crate) fn error(&mut self, place: impl Into<Option<Position>>, text: impl Into<String>) {
        let place = place.into();
        if !place.is_some_and(|place| self.known.iter().any(|known| place.has(*known))) {
            self.add(place, text.into(), true);
        }
    }

    /// An error that explains all later errors at this place; these are not reported.
    pub(crate) fn cause(&mut self, place: Position, text: impl Into<String>) {
        let is_told = self.has_room(true);
        self.error(place, text);
        // A cause that is only counted is not kept, so that errors at its place are counted too: each error is compared with all kept
        // causes.
        if is_told {
            self.known.push(place);
        }
    }

    pub(crate) fn warning(&mut self, place: impl Into<Option<Position>>, text: impl Into<String>) {
        self.add(place.into(), text.into(), false);
    }

    /// Adds an error in another file, without showing a line of it.
    pub(crate) fn error_in(&mut self, source: &str, place: Option<Position>, text: String) {
        self.push(Problem { source: source.to_owned(), place, is_error: true, text, line: None });
    }

    /// Adds the problems of another file.
    pub(crate) fn add_all(&mut self, others: Problems<'_>) {
        others.found.into_iter().for_each(|problem| self.push(problem));
    }

    fn add(&mut self, place: Option<Position>, text: String, is_error: bool) {
        // This reads the file up to the line, so it is skipped for a problem that is only counted.
        let line = place.filter(|_| self.has_room(is_error)).and_then(|place| shown(self.text, place.line));
        self.push(Problem {
            source: self.source.to_owned(),
            place,
            is_error,
            text,
            line: line.map(str::to_owned),
        });
    }

    fn push(&mut self, problem: Problem) {
        if self.has_room(problem.is_error) {
            let Problem { source, text, .. } = problem;
            let [source, text] = [source, text].map(|text| without_values(text, &self.hidden));
            self.found.push(Problem { source, text, ..problem });
        } else {
            self.more += 1;
        }
    }

    /// Whether one more problem is reported: above the maximum, only the first error is.
    fn has_room(&self, is_error: bool) -> bool {
        self.found.len() < MOST || is_error && !self.has_errors()
    }

    /// Whether this place cannot hold a secret.
    pub(crate) fn is_open(&self, place: Position) -> bool {
        shown(self.text, place.line).is_some()
    }

    /// The number of problems so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// The number of errors so far.
    pub(crate) fn errors(&self) -> usize {
        self.found.iter().filter(|problem| problem.is_error).count() + self.more
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|problem| problem.is_error)
    }

    /// The errors, for callers that know that there are some.
    pub(crate) fn into_errors(self) -> RulesError {
        match self.into_result() {
            Err(error) => error,
            Ok(warnings) => RulesError::new(warnings),
        }
    }

    /// The errors if there are some, or else the warnings.
    pub(crate) fn into_result(self) -> Result<Vec<Problem>, RulesError> {
        let mut found = self.found;
        let of_others = |problem: &Problem| problem.source != self.source;
        found.sort_by_key(|problem| {
            (of_others(problem), problem.place.map(|place| (place.line, place.column)))
        });
        if found.iter().any(|problem| problem.is_error) {
            found.retain(|problem| problem.is_error);
            return Err(RulesError::new(found));
        }
        Ok(found)
    }
}

/// The most reported mistakes of one file.
const MOST: usize = 100;

/// The shown characters of a long line before and after the value.
const AROUND: usize = 60;

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if let Some(Position { line, column, .. }) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}: {}", if self.is_error { "error" } else { "warning" }, self.text)?;
        if let (Some(place), Some(line)) = (self.place, &self.line) {
            let skipped = place.column.saturating_sub(AROUND + 1);
            let length = place.length.clamp(1, AROUND);
            let line: String = line.chars().skip(skipped).take(2 * AROUND + length).collect();
            let gutter = place.line.to_string();
            let left = line.chars().count().saturating_sub(place.column - 1 - skipped).max(1);
            write!(f, "\n  {gutter} | {}", line.trim_end())?;
            write!(f, "\n  {:1$} | ", "", gutter.len())?;
            write!(f, "{:1$}{2}", "", place.column - 1 - skipped, "^".repeat(length.min(left)))?;
        }
        Ok(())
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for RulesError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_warnings_are_told_and_still_the_first_error() {
        let text = "rules:\n".to_owned() + &"  - name: a\n".repeat(100_000);
        let mut problems = Problems::of("rules.yaml", &text);
        let at = |line| Position { line, column: 5, length: 1 };
        // Reading the file for each of them would take hours.
        for line in 2..100_000 {
            problems.warning(at(line), "unused");
        }
        problems.error(at(100_000), "wrong");
        assert_eq!(problems.count(), 99_999);
        let error = problems.into_errors().to_string();
        assert!(error.starts_with("rules.yaml:100000:5: error: wrong\n  100000 |   - name: a"), "{error}");
    }
}
