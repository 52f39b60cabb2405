//! The paths that a request may mean: servers disagree about some spellings.
//!
//! # One form
//! `//login`, `/%6cogin` and `/login;x=1` are `/login`: doubled slashes count as one, parameters are cut off, and `%..` escapes
//! are decoded, once. An encoded slash or semicolon, `%2F` or `%3B`, stays a part of its segment, as it does for routers.
//!
//! # Several readings
//! A path with dots changes if a server resolves them, and some servers take `%2F` or a backslash for a slash. The inner
//! server's behaviour is unknown, so such a path is read both ways.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use smallvec::SmallVec;

use crate::key::extraction::Purpose;
use crate::key::text::decode_except;

/// Paths that one request may mean, the first in its normal form; most requests have one.
pub type Spellings<'a> = SmallVec<[Cow<'a, str>; 1]>;

/// The paths that a request with this path may mean: for a limit its normal form and, if it has dots, the resolved path. Doors
/// also consider the path as written, and as read by the most permissive server.
pub fn spellings(path: &str, purpose: Purpose) -> Spellings<'_> {
    let mut all = Spellings::new();
    if is_plain(path) {
        all.push(Cow::Borrowed(path));
        return all;
    }
    let normal = normal(path);
    let is_door = purpose != Purpose::Limit;
    let free = (is_door || has_dots(path)).then(|| Cow::Owned(freely_read(path)));
    let written = is_door.then(|| written(path));
    let others = [free, written].into_iter().flatten().filter(|other| *other != normal);
    let others: SmallVec<[_; 2]> = others.collect();
    all.push(normal);
    all.extend(others);
    all
}

/// Whether a path has a dot segment, in any spelling.
pub fn has_dots(path: &str) -> bool {
    !is_plain(path) && decoded(path).split(['/', '\\']).map(without_parameters).any(is_dots)
}

/// Whether a path clearly has only one reading, like most paths. It may be false for some paths with only one.
#[inline]
pub fn is_plain(path: &str) -> bool {
    let mut rest = path.as_bytes();
    while let Some(word) = rest.first_chunk() {
        if !is_plain_word(u64::from_le_bytes(*word)) {
            return false;
        }
        // The next word has the last byte of this one, too, so that two slashes in a row are in one of them.
        rest = &rest[7..];
    }
    is_plain_word(short_word(rest))
}

/// Fewer than eight bytes in one word; the others are 0.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else {
        return bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    };
    // Bytes that are in both are the same.
    let [first, last] = [first, last].map(|bytes| u64::from(u32::from_le_bytes(*bytes)));
    first | last << (8 * (bytes.len() - 4))
}

/// Whether no byte of a word is special, and no two in a row are slashes. All are compared at once: a path is a few words.
#[inline]
fn is_plain_word(word: u64) -> bool {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // Has the high bit of each byte that is this one. It may also have that of the byte above such a byte, if the two differ
    // by 1: above a slash this is a dot, and a dot is special itself.
    let equal = |byte: u8| {
        let differs = word ^ u64::from_ne_bytes([byte; 8]);
        differs.wrapping_sub(ONES) & !differs & HIGH
    };
    let slashes = equal(b'/');
    equal(b'%') | equal(b'.') | equal(b';') | equal(b'\\') | (slashes & (slashes >> 8)) == 0
}

/// The normal form.
pub(super) fn normal(path: &str) -> Cow<'_, str> {
    if !path.contains(['%', ';']) && !path.contains("//") {
        return Cow::Borrowed(path);
    }
    let mut text = String::with_capacity(path.len());
    for segment in path.split_inclusive('/') {
        let (segment, slash) = segment.strip_suffix('/').map_or((segment, false), |cut| (cut, true));
        text += &decoded_without(without_parameters(segment), |byte| matches!(byte, b'/' | b';'));
        if slash && !text.ends_with('/') {
            text.push('/');
        }
    }
    Cow::Owned(text)
}

/// The path as written, with escapes decoded only if the character could not be written plainly.
fn written(path: &str) -> Cow<'_, str> {
    let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/;".contains(&byte);
    match path.contains('%') {
        true => Cow::Owned(decoded_without(path, kept)),
        false => Cow::Borrowed(path),
    }
}

/// The path as read by a server that decodes all of it, takes a backslash for a slash, cuts parameters off and resolves dots.
fn freely_read(path: &str) -> String {
    let plain = decoded(path);
    let (mut segments, mut ends_in_slash) = (Vec::new(), false);
    for segment in plain.split(['/', '\\']).map(without_parameters) {
        ends_in_slash = segment.is_empty() || is_dots(segment);
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let end = if ends_in_slash && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

fn is_dots(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

fn without_parameters(segment: &str) -> &str {
    segment.split(';').next().unwrap_or_default()
}

fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// Decodes percent escapes, except for bytes that `kept` keeps encoded, with their digits in upper case.
fn decoded_without(text: &str, kept: impl Fn(u8) -> bool) -> String {
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len());
    decode_except(text, &mut bytes, b"%", kept);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_path_have_one_normal_form() {
        for spelling in [
            "/login",
            "//login",
            "/%6cogin",
            "/%6Cogin",
            "/login;x=1",
            "/login;",
            "/;x/login",
            "/;/;x//login;y;z",
        ] {
            assert_eq!(normal(spelling), "/login", "{spelling}");
        }
        for (path, form) in [
            ("/", "/"),
            ("", ""),
            ("*", "*"),
            ("/login/", "/login/"),
            ("/login;x/", "/login/"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%3bb", "/a%3Bb"),
            ("/100%", "/100%"),
            ("/100%25", "/100%"),
            ("/%C3%A4", "/ä"),
            ("/a/../b", "/a/../b"),
        ] {
            assert_eq!(normal(path), form, "{path}");
        }
    }

    /// The spellings after the first, sorted.
    fn others(path: &str, purpose: Purpose) -> Vec<String> {
        let mut all: Vec<_> = spellings(path, purpose).into_iter().map(Cow::into_owned).collect();
        assert_eq!(all.remove(0), normal(path), "{path}");
        all.sort();
        all
    }

    #[test]
    fn a_path_with_dots_leads_where_a_server_resolves_it_to() {
        for (path, leads) in [
            ("/a/../admin", Some("/admin")),
            ("/a/%2e%2E/admin", Some("/admin")),
            ("/a/..%2fadmin", Some("/admin")),
            ("/a/..;x=1/admin", Some("/admin")),
            ("/a\\..\\admin", Some("/admin")),
            ("/../../admin/./x", Some("/admin/x")),
            ("/admin/.", Some("/admin/")),
            ("/..", Some("/")),
            ("/a/...", None),
            ("/a.b", None),
            ("/.well-known/x", None),
            ("/a%2Fb", None),
        ] {
            assert_eq!(others(path, Purpose::Limit), Vec::from_iter(leads), "{path}");
            assert_eq!(has_dots(path), leads.is_some(), "{path}");
        }
    }

    #[test]
    fn a_door_looks_at_a_path_as_it_is_written_and_as_the_freest_of_servers_reads_it() {
        for (path, found) in [
            ("/login", vec![]),
            ("/login/", vec![]),
            ("/a%20b", vec![]),
            ("/a.css", vec![]),
            ("/a%2Fb", vec!["/a/b"]),
            ("/a\\b", vec!["/a/b"]),
            ("/login;x", vec!["/login;x"]),
            ("/login%3Bx", vec!["/login"]),
            ("//login", vec!["//login"]),
            ("/%6Cogin", vec!["/%6Cogin"]),
            ("//a/../login", vec!["//a/../login", "/login"]),
        ] {
            for purpose in [Purpose::Deny, Purpose::Exempt] {
                assert_eq!(others(path, purpose), found, "{path}");
            }
        }
    }

    #[test]
    fn a_plain_path_has_one_spelling() {
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
            ("/a;b", false),
            ("/a\\b", false),
            ("/eight/8", true),
            ("/a/segment/of/more/than/one/word", true),
            ("/seven8//", false),
            ("/sevenb//x", false),
            ("/sevenby//x", false),
            ("/a/segment/of/more/than/one.word", false),
            ("/a/segment/of/more/than/one/word;", false),
        ] {
            assert_eq!(is_plain(path), plain, "{path}");
            assert!(!plain || normal(path) == path && !has_dots(path), "{path}");
        }
    }
}
