//! A path with captures, as an operator writes it: [`PathPattern`].

use std::borrow::Cow;
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
    /// The pattern whose `*` stand within segments, or for several; then there are no segments.
    glob: Option<String>,
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
        if let Some(glob) = glob(text).map_err(told)? {
            let glob = Some(fold.apply(glob).into_owned());
            return Ok(Self { text: text.to_owned(), segments: Vec::new(), literal: None, glob, fold });
        }
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
        Ok(Self { text: text.to_owned(), segments, literal, glob: None, fold })
    }

    /// Whether a `*` stands within a segment or for several, as in `/api*`, `*.js` and `/a/**/b`: then it has no segments, and paths are
    /// compared with it one by one.
    pub fn is_glob(&self) -> bool {
        self.glob.is_some()
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
        match (&self.literal, &self.glob) {
            (Some(literal), _) => path == literal,
            (None, Some(glob)) => is_of_glob(path.as_bytes(), glob.as_bytes()),
            (None, None) => self.matches_by_segments(path),
        }
    }

    /// Whether it surely matches each path that the other matches.
    pub fn covers(&self, other: &Self) -> bool {
        if self.is_glob() || other.is_glob() {
            return self.glob == other.glob || other.literal().is_some_and(|path| self.matches(path));
        }
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

/// The pattern with a `*` that is not its whole last segment, if it has one. Without a slash in front it is the end of a path.
///
/// # Errors
/// When it has a capture too, or begins with no slash.
fn glob(text: &str) -> Result<Option<Cow<'_, str>>, String> {
    let body = text.strip_suffix("/*").unwrap_or(text);
    if !body.contains('*') || body.contains("{*") || text == "*" || is_like_regex(text) {
        return Ok(None);
    }
    if text.contains(['{', '}']) {
        return Err(
            "has a capture and a '*': write '*' for both, which is any text within a segment".to_owned()
        );
    }
    if text.contains(['?', '#', ';']) || has_dots(text) || normal(text) != text && text.starts_with('/') {
        // The segments have this mistake too, and name a correction.
        return Ok(None);
    }
    match text.strip_prefix('/') {
        Some(_) => Ok(Some(text.into())),
        None if text.starts_with('*') => Ok(Some(format!("**{}", text.trim_start_matches('*')).into())),
        None => Err(format!("begins with no slash: write {:?}", format!("/{text}"))),
    }
}

/// Whether a path is of a pattern in which `*` is any text within a segment, at the end any text, and `**` any text. The last stars alone
/// are tried again: whatever an earlier one takes, the slashes between them are the same.
fn is_of_glob(path: &[u8], glob: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // The places behind the last star of each kind, and of the path where its text ends.
    let mut star: Option<(usize, usize)> = None;
    let mut stars: Option<(usize, usize)> = None;
    loop {
        match glob.get(place) {
            Some(b'*') if glob[place..] == *b"*" => return true,
            Some(b'*') if glob[place..].starts_with(b"**") => {
                place += 2;
                (star, stars) = (None, Some((place, at)));
                continue;
            }
            Some(b'*') => {
                place += 1;
                star = Some((place, at));
                continue;
            }
            byte if byte == path.get(at) => {
                if byte.is_none() {
                    return true;
                }
                (at, place) = (at + 1, place + 1);
                continue;
            }
            _ => {}
        }
        let is_within = |end: usize| path.get(end).is_some_and(|byte| *byte != b'/');
        if let Some((behind, end)) = star.filter(|(_, end)| is_within(*end)) {
            (place, at, star) = (behind, end + 1, Some((behind, end + 1)));
        } else if let Some((behind, end)) = stars.filter(|(_, end)| *end < path.len()) {
            // A `*` that has tried the rest of its segment has tried it for all texts of `**` that end in the segment of this one.
            let slash = path[end..].iter().position(|byte| *byte == b'/');
            let end = match star {
                None => end + 1,
                Some(_) => match slash {
                    Some(length) => end + length + 1,
                    None => return false,
                },
            };
            (place, at, star, stars) = (behind, end, None, Some((behind, end)));
        } else {
            return false;
        }
    }
}

/// The segments of a pattern, or its mistake.
fn segments(pattern: &str) -> Result<Vec<PathSegment>, String> {
    let Some(rest) = pattern.strip_prefix('/') else {
        return Err(match is_like_regex(pattern) {
            true => NO_REGEX.to_owned(),
            false => format!("begins with no slash: write {:?}", format!("/{pattern}")),
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
    all.iter().enumerate().map(|(place, text)| segment(text, is_last(place))).collect()
}

fn segment(text: &str, is_last: bool) -> Result<PathSegment, String> {
    let capture = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match (text, capture) {
        ("*", _) if is_last => Ok(PathSegment::Rest),
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
            Some(_) => Err(NO_REGEX.to_owned()),
        },
    }
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
    fn a_star_within_a_segment_stays_in_it_and_one_at_the_end_or_two_do_not() {
        for (pattern, yes, no) in [
            ("/api*", &["/api", "/apis", "/api/v1/x"][..], &["/ap", "/x/api"][..]),
            ("*.js", &["/a.js", "/a/b.js", "/.js"], &["/a.jsx", "/a.js/b"]),
            ("/a/*.js", &["/a/b.js", "/a/.js"], &["/a/b/c.js", "/b/a.js"]),
            ("/a/**/b", &["/a/x/b", "/a/x/y/b", "/a//b"], &["/a/b", "/a/x/bc"]),
            ("/**/v*/*.png", &["/x/y/v1/a.png", "/v/x/v2/b.v.png"], &["/x/y/v1/a/b.png"]),
            ("/a*b*c*", &["/abc", "/axbxcxyz", "/abbcc/d"], &["/ab/c", "/acb"]),
            ("/users/*/posts", &["/users/7/posts"], &["/users/7/8/posts", "/users/7/posts/1"]),
            ("/**", &["/", "/a/b"], &["*"]),
        ] {
            assert!(PathPattern::new(pattern, Fold::default()).unwrap().is_glob(), "{pattern}");
            yes.iter().for_each(|path| assert!(matches(pattern, path, Fold::default()), "{pattern} {path}"));
            no.iter().for_each(|path| assert!(!matches(pattern, path, Fold::default()), "{pattern} {path}"));
        }
        assert!(matches("/API*.Js", "/apix.js", Fold { case: true, ..Fold::default() }));
        // Many stars take no time beyond the lengths of both.
        assert!(!matches(
            &format!("/{}b", "a*".repeat(200)),
            &format!("/{}", "a".repeat(8_000)),
            Fold::default()
        ));
    }

    /// The definition, in exponential time.
    fn is_of_glob_by_definition(path: &[u8], glob: &[u8]) -> bool {
        let any =
            |rest: &[u8], ends: usize| (0..=ends).any(|end| is_of_glob_by_definition(&path[end..], rest));
        match glob {
            b"*" => true,
            [b'*', b'*', rest @ ..] => any(rest, path.len()),
            [b'*', rest @ ..] => any(rest, path.iter().position(|byte| *byte == b'/').unwrap_or(path.len())),
            [byte, rest @ ..] => path.first() == Some(byte) && is_of_glob_by_definition(&path[1..], rest),
            [] => path.is_empty(),
        }
    }

    #[test]
    fn stars_are_tried_as_by_their_definition() {
        let mut random = 1_u64;
        let mut draw = |words: &[&str], most: usize| {
            let mut next = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                usize::try_from(random >> 33).expect("it has 31 bits")
            };
            let count = next() % most;
            (0..count).map(|_| words[next() % words.len()]).collect::<String>()
        };
        for _ in 0..40_000 {
            let glob = format!("/{}", draw(&["a", "b", "/", "*", "**"], 9));
            let path = format!("/{}", draw(&["a", "b", "/"], 11));
            let expected = is_of_glob_by_definition(path.as_bytes(), glob.as_bytes());
            assert_eq!(is_of_glob(path.as_bytes(), glob.as_bytes()), expected, "{glob} {path}");
        }
        let glob = format!("/**{}b", "a*".repeat(100));
        assert!(
            !is_of_glob(format!("/{}", "a".repeat(60_000)).as_bytes(), glob.as_bytes()),
            "in linear time"
        );
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
            ("/{*rest}/x", "write {id} for one segment, and {*rest} last"),
            ("/{}", "write {id}, or {*rest} at the end"),
            ("/{*}", "write {id}, or {*rest} at the end"),
            ("/a{id}", "write /{id}/"),
            ("/{a}{b}", "write /{id}/"),
            ("/{id}/*.js", "which is any text within a segment"),
            ("a/*.js", "write \"/a/*.js\""),
            ("/a*?b", "write \"/a*\""),
            ("^/api/", "or \"/api/*\" for everything below"),
            ("/api/.*", "or \"/api/*\" for everything below"),
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
