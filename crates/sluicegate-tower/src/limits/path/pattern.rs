//! A path with captures, as an operator writes it: [`PathPattern`].

use std::fmt;

use sluicegate_core::ConfigError;

use super::reading::Fold;
use super::spelling::{has_dots, normal};
use crate::key::text::{config_error, shown};

/// A path in axum's syntax, as segments. Its [`Fold`] is already applied, as to the paths that it is compared with.
#[derive(Clone, Debug)]
pub struct PathPattern {
    /// The original text.
    text: String,
    segments: Vec<PathSegment>,
    /// The only path that it matches, if it has no captures.
    literal: Option<String>,
    fold: Fold,
}

/// A segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a path matches by these and no others")]
pub enum PathSegment {
    /// This text.
    Text(String),
    /// `{id}`: any segment that is not empty.
    Capture,
    /// `*` or `{*rest}`: everything below.
    Rest,
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When no path would match it, or other paths than it appears to match. The message gives a correction.
    pub fn new(text: &str, fold: Fold) -> Result<Self, ConfigError> {
        let told = |problem: String| config_error(format!("the path {} {problem}", shown(text)));
        let mut segments = segments(text).map_err(told)?;
        for segment in &mut segments {
            if let PathSegment::Text(text) = segment {
                *text = fold.apply(&**text).into_owned();
            }
        }
        if fold.trailing_slash
            && segments.len() > 1
            && matches!(segments.last(), Some(PathSegment::Text(text)) if text.is_empty())
        {
            segments.pop();
        }
        let texts = segments.iter().map(|segment| match segment {
            PathSegment::Text(text) => Some(["/", text].concat()),
            PathSegment::Capture | PathSegment::Rest => None,
        });
        let literal = texts.collect();
        Ok(Self { text: text.to_owned(), segments, literal, fold })
    }

    /// The segments. Only the last one may be [`PathSegment::Rest`].
    pub fn segments(&self) -> &[PathSegment] {
        &self.segments
    }

    /// The only path that it matches, if it has no captures.
    pub fn literal(&self) -> Option<&str> {
        self.literal.as_deref()
    }

    /// Whether it matches a [spelling](super::spellings) of a path, to which the same [`Fold`] has been applied.
    #[inline]
    pub fn matches(&self, path: &str) -> bool {
        match &self.literal {
            Some(literal) => path == literal,
            None => self.matches_by_segments(path),
        }
    }

    /// Whether it surely matches each path that the other matches.
    pub fn covers(&self, other: &Self) -> bool {
        let is_covered = |(own, other): (&PathSegment, &PathSegment)| {
            own == other
                || (*own == PathSegment::Capture
                    && matches!(other, PathSegment::Text(text) if !text.is_empty()))
        };
        let (own, is_open) = match self.segments.split_last() {
            Some((PathSegment::Rest, before)) => (before, true),
            _ => (&*self.segments, false),
        };
        let lengths = own.len().cmp(&other.segments.len());
        (lengths.is_eq() && !is_open || lengths.is_lt() && is_open)
            && own.iter().zip(&other.segments).all(is_covered)
    }

    fn matches_by_segments(&self, path: &str) -> bool {
        let mut left = path.strip_prefix('/');
        for segment in &self.segments {
            let Some(text) = left else {
                // `/files` is `/files/` here, which is below `/files/*`.
                return self.fold.trailing_slash && path.starts_with('/') && *segment == PathSegment::Rest;
            };
            let behind = match segment {
                PathSegment::Rest => return true,
                PathSegment::Text(own) => text.strip_prefix(&**own),
                PathSegment::Capture => {
                    Some(split(text).0.len()).filter(|end| *end > 0).map(|end| &text[end..])
                }
            };
            left = match behind {
                Some("") => None,
                Some(behind) if behind.starts_with('/') => Some(&behind[1..]),
                _ => return false,
            };
        }
        left.is_none()
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The first segment, and the rest of the path.
pub fn split(text: &str) -> (&str, Option<&str>) {
    // By bytes: segments are so short that the set-up of a search would cost more.
    let slash = text.bytes().position(|byte| byte == b'/');
    slash.map_or((text, None), |slash| (&text[..slash], Some(&text[slash + 1..])))
}

/// The segments of a pattern, or its mistake.
fn segments(pattern: &str) -> Result<Vec<PathSegment>, String> {
    let Some(rest) = pattern.strip_prefix('/') else {
        return Err(match pattern.split_once('*') {
            _ if is_like_regex(pattern) => NO_REGEX.to_owned(),
            Some((before, after)) if pattern != "*" => wrong_star(pattern, before, after),
            _ => format!("begins with no slash: write {:?}", format!("/{pattern}")),
        });
    };
    if let Some(query) = pattern.find(['?', '#']) {
        return Err(format!("has a query, and only the path is compared: write {:?}", &pattern[..query]));
    }
    let normal = normal(pattern);
    if pattern.contains(';') {
        return Err(format!(
            "has parameters, which are cut off paths before they are compared: write {normal:?}"
        ));
    }
    if normal != pattern {
        return Err(format!("is no path in its normal form, in which paths are compared: write {normal:?}"));
    }
    if has_dots(pattern) {
        return Err("has segments of dots: write the path to which it leads".to_owned());
    }
    let all: Vec<&str> = rest.split('/').collect();
    let is_last = |place: usize| place + 1 == all.len();
    all.iter().enumerate().map(|(place, text)| segment(text, is_last(place), pattern)).collect()
}

fn segment(text: &str, is_last: bool, pattern: &str) -> Result<PathSegment, String> {
    let capture = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match (text, capture) {
        ("*", _) if is_last => Ok(PathSegment::Rest),
        ("*", _) => {
            let one: Vec<&str> =
                pattern.split('/').map(|text| if text == "*" { "{id}" } else { text }).collect();
            Err(format!("has a '*' before its end: write {:?}, where {{id}} is one segment", one.join("/")))
        }
        (_, Some("" | "*")) => {
            Err("has a capture without a name: write {id}, or {*rest} at the end".to_owned())
        }
        (_, Some(name)) if !name.contains(['{', '}']) => match name.starts_with('*') {
            true if is_last => Ok(PathSegment::Rest),
            true => {
                Err(format!("has {text} before its end: write {{id}} for one segment, and {{*rest}} last"))
            }
            false => Ok(PathSegment::Capture),
        },
        _ if text.contains(['{', '}']) => {
            Err("has a capture that is not a whole segment: write /{id}/".to_owned())
        }
        _ => match text.split_once('*') {
            None => Ok(PathSegment::Text(text.to_owned())),
            Some((before, after)) => Err(wrong_star(pattern, before, after)),
        },
    }
}

/// The mistake of a pattern with a `*` between these parts of a segment.
fn wrong_star(pattern: &str, before: &str, after: &str) -> String {
    if is_like_regex(pattern) {
        return NO_REGEX.to_owned();
    }
    if !after.trim_matches('*').is_empty() {
        return "has a '*' that is not a whole segment, and there are no suffixes: write each path, or the folder of these \
                files, such as \"/assets/*\""
            .to_owned();
    }
    let (folder, _) = pattern.split_once('*').unwrap_or((pattern, ""));
    let folder = if before.is_empty() { folder.trim_end_matches('/') } else { folder };
    let beside = if folder.is_empty() {
        String::new()
    } else {
        format!(" for everything below, and {folder:?} beside it")
    };
    format!("has a '*' that is not a whole segment: write {:?}{beside}", format!("{folder}/*"))
}

const NO_REGEX: &str = "looks like a regular expression, and is compared as text: write \"/login\", \"/users/{id}\" where {id} is \
                        one segment, or \"/api/*\" for everything below";

fn is_like_regex(pattern: &str) -> bool {
    pattern.starts_with('^') || pattern.contains(".*") || pattern.contains(".+") || pattern.contains('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str, fold: Fold) -> bool {
        PathPattern::new(pattern, fold).expect("a good pattern").matches(&fold.apply(path))
    }

    #[test]
    fn a_path_matches_by_its_segments_as_in_an_axum_router() {
        for (pattern, path, is_match) in [
            ("/login", "/login", true),
            ("/login", "/login/", false),
            ("/login", "/Login", false),
            ("/login", "login", false),
            ("/login", "*", false),
            ("/users/{id}", "/users/7", true),
            ("/users/{id}", "/users/a%2Fb", true),
            ("/users/{id}", "/users/7/posts", false),
            ("/users/{id}", "/users/", false),
            ("/users/{id}/posts", "/users/7/posts", true),
            ("/a%2Fb", "/a%2Fb", true),
            ("/a%2Fb", "/a/b", false),
            ("/a.b", "/axb", false),
            ("/", "/", true),
            ("/100%", "/100%", true),
            ("/ä", "/ä", true),
        ] {
            assert_eq!(matches(pattern, path, Fold::default()), is_match, "{pattern} {path}");
        }
    }

    #[test]
    fn a_star_and_a_named_rest_are_everything_below_and_the_slash_itself() {
        for (path, is_match, is_match_without_slash) in [
            ("/files/a", true, true),
            ("/files/a/b/", true, true),
            ("/files/", true, true),
            ("/files", false, true),
            ("/file", false, false),
            ("/filesystem", false, false),
            ("/", false, false),
            ("files/a", false, false),
        ] {
            for pattern in ["/files/*", "/files/{*rest}"] {
                let slash = Fold { trailing_slash: true, ..Fold::default() };
                assert_eq!(matches(pattern, path, Fold::default()), is_match, "{pattern} {path}");
                assert_eq!(matches(pattern, path, slash), is_match_without_slash, "{pattern} {path}");
            }
        }
        for path in ["/", "/a", "/a/b", "*", ""] {
            assert_eq!(matches("/*", path, Fold::default()), path.starts_with('/'), "{path}");
        }
    }

    #[test]
    fn a_pattern_covers_what_matches_only_paths_that_it_matches() {
        for (pattern, other, covers) in [
            ("/login", "/login", true),
            ("/login", "/logins", false),
            ("/users/{id}", "/users/7", true),
            ("/users/{id}", "/users/{name}", true),
            ("/users/7", "/users/{id}", false),
            ("/users/{id}", "/users/", false),
            ("/users/*", "/users/{id}/posts", true),
            ("/users/*", "/users/*", true),
            ("/users/*", "/users", false),
            ("/*", "/", true),
            ("/users/{id}", "/users/*", false),
        ] {
            let read = |text| PathPattern::new(text, Fold::default()).expect("a good pattern");
            assert_eq!(read(pattern).covers(&read(other)), covers, "{pattern} {other}");
        }
    }

    #[test]
    fn case_and_a_trailing_slash_differ_unless_they_are_ignored() {
        let fold = Fold { case: true, trailing_slash: true };
        for (pattern, path) in [
            ("/Login", "/lOGIN/"),
            ("/login/", "/login"),
            ("/Users/{Id}/Posts", "/users/Ada/posts/"),
            ("/", "/"),
        ] {
            assert!(matches(pattern, path, fold), "{pattern} {path}");
            assert!(pattern == "/" || !matches(pattern, path, Fold::default()), "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_that_means_something_else_is_named_with_what_to_write() {
        for (pattern, advice) in [
            ("login", "write \"/login\""),
            ("", "write \"/\""),
            ("*", "write \"/*\""),
            ("/search?q=*", "write \"/search\""),
            ("/a;x/b", "write \"/a/b\""),
            ("//login", "write \"/login\""),
            ("/a%20b", "write \"/a b\""),
            ("/a%2fb", "write \"/a%2Fb\""),
            ("/a/../b", "write the path to which it leads"),
            ("/users/*/posts", "write \"/users/{id}/posts\", where {id} is one segment"),
            ("/{*rest}/x", "write {id} for one segment, and {*rest} last"),
            ("/{}", "write {id}, or {*rest} at the end"),
            ("/{*}", "write {id}, or {*rest} at the end"),
            ("/a{id}", "write /{id}/"),
            ("/{a}{b}", "write /{id}/"),
            ("/api/**", "write \"/api/*\" for everything below, and \"/api\" beside it"),
            ("/**", "write \"/*\""),
            (
                "*.js",
                "there are no suffixes: write each path, or the folder of these files, such as \"/assets/*\"",
            ),
            ("/a/*.js", "such as \"/assets/*\""),
            ("^/api/", "or \"/api/*\" for everything below"),
            ("/api/.*", "or \"/api/*\" for everything below"),
            ("/metrics*", "write \"/metrics/*\" for everything below, and \"/metrics\" beside it"),
        ] {
            let error = PathPattern::new(pattern, Fold::default()).expect_err(pattern).to_string();
            assert!(
                error.starts_with(&format!("the path {pattern:?} ")) && error.ends_with(advice),
                "{error}"
            );
        }
        for pattern in [
            "/",
            "/*",
            "/users/{id}/posts",
            "/assets/{*file}",
            "/a b",
            "/a%2Fb",
            "/a%3Bb",
            "/v1/x:cancel",
            "/login/",
        ] {
            let read = PathPattern::new(pattern, Fold::default()).map(|pattern| pattern.to_string());
            assert_eq!(read.ok().as_deref(), Some(pattern));
        }
    }
}
