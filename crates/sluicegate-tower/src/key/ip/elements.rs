//! Reads a list header from the right, up to a bound.

use http::header::{HeaderValue, ValueIter};

/// The most elements that are read; no chain of proxies is longer.
const MAX_ELEMENTS: usize = 32;

/// Room for 32 elements with ports, brackets and parameters, with a margin.
const MAX_BYTES: usize = 2 * 1024;

/// The elements of all lines of a header, the last one first.
///
/// The order is from the right: a proxy appends its elements after the client's elements, so text of a client cannot
/// change the reading of the proxies' elements.
///
/// At most 32 elements and 2 KiB are read, so that a header of megabytes costs no more than
/// a header of one line.
#[derive(Debug)]
pub(super) struct FromTheRight<'a> {
    lines: ValueIter<'a, HeaderValue>,
    /// The unread rest of a line.
    line: Option<&'a [u8]>,
    last_comma: fn(&[u8]) -> Option<usize>,
    elements: usize,
    bytes: usize,
}

/// The header goes on to the left beyond the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl<'a> FromTheRight<'a> {
    /// Elements without quoted strings: each comma separates.
    pub(super) fn plain(lines: ValueIter<'a, HeaderValue>) -> Self {
        Self::new(lines, |line| line.iter().rposition(|&byte| byte == b','))
    }

    /// Elements with quoted strings, which may hold commas.
    pub(super) fn quoted(lines: ValueIter<'a, HeaderValue>) -> Self {
        Self::new(lines, last_comma_outside_quotes)
    }

    fn new(lines: ValueIter<'a, HeaderValue>, last_comma: fn(&[u8]) -> Option<usize>) -> Self {
        Self { lines, line: None, last_comma, elements: MAX_ELEMENTS, bytes: MAX_BYTES }
    }
}

impl<'a> Iterator for FromTheRight<'a> {
    type Item = Result<&'a [u8], TooLong>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next_back()?.as_bytes(),
        };
        let beyond = line.len().saturating_sub(self.bytes);
        let comma = (self.last_comma)(&line[beyond..]).map(|comma| beyond + comma);
        let begin = comma.map_or(0, |comma| comma + 1);
        if self.elements == 0 || (comma.is_none() && beyond > 0) {
            return Some(Err(TooLong));
        }
        self.elements -= 1;
        self.bytes = self.bytes.saturating_sub(line.len() - begin + 1);
        self.line = comma.map(|comma| &line[..comma]);
        Some(Ok(&line[begin..]))
    }
}

/// From the right, the first quote closes, and the next one that has no backslash before it opens: an opening quote
/// comes after a `=`. Malformed quoted strings are rejected later, by the element parser.
fn last_comma_outside_quotes(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    line.iter().enumerate().rev().find_map(|(at, byte)| match byte {
        b'"' if !quoted || !line[..at].ends_with(b"\\") => {
            quoted = !quoted;
            None
        }
        b',' if !quoted => Some(at),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn elements(lines: &[&str], quoted: bool) -> Vec<Result<String, TooLong>> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x", line.parse().unwrap());
        }
        let values = headers.get_all("x").iter();
        let elements = if quoted { FromTheRight::quoted(values) } else { FromTheRight::plain(values) };
        let text = |element: &[u8]| String::from_utf8(element.to_vec()).unwrap();
        // One more than allowed, because an iterator beyond its bounds would not end.
        elements.map(|element| element.map(text)).take(MAX_ELEMENTS + 1).collect()
    }

    fn read(lines: &[&str], quoted: bool) -> Vec<String> {
        elements(lines, quoted).into_iter().map(Result::unwrap).collect()
    }

    #[test]
    fn lines_are_one_list_and_no_element_is_skipped() {
        assert_eq!(read(&["a, b", "", "c,", ",d"], false), ["d", "", "", "c", "", " b", "a"]);
        assert_eq!(read(&[], false), [""; 0]);
    }

    #[test]
    fn commas_inside_quotes_do_not_separate() {
        assert_eq!(read(&[r#"a="1,2", b="x\",y\\",c"#], true), ["c", r#" b="x\",y\\""#, r#"a="1,2""#]);
    }

    #[test]
    fn a_quote_that_a_client_left_open_does_not_reach_what_a_proxy_appended() {
        assert_eq!(read(&[r#"for="x, for=192.0.2.1"#], true)[0], " for=192.0.2.1");
        assert_eq!(read(&[r#"for="x\, for="[::1]:80""#], true)[0], r#" for="[::1]:80""#);
    }

    #[test]
    fn nobody_looks_further_than_the_bounds() {
        let many = vec!["a"; 40].join(",");
        let walked = elements(&[&many], false);
        assert_eq!(
            (walked.len(), walked[31].clone(), walked[32].clone()),
            (33, Ok("a".into()), Err(TooLong))
        );
        let lines = vec!["a"; 40];
        assert_eq!(elements(&lines, true)[32], Err(TooLong));
        let long = format!("{},b", "a".repeat(MAX_BYTES));
        assert_eq!(elements(&[&long], false)[..2], [Ok("b".into()), Err(TooLong)]);
        let fits = format!("{},b", "a".repeat(MAX_BYTES - 2));
        assert_eq!(read(&[&fits], true).len(), 2);
    }
}
