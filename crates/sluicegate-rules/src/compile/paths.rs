//! Paths as axum writes them: one pattern, and a tree of all patterns by their segments, which a request's path walks once.
//!
//! # Cost
//! A path is walked once, whatever the number of patterns: a segment costs one look into a table. Where a text and a capture both lead
//! on, both ways are walked, so that a path meets at most the nodes whose patterns match what was read of it, and none of them twice.

use std::borrow::Cow;
use std::fmt;

use super::Lookup;

/// A path with captures.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pattern(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Segment {
    Text(String),
    /// `{id}`: any segment that is not empty.
    Capture(String),
    /// `{*rest}`: all that follows, if anything does.
    Rest(String),
}

/// Patterns by their segments. A path that comes to a node has met one pattern more for each number there.
#[derive(Default)]
pub(super) struct PathTree {
    /// The first is the root. No node points to one before it.
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    texts: Lookup<String, usize>,
    capture: Option<usize>,
    /// Numbers of the patterns that take all that follows.
    rest: Vec<usize>,
    /// Numbers of the patterns that end here.
    here: Vec<usize>,
}

impl Pattern {
    /// # Errors
    /// Says what to write instead.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let shown = crate::read::short(pattern);
        let Some(rest) = pattern.strip_prefix('/') else {
            return Err(format!("the path {shown:?} begins with no slash: write \"/{shown}\""));
        };
        if pattern.contains(['?', '#']) {
            return Err(format!("the path {shown:?} has a query: only the path is compared"));
        }
        if normal(pattern) != pattern {
            let normal = normal(pattern);
            return Err(format!("no request has the path {shown:?} in its normal form: write {normal:?}"));
        }
        let texts: Vec<&str> = rest.split('/').collect();
        let last = texts.len() - 1;
        let segments = texts.iter().enumerate().map(|(at, text)| segment(text, at == last, &shown));
        segments.collect::<Result<_, _>>().map(Self)
    }

    /// Whether it matches a path in its normal form.
    pub(super) fn matches(&self, path: &str) -> bool {
        let mut left = path.strip_prefix('/');
        for segment in &self.0 {
            let Some(text) = left else { return false };
            let (first, after) = split(text);
            match segment {
                Segment::Rest(_) => return !text.is_empty(),
                Segment::Text(text) if text == first => {}
                Segment::Capture(_) if !first.is_empty() => {}
                _ => return false,
            }
            left = after;
        }
        left.is_none()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| match segment {
            Segment::Text(text) => write!(f, "/{text}"),
            Segment::Capture(name) => write!(f, "/{{{name}}}"),
            Segment::Rest(name) => write!(f, "/{{*{name}}}"),
        })
    }
}

impl PathTree {
    /// Adds a pattern under a number, which others may have, too.
    pub(super) fn add(&mut self, pattern: &Pattern, number: usize) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = 0;
        for segment in &pattern.0 {
            let new = self.nodes.len();
            let next = match segment {
                Segment::Rest(_) => return self.nodes[at].rest.push(number),
                Segment::Text(text) => *self.nodes[at].texts.entry(text.clone()).or_insert(new),
                Segment::Capture(_) => *self.nodes[at].capture.get_or_insert(new),
            };
            if next == new {
                self.nodes.push(Node::default());
            }
            at = next;
        }
        self.nodes[at].here.push(number);
    }

    /// Tells the numbers of all patterns that match a path in its normal form. No node is looked at twice.
    pub(super) fn find(&self, path: &str, mut found: impl FnMut(&[usize])) {
        let Some(path) = path.strip_prefix('/').filter(|_| !self.nodes.is_empty()) else { return };
        // Where a text and a capture lead on, the second is looked at later.
        let (mut later, mut next) = (Vec::new(), Some((0, Some(path))));
        while let Some((node, left)) = next.take().or_else(|| later.pop()) {
            let node: &Node = &self.nodes[node];
            let Some(text) = left else {
                found(&node.here);
                continue;
            };
            if !text.is_empty() {
                found(&node.rest);
            }
            if node.texts.is_empty() && node.capture.is_none() {
                continue;
            }
            let (first, after) = split(text);
            next = node.texts.get(first).map(|node| (*node, after));
            let capture = node.capture.filter(|_| !first.is_empty()).map(|node| (node, after));
            match next {
                None => next = capture,
                Some(_) => later.extend(capture),
            }
        }
    }
}

/// The first segment, and those behind it.
fn split(text: &str) -> (&str, Option<&str>) {
    // By bytes, here and below: segments are shorter than a search takes to begin.
    let slash = text.bytes().position(|byte| byte == b'/');
    slash.map_or((text, None), |slash| (&text[..slash], Some(&text[slash + 1..])))
}

/// The path that is meant: `//login` and `/%6cogin` are `/login`. A slash that is written `%2f` is a part of its segment, as it is
/// for routers: otherwise it would lead past a rule with a capture.
pub(super) fn normal(path: &str) -> Cow<'_, str> {
    let mut before = 0;
    let is_plain = |byte| byte != b'%' && (std::mem::replace(&mut before, byte), byte) != (b'/', b'/');
    if path.bytes().all(is_plain) {
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

/// Whether a path is in its [normal](normal) form and [has no dots](has_dots), as most are; of some that are so it says no.
pub(super) fn is_plain(path: &str) -> bool {
    // It looks at all bytes, since a loop with one end takes several of them at a time.
    let bytes = path.as_bytes();
    let is_special = bytes.iter().fold(false, |any, byte| any | (*byte == b'%') | (*byte == b'.'));
    let pairs = bytes.iter().zip(bytes.get(1..).unwrap_or_default());
    let is_doubled = pairs.fold(false, |any, (one, next)| any | (*one == b'/') & (*next == b'/'));
    !is_special & !is_doubled
}

/// Whether a path goes up, in whatever writing: routers and servers disagree where it leads.
pub(crate) fn has_dots(path: &str) -> bool {
    leads_to(path).is_some()
}

/// Where a path leads that has dots, for whoever resolves them; nothing if it has none. `/a/../admin` and `/a/%2e%2e%2fadmin` lead
/// to `/admin`.
pub(super) fn leads_to(path: &str) -> Option<String> {
    if !path.bytes().any(|byte| matches!(byte, b'.' | b'%')) {
        return None;
    }
    let plain = percent_decoded(path, 0);
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    if !plain.split(['/', '\\']).any(is_dots) {
        return None;
    }
    let (mut segments, mut ends_in_slash) = (Vec::new(), false);
    for segment in plain.split(['/', '\\']) {
        ends_in_slash = segment.is_empty() || is_dots(segment);
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let end = if ends_in_slash && !segments.is_empty() { "/" } else { "" };
    Some(format!("/{}{end}", segments.join("/")))
}

/// A part of a query as it is meant.
pub(super) fn form_decoded(text: &str) -> String {
    percent_decoded(&text.replace('+', " "), 0)
}

/// Without percent signs, but for a byte that stays encoded.
fn percent_decoded(text: &str, kept: u8) -> String {
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let found = match (first, after) {
            (b'%', [high, low, after @ ..]) => match byte_of([*high, *low]) {
                // In one writing: `%2f` and `%2F` are the same.
                Some(byte) if byte == kept => {
                    bytes.extend([b'%', high.to_ascii_uppercase(), low.to_ascii_uppercase()]);
                    rest = after;
                    continue;
                }
                byte => byte.map(|byte| (byte, after)),
            },
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

fn segment(text: &str, is_last: bool, path: &str) -> Result<Segment, String> {
    let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match name {
        Some("") => Err(format!("the path {path:?} has a capture without a name: write {{id}}")),
        Some(name) if name.contains(['{', '}']) => Err(whole(path)),
        Some(name) => match name.strip_prefix('*') {
            Some(name) if is_last && !name.is_empty() => Ok(Segment::Rest(name.to_owned())),
            Some(_) => {
                Err(format!("the path {path:?} takes all that follows before its end: write {{*rest}} last"))
            }
            None => Ok(Segment::Capture(name.to_owned())),
        },
        None if text.contains(['{', '}']) => Err(whole(path)),
        None if text.contains('*') => {
            Err(format!("the path {path:?} has a '*': write {{*rest}} for all that follows"))
        }
        None => Ok(Segment::Text(text.to_owned())),
    }
}

fn whole(path: &str) -> String {
    format!("the path {path:?} has a capture that is not a whole segment: write /{{id}}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it matches, by itself and in a tree among others.
    fn matches(pattern: &str, path: &str) -> bool {
        let pattern = Pattern::new(pattern).expect("a good pattern");
        let mut tree = PathTree::default();
        for other in ["/{a}", "/{a}/{b}", "/{*all}", "/login/x", "/users/{id}/x", "/assets/{*all}"] {
            tree.add(&Pattern::new(other).expect("a good pattern"), 0);
        }
        tree.add(&pattern, 1);
        let mut found = false;
        tree.find(&normal(path), |numbers| found |= numbers.contains(&1));
        assert_eq!(found, pattern.matches(&normal(path)), "{pattern} {path}");
        found
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
            ("/login", "login", false),
            ("/login", "*", false),
            ("/users/{id}", "/users/7", true),
            ("/users/{id}", "/users/7/posts", false),
            ("/users/{id}", "/users/", false),
            ("/users/{id}/posts", "/users/a%2fb/posts", true),
            ("/users/{id}", "/users/a%2Fb", true),
            ("/a%2Fb", "/a%2fb", true),
            ("/a%2Fb", "/a%2Fb", true),
            ("/a%2Fb", "/a/b", false),
            ("/assets/{*file}", "/assets/a/b.css", true),
            ("/assets/{*file}", "/assets/", false),
            ("/{*file}", "/", false),
            ("/a.b", "/axb", false),
            ("/", "/", true),
            ("/100%", "/100%", true),
            ("/ä", "/%C3%A4", true),
        ] {
            assert_eq!(matches(pattern, path), is_match, "{pattern} {path}");
        }
    }

    #[test]
    fn a_plain_path_has_one_form_and_leads_nowhere_else() {
        for (path, plain) in [
            ("", true),
            ("/", true),
            ("/a/b-c/d", true),
            ("/a/", true),
            ("/ä", true),
            ("//a", false),
            ("/a//", false),
            ("/a%2fb", false),
            ("/a/../b", false),
            ("/a.b", false),
        ] {
            assert_eq!(is_plain(path), plain, "{path}");
            assert!(!plain || normal(path) == path && !has_dots(path), "{path}");
        }
    }

    #[test]
    fn a_path_with_dots_leads_where_a_server_resolves_it_to() {
        for (path, leads) in [
            ("/a/../admin", Some("/admin")),
            ("/a/%2e%2E/admin", Some("/admin")),
            ("/a/..%2fadmin", Some("/admin")),
            ("/a\\..\\admin", Some("/admin")),
            ("/../../admin/./x", Some("/admin/x")),
            ("/admin/.", Some("/admin/")),
            ("/..", Some("/")),
            ("/a/...", None),
            ("/a.b", None),
            ("/.well-known/x", None),
        ] {
            assert_eq!(leads_to(path).as_deref(), leads, "{path}");
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
            ("/a%2fb", "write \"/a%2Fb\""),
        ] {
            let error = Pattern::new(pattern).expect_err(pattern);
            assert!(error.contains(advice), "{error}");
        }
        for pattern in ["/", "/users/{id}/posts", "/assets/{*file}"] {
            assert_eq!(Pattern::new(pattern).map(|pattern| pattern.to_string()), Ok(pattern.to_owned()));
        }
    }
}
