//! Paths as axum writes them, all in one regular expression set: a request's path is read once, in linear time.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use regex::{RegexSet, RegexSetBuilder, SetMatches};

use crate::at::At;
use crate::error::Problems;

/// Collects the patterns of a file.
#[derive(Default)]
pub(super) struct PathPatterns {
    patterns: Vec<String>,
}

/// All patterns of a file. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Paths {
    set: Arc<RegexSet>,
    /// Which file's they are: a number of its own.
    number: u64,
}

/// What matches the path that this thread has looked at last: all rules ask about the same one, one after the other.
struct Last {
    number: u64,
    path: String,
    found: Option<SetMatches>,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { number: 0, path: String::new(), found: None }) };
}

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
            Ok(set) => {
                static NEXT: AtomicU64 = AtomicU64::new(1);
                // Relaxed: that numbers differ is all that matters.
                Some(Paths { set: Arc::new(set), number: NEXT.fetch_add(1, Ordering::Relaxed) })
            }
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
        LAST.with_borrow_mut(|last| {
            if last.number != self.number || last.path != path {
                last.found = Some(self.set.matches(&normal(path)));
                last.number = self.number;
                last.path.clear();
                last.path.push_str(path);
            }
            last.found.as_ref().is_some_and(|found| numbers.iter().any(|number| found.matched(*number)))
        })
    }
}

/// The path that is meant: `//login` and `/%6cogin` are `/login`. A slash that is written `%2f` is a part of its segment, as it is
/// for routers: otherwise it would lead past a rule with a capture.
fn normal(path: &str) -> Cow<'_, str> {
    if !path.contains("//") && !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let decoded = percent_decoded(path, b'/');
    let mut text = String::with_capacity(decoded.len());
    for c in decoded.chars() {
        if c != '/' || !text.ends_with('/') {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

/// Whether a path goes up, in whatever writing: routers and servers disagree where it leads.
pub(super) fn has_dots(path: &str) -> bool {
    let plain = percent_decoded(path, 0);
    plain.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

/// A part of a query as it is meant.
pub(super) fn form_decoded(text: &str) -> String {
    percent_decoded(&text.replace('+', " "), 0)
}

/// Without percent signs, but for a byte that stays as it is written.
fn percent_decoded(text: &str, kept: u8) -> String {
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let found = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                byte_of([*high, *low]).filter(|byte| *byte != kept).map(|byte| (byte, after))
            }
            _ => None,
        };
        let (byte, after) = found.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn byte_of([high, low]: [u8; 2]) -> Option<u8> {
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
    if normal(pattern) != pattern {
        return Err(format!(
            "no request has the path {shown:?} in its normal form: write {:?}",
            normal(pattern)
        ));
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
            ("/users/{id}/posts", "/users/a%2fb/posts", true),
            ("/users/{id}", "/users/a%2Fb", true),
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
            ("//login", "write \"/login\""),
            ("/a%20b", "write \"/a b\""),
        ] {
            let error = expression(pattern).expect_err(pattern);
            assert!(error.contains(advice), "{error}");
        }
    }
}
