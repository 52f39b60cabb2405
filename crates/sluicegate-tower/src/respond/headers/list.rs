//! Lists of quotas in foreign fields, read as structured fields (RFC 9651).
//!
//! The parser is written here: the crate `sfv` adds more to a clean build than this file, and
//! rewrites members instead of keeping their text. The tests compare the two.

use http::HeaderValue;

/// A quota in a list: its name and its parameters.
///
/// It borrows from the field's line, so that a foreign member keeps its text.
#[derive(Debug)]
pub(crate) struct ListMember<'a> {
    /// The whole text of the member.
    pub(crate) text: &'a str,
    /// The name with its quotes, and with the original escapes; our own names need no escapes.
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl ListMember<'_> {
    pub(crate) fn is_called(&self, label: &str) -> bool {
        self.name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) == Some(label)
    }

    /// A parameter that is a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.parameter(name)?.parse().ok()
    }

    /// The text of a parameter; of several with one name the last one counts.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, value) = self.parameters.iter().rfind(|(parameter, _)| *parameter == name)?;
        Some(value)
    }
}

/// The members of a list of strings, as in the rate limit draft. `None` if it is anything else:
/// recipients then ignore the whole field.
pub(crate) fn members(line: &str) -> Option<Vec<ListMember<'_>>> {
    let mut members = Vec::new();
    let mut rest = line.trim_matches(' ');
    while !rest.is_empty() {
        let (member, after) = member(rest)?;
        members.push(member);
        let after = after.trim_start_matches([' ', '\t']);
        if after.is_empty() {
            break;
        }
        rest = after.strip_prefix(',')?.trim_start_matches([' ', '\t']);
        if rest.is_empty() {
            return None;
        }
    }
    Some(members)
}

/// All lines of a list field as one; `None` if one of them is not text.
pub(crate) fn one_line<'a>(lines: impl Iterator<Item = &'a HeaderValue>) -> Option<String> {
    let mut whole = String::new();
    for line in lines {
        match line.to_str().ok()?.trim() {
            "" => {}
            line => add(&mut whole, line),
        }
    }
    Some(whole)
}

pub(super) fn add(line: &mut String, item: &str) {
    if !line.is_empty() {
        line.push_str(", ");
    }
    line.push_str(item);
}

fn member(text: &str) -> Option<(ListMember<'_>, &str)> {
    let (name, mut rest) = string(text)?;
    let mut parameters = Vec::new();
    while let Some(after) = rest.strip_prefix(';') {
        let (key, after) = key(after.trim_start_matches(' '))?;
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => bare_item(after)?,
            // A parameter without a value is true.
            None => ("?1", after),
        };
        parameters.push((key, value));
        rest = after;
    }
    let text = &text[..text.len() - rest.len()];
    Some((ListMember { text, name, parameters }, rest))
}

fn key(text: &str) -> Option<(&str, &str)> {
    let is_first = |c: char| c.is_ascii_lowercase() || c == '*';
    let is_next = |c: char| is_first(c) || c.is_ascii_digit() || "_-.".contains(c);
    text.starts_with(is_first).then(|| split_while(text, is_next))
}

fn bare_item(text: &str) -> Option<(&str, &str)> {
    match text.bytes().next()? {
        b'"' => string(text),
        b':' => bytes(text),
        b'?' => {
            let is_boolean = text.starts_with("?0") || text.starts_with("?1");
            is_boolean.then(|| text.split_at(2))
        }
        b'-' | b'0'..=b'9' => number(text),
        b'@' => {
            let (_, rest) = number(&text[1..])?;
            let date = &text[..text.len() - rest.len()];
            (!date.contains('.')).then_some((date, rest))
        }
        b'%' => {
            let (inside, _) = text.strip_prefix("%\"")?.split_once('"')?;
            let is_hex = |code: &str| code.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            let mut codes = inside.split('%').skip(1).map(|code| code.get(..2));
            let is_encoded = codes.all(|code| code.is_some_and(is_hex)) && inside.chars().all(is_printable);
            is_encoded.then(|| text.split_at(inside.len() + 3))
        }
        b'a'..=b'z' | b'A'..=b'Z' | b'*' => {
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
            Some(split_while(text, is_token))
        }
        _ => None,
    }
}

/// A string with its quotes, and the text after it.
fn string(text: &str) -> Option<(&str, &str)> {
    let mut characters = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            // After the opening quote and this one.
            '"' => return Some(text.split_at(at + 2)),
            '\\' if !matches!(characters.next(), Some((_, '"' | '\\'))) => return None,
            c if is_printable(c) => {}
            _ => return None,
        }
    }
    None
}

/// A byte sequence with its colons, and the text after it.
fn bytes(text: &str) -> Option<(&str, &str)> {
    let (inside, _) = text.strip_prefix(':')?.split_once(':')?;
    let digits = inside.trim_end_matches('=');
    let is_padded =
        inside.len() - digits.len() <= 2 && (inside.len() == digits.len() || inside.len() % 4 == 0);
    let is_base64 =
        digits.len() % 4 != 1 && digits.chars().all(|c| c.is_ascii_alphanumeric() || "+/".contains(c));
    (is_padded && is_base64).then(|| text.split_at(inside.len() + 2))
}

/// A number of at most 15 digits, or of at most 12 and 3 after the point, and the text after it.
fn number(text: &str) -> Option<(&str, &str)> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, rest) = split_while(digits, |c| c.is_ascii_digit());
    let (fits, rest) = match rest.strip_prefix('.') {
        None => ((1..=15).contains(&whole.len()), rest),
        Some(rest) => {
            let (fraction, rest) = split_while(rest, |c| c.is_ascii_digit());
            ((1..=12).contains(&whole.len()) && (1..=3).contains(&fraction.len()), rest)
        }
    };
    fits.then(|| text.split_at(text.len() - rest.len()))
}

fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~')
}

fn split_while(text: &str, holds: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !holds(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{BareItem, List, ListEntry, Parser};

    use super::*;

    /// The names that `sfv` reads.
    fn by_sfv(line: &str) -> Option<Vec<String>> {
        let list: List = Parser::new(line).parse().ok()?;
        let names = list.into_iter().map(|entry| match entry {
            ListEntry::Item(item) => match item.bare_item {
                BareItem::String(name) => Some(name.to_string()),
                _ => None,
            },
            ListEntry::InnerList(_) => None,
        });
        names.collect()
    }

    fn by_us(line: &str) -> Option<Vec<String>> {
        let unescaped = |member: &ListMember<'_>| {
            let inside = &member.name[1..member.name.len() - 1];
            inside.replace(r#"\""#, "\"").replace(r"\\", r"\")
        };
        members(line).map(|members| members.iter().map(unescaped).collect())
    }

    #[test]
    fn a_quota_has_its_name_and_its_numbers() {
        let line = r#""api";q=5;w=60;pk=:c2x1aWNl:, "up,\"stream" ;r=3"#;
        assert!(members(line).is_none(), "no space goes before a semicolon");
        let line = r#""api";q=5;w=60;q=7;by=%"a%c3%a4", "up,\"stream"; r=3;acme-burst;x=-1;y="a;b""#;
        let members = members(line).unwrap();
        assert_eq!(members.len(), 2);
        assert!(members[0].is_called("api") && !members[1].is_called("api"));
        assert_eq!(
            (members[0].number("q"), members[0].number("w"), members[0].number("r")),
            (Some(7), Some(60), None)
        );
        let [.., second] = &members[..] else { unreachable!("there are two") };
        assert_eq!((second.number("r"), second.number("x"), second.number("y")), (Some(3), None, None));
        assert_eq!(second.text, r#""up,\"stream"; r=3;acme-burst;x=-1;y="a;b""#);
    }

    #[test]
    fn what_is_no_list_of_strings_is_nothing() {
        for line in [
            "limit=100, remaining=50, reset=5",
            "100;w=60",
            "default;r=5",
            r#"("a" "b");r=5"#,
            r#""api";r=5,"#,
            r#","api";r=5"#,
            r#""api;r=5"#,
            r#""api";R=5"#,
            r#""api";r="#,
            r#""api";r=5x"#,
            r#""a\pi";r=5"#,
            r#""api" r=5"#,
            r#""api";x=%"a%C3%a4""#,
            r#""api";r=1234567890123456"#,
            "\"\u{e9}\";r=5",
        ] {
            assert!(members(line).is_none(), "{line}");
        }
        assert_eq!(members("").map(|members| members.len()), Some(0));
    }

    proptest! {
        #[test]
        fn lines_are_read_as_another_parser_reads_them(line in r#"("[ab\\"]{0,3}")?[a-c=;:?"\\, 0-9.@*-]{0,16}"#) {
            prop_assert_eq!(by_us(&line), by_sfv(&line));
        }

        #[test]
        fn lines_that_are_nearly_right_are_read_as_another_parser_reads_them(
            line in r#""[a-c]{1,2}"(; ?[a-c]{1,2}(=([0-9]{1,16}|-?[0-9]{1,13}\.[0-9]{0,4}|"[a,;]?"|\?[012]|:(aQ==|aGI=|aGJj|=|a|aGJj=|a,b)?:|@[0-9.]{1,4}|[*a][a:/]{0,2}))?){0,3}( ?, ?"d";r=1)?"#,
        ) {
            prop_assert_eq!(by_us(&line), by_sfv(&line));
        }
    }
}
