//! Paths as axum writes them, all in one regular expression set: a request's path is read once, in linear time.

use std::borrow::Cow;
use std::sync::Arc;

use regex::{RegexSet, RegexSetBuilder};

use crate::at::At;
use crate::error::Problems;

/// Collects the patterns of a file.
#[derive(Default)]
pub(super) struct PathPatterns {
    patterns: Vec<String>,
}

/// All patterns of a file. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Paths(Arc<RegexSet>);

/// The most bytes that the set of all patterns may take when it is compiled.
const MOST_COMPILED: usize = 64 << 20;

impl PathPatterns {
    /// Adds a pattern, and says its number.
    pub(super) fn add(&mut self, pattern: &At<String>, problems: &mut Problems<'_>) -> Option<usize> {
        match expression(&pattern.value) {
            Ok(expression) => {
                self.patterns.push(expression);
                Some(self.patterns.len() - 1)
            }
            Err(text) => {
                problems.error(pattern.place, text);
                None
            }
        }
    }

    pub(super) fn compile(&self, problems: &mut Problems<'_>) -> Option<Paths> {
        let set = RegexSetBuilder::new(&self.patterns).size_limit(MOST_COMPILED).build();
        match set {
            Ok(set) => Some(Paths(Arc::new(set))),
            Err(error) => {
                problems.error(None, format!("the paths of all rules together are too large: {error}"));
                None
            }
        }
    }
}

impl Paths {
    /// Whether one of these patterns matches the path, in its normal form.
    pub(super) fn any(&self, numbers: &[usize], path: &str) -> bool {
        let matches = self.0.matches(&normal(path));
        numbers.iter().any(|number| matches.matched(*number))
    }
}

/// The path that is meant: `//login` and `/%6cogin` are `/login`.
fn normal(path: &str) -> Cow<'_, str> {
    if !path.contains("//") && !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut bytes: Vec<u8> = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let hex = rest.as_slice_of_two().and_then(decoded);
                if hex.is_some() {
                    rest.next();
                    rest.next();
                }
                hex.unwrap_or(b'%')
            }
            byte => byte,
        };
        if byte != b'/' || bytes.last() != Some(&b'/') {
            bytes.push(byte);
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// The next two bytes, without taking them.
trait Ahead {
    fn as_slice_of_two(&self) -> Option<[u8; 2]>;
}

impl Ahead for std::str::Bytes<'_> {
    fn as_slice_of_two(&self) -> Option<[u8; 2]> {
        let mut ahead = self.clone();
        Some([ahead.next()?, ahead.next()?])
    }
}

fn decoded([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? * 16 + digit(low)?)
}

/// The regular expression of a path with captures.
fn expression(pattern: &str) -> Result<String, String> {
    let shown = crate::read::short(pattern);
    let Some(rest) = pattern.strip_prefix('/') else {
        return Err(format!("the path {shown:?} begins with no slash: write \"/{shown}\""));
    };
    if pattern.contains(['?', '#']) {
        return Err(format!("the path {shown:?} has a query: only the path is compared"));
    }
    let mut text = String::from("(?s)^");
    let segments: Vec<&str> = rest.split('/').collect();
    for (index, segment) in segments.iter().enumerate() {
        let is_last = index + 1 == segments.len();
        text.push('/');
        match capture(segment, &shown)? {
            Some(name) if name.starts_with('*') && is_last && name.len() > 1 => text.push_str(".+"),
            Some(name) if name.starts_with('*') => {
                return Err(format!(
                    "the path {shown:?} takes all that follows before its end: write {{*rest}} last"
                ));
            }
            Some("") => return Err(format!("the path {shown:?} has a capture without a name: write {{id}}")),
            Some(_) => text.push_str("[^/]+"),
            None => text.push_str(&regex::escape(segment)),
        }
    }
    text.push('$');
    Ok(text)
}

/// The name of a capture that is a whole segment.
fn capture<'a>(segment: &'a str, path: &str) -> Result<Option<&'a str>, String> {
    let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match name {
        Some(name) if !name.contains(['{', '}']) => Ok(Some(name)),
        _ if segment.contains(['{', '}']) => {
            Err(format!("the path {path:?} has a capture that is not a whole segment: write /{{id}}/"))
        }
        _ if segment.contains('*') => {
            Err(format!("the path {path:?} has a '*': write {{*rest}} for all that follows"))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at::Place;

    fn matches(pattern: &str, path: &str) -> bool {
        let (mut patterns, mut problems) = (PathPatterns::default(), Problems::of("t", ""));
        let pattern = At { value: pattern.to_owned(), place: Place::default() };
        let number = patterns.add(&pattern, &mut problems).expect("a good pattern");
        patterns.compile(&mut problems).expect("small").any(&[number], path)
    }

    #[test]
    fn a_path_matches_as_in_an_axum_router_in_its_normal_form() {
        for (pattern, path, is_match) in [
            ("/login", "/login", true),
            ("/login", "//login", true),
            ("/login", "/%6cogin", true),
            ("/login", "/%6Cogin", true),
            ("/login", "/login/", false),
            ("/login", "/Login", false),
            ("/users/{id}", "/users/7", true),
            ("/users/{id}", "/users/7/posts", false),
            ("/users/{id}", "/users/", false),
            ("/users/{id}/posts", "/users/a%2fb/posts", false),
            ("/assets/{*file}", "/assets/a/b.css", true),
            ("/assets/{*file}", "/assets/", false),
            ("/a.b", "/axb", false),
            ("/", "/", true),
            ("/100%", "/100%", true),
            ("/ä", "/%C3%A4", true),
        ] {
            assert_eq!(matches(pattern, path), is_match, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_that_means_something_else_is_refused_with_what_to_write() {
        for (pattern, advice) in [
            ("login", "write \"/login\""),
            ("/a?b=1", "only the path is compared"),
            ("/{*rest}/x", "write {*rest} last"),
            ("/{}", "capture without a name"),
            ("/a{id}", "not a whole segment"),
            ("/api/*", "write {*rest}"),
        ] {
            let error = expression(pattern).expect_err(pattern);
            assert!(error.contains(advice), "{error}");
        }
    }
}
