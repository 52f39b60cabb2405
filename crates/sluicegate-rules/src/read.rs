//! Reads the bytes of a file into its sections, within bounds, and reports mistakes in its shape.
//!
//! # Bounds
//! A file has at most [`MOST_BYTES`]. Anchors are expanded within budgets of the parser, so that a small file cannot become a large one
//! in memory; merge keys and tags are refused, because readers of YAML disagree about them.

use std::io::Read as _;
use std::path::Path;

use regex::Regex;
use serde_saphyr::{Error, MergeKeyPolicy};

use crate::at::Position;
use crate::error::Problems;
use crate::schema::File;
use crate::shape::Entries;
use crate::shown::{nearest, short};
use crate::variables::{Variables, is_own_secret};

/// The largest file that is read.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// Reads the sections. Returns `None` if the shape is wrong, which is reported.
pub(crate) fn sections(text: &str, variables: &Variables, problems: &mut Problems<'_>) -> Option<File> {
    if text.len() > MOST_BYTES {
        problems.error(None, format!("it has {} bytes, and at most {MOST_BYTES} are read", text.len()));
        return None;
    }
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
    };
    let values = variables.of(text);
    problems.hide(&values);
    let (options, mut entries) = (options.with_properties(values), Entries::of(text));
    for number in 0..MOST_SHAPES {
        let error = match serde_saphyr::from_str_with_options(entries.text(), options.clone()) {
            Ok(file) => {
                quoted_variables(text, problems);
                named_by_variables(text, problems);
                return (number == 0).then_some(file);
            }
            Err(error) => error,
        };
        // A symbolic link may lead to any file of this machine, so of a text without a version nothing is shown.
        if number == 0
            && !matches!(error, Error::Eof { .. } | Error::SerdeMissingField { .. })
            && !has_version(text)
        {
            problems.error(None, "it is not a rules file: there is no \"version: 1\" in it");
            return None;
        }
        let is_missing = matches!(error, Error::SerdeMissingField { .. });
        let place = error.location().map(Position::of);
        let place = place.and_then(|place| if is_missing { entries.mapping(place) } else { Some(place) });
        let left_out = place.and_then(|place| entries.leave_out(place, is_missing));
        if number == 0 || left_out == Some(true) {
            let is_open = place.is_none_or(|place| problems.is_open(place));
            problems.error(place, problem(&error, text, place, is_open));
        }
        if left_out.is_none() {
            break;
        }
    }
    None
}

/// The most times that a text is parsed for the mistakes in its shape.
const MOST_SHAPES: usize = 50;

/// The mistake in the shape. No value of a section that may hold a secret is shown.
fn problem(error: &Error, text: &str, place: Option<Position>, is_open: bool) -> String {
    let line = place.and_then(|place| text.lines().nth(place.line.saturating_sub(1))).unwrap_or_default();
    match error {
        Error::Eof { .. } => "the file is empty: it needs at least \"version: 1\" and \"rules\"".to_owned(),
        Error::MultipleDocuments { .. } => {
            "a second document begins here: a rules file is one document, without \"---\" in it".to_owned()
        }
        Error::SerdeUnknownField { field, expected, .. } => {
            let near = nearest(field, expected).map_or_else(
                || format!("use one of {}", expected.join(", ")),
                |near| format!("did you mean {near:?}?"),
            );
            format!("{:?} is not known here: {near}", short(field))
        }
        Error::SerdeMissingField { field, .. } => format!("{field:?} is missing here"),
        Error::DuplicateMappingKey { key, .. } => match key {
            Some(key) => format!("{:?} is there twice: give each a name of its own", short(key)),
            None => "a name is there twice".to_owned(),
        },
        Error::UnresolvedProperty { name, .. } => {
            let why = if is_own_secret(name) {
                "is a secret of the server: no rules file gets it"
            } else {
                "is not set"
            };
            format!("the environment variable {name:?} {why}")
        }
        Error::Budget { breach, .. } => format!("the file is too large or too deep: {breach:?}"),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } if !is_open => {
            format!("this has another shape than {expected}")
        }
        _ if has_variable_in_braces(line) => {
            "a variable in braces is not put in: write ${NAME} on a line of its own, as \"name: ${NAME}\""
                .to_owned()
        }
        _ if !is_open => "this has another shape than is expected here".to_owned(),
        other => {
            // The place is left out, because it is reported first.
            let message = other.to_string();
            let message = match message.split(" at line ").next().unwrap_or_default() {
                "expected mapping start" => "names with their values are expected here, as { name: value }",
                "expected string scalar" => "one text is expected here",
                message if message.starts_with("cannot deserialize null") => {
                    "a value is missing here: write it, or leave the word out"
                }
                message => message,
            };
            match bare_braces(line).next().is_some() {
                true => format!("{message}; put quotes around a value with braces, as \"/users/{{id}}\""),
                false => message.to_owned(),
            }
        }
    }
}

/// Reports variables in quotes, because they are not replaced, which is easy to overlook.
fn quoted_variables(text: &str, problems: &mut Problems<'_>) {
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| text.contains("${")) {
        for brace in braces(text).into_iter().filter(|brace| brace.is_quoted && brace.before == '$') {
            let place = Position { line, column: brace.column - 1, length: 2 };
            problems.cause(
                place,
                "a variable in quotes is not put in: write ${NAME} without quotes, on a line of its own",
            );
        }
    }
}

/// Reports variables in names and keys, which logs, pages and clients are shown.
fn named_by_variables(text: &str, problems: &mut Problems<'_>) {
    // The pattern is valid.
    let Ok(named) = Regex::new(r#"^((name|group|key) *:.*\$\{|[^:#"']*\$\{[A-Za-z0-9_]+\}[^: ]* *:( |$))"#)
    else {
        return;
    };
    for (line, text) in (1..).zip(text.lines()) {
        let words = text.trim_start_matches([' ', '-']);
        let place = Position { line, column: text.chars().count() - words.chars().count() + 1, length: 4 };
        if named.is_match(words) {
            problems.error(
                place,
                "a variable is not put into a name or a key, because logs and pages show it: write it out",
            );
        }
    }
}

/// Whether a text names a version, as every rules file does.
fn has_version(text: &str) -> bool {
    let named = Regex::new(r#"(?m)(^|[{,])[ \t\r\n]*["']?version["']?[ \t]*:"#);
    named.is_ok_and(|named| named.is_match(text))
}

/// The braces on this line inside a value without quotes.
fn bare_braces(line: &str) -> impl Iterator<Item = Brace> {
    let is_bare = |brace: &Brace| !brace.is_quoted && !matches!(brace.before, ' ' | '[' | '{' | ',');
    braces(line).into_iter().filter(is_bare)
}

/// Whether a variable is inside braces or brackets that open before it on this line.
fn has_variable_in_braces(line: &str) -> bool {
    let is_in = |brace: Brace| line.chars().take(brace.column - 1).any(|c| matches!(c, '{' | '['));
    bare_braces(line).filter(|brace| brace.before == '$').any(is_in)
}

/// An opening brace.
struct Brace {
    column: usize,
    before: char,
    is_quoted: bool,
}

/// The braces that open on a line, without those in a comment.
fn braces(line: &str) -> Vec<Brace> {
    let (mut quote, mut before, mut is_in_value, mut found) = (None, ' ', false, Vec::new());
    for (column, c) in (1..).zip(line.chars()) {
        match (quote, c) {
            (None, '#') if before == ' ' => break,
            // An apostrophe inside a value is only a character, as is a doubled one inside quotes.
            (None, '"' | '\'') if !is_in_value || before == c => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (_, '{') => found.push(Brace { column, before, is_quoted: quote.is_some() }),
            _ => {}
        }
        // A space ends a name and its colon, and the dash of a list; otherwise it is a part of the value.
        is_in_value = match c {
            ' ' => is_in_value && !matches!(before, ':' | '-' | ','),
            ',' | '[' | ']' | '{' | '}' => false,
            _ => true,
        };
        before = c;
    }
    found
}

/// The text of a file, or the reason why there is none.
pub(crate) fn text(path: &Path) -> Result<String, String> {
    String::from_utf8(bytes(path, MOST_BYTES)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is not UTF-8: byte {at} of it begins no character")
    })
}

/// The content of a file, or the reason why it is unknown.
pub(crate) fn bytes(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("it cannot be read: {error}");
    // Checked before it is opened, because opening a pipe waits for a writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    match bytes.len() > most {
        true => Err(format!("it has more than {most} bytes, and no more are read")),
        false => Ok(bytes),
    }
}
