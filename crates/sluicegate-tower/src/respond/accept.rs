//! The kind of body that a client prefers (RFC 9110, section 12.5.1).
//!
//! The body is JSON unless the client prefers text: a browser then shows a sentence
//! instead of a download.

use http::header::ACCEPT;

use crate::key::RequestView;

/// The most ranges of a request that are read: clients send up to ten.
const MOST_RANGES: usize = 64;

/// Whether the client prefers text, plain or HTML, to JSON. A browser names HTML
/// with a higher weight than everything else. A client without a preference gets JSON.
pub(super) fn wants_text(request: RequestView<'_>) -> bool {
    let mut lines = request.headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok()).peekable();
    if lines.peek().is_none() {
        return false;
    }
    let [mut json, mut plain, mut html] = [Best::default(); 3];
    for range in lines.flat_map(|line| line.split(',')).take(MOST_RANGES) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let is = |other: &str| media.eq_ignore_ascii_case(other);
        let mut names = parts.filter_map(|parameter| parameter.split_once('='));
        let weight = names.find(|(name, _)| name.eq_ignore_ascii_case("q")).map(|(_, weight)| weight);
        let weight = weight.map_or(1_000, thousandths);
        if is("application/problem+json") || is("application/json") {
            json.hears(2, weight);
        } else if is("application/*") {
            json.hears(1, weight);
        } else if is("text/plain") {
            plain.hears(2, weight);
        } else if is("text/html") {
            html.hears(2, weight);
        } else if is("text/*") {
            plain.hears(1, weight);
            html.hears(1, weight);
        } else if is("*/*") {
            for kind in [&mut json, &mut plain, &mut html] {
                kind.hears(0, weight);
            }
        }
    }
    plain.weight.max(html.weight) > json.weight
}

/// A weight in thousandths: `0.8` is 800. An unreadable weight is 0.
fn thousandths(weight: &str) -> u16 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let is_number = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match whole {
        "1" if is_number => 1_000,
        "0" if is_number => {
            let digits = fraction.bytes().chain([b'0'; 3]).take(3);
            digits.fold(0, |weight, digit| weight * 10 + u16::from(digit - b'0'))
        }
        _ => 0,
    }
}

/// The weight of a kind: the weight of the most specific range; of several equally specific ranges, the highest
/// weight.
#[derive(Clone, Copy, Default)]
struct Best {
    specific: u8,
    weight: u16,
    heard: bool,
}

impl Best {
    fn hears(&mut self, specific: u8, weight: u16) {
        if !self.heard || specific > self.specific {
            *self = Self { specific, weight, heard: true };
        } else if specific == self.specific {
            self.weight = self.weight.max(weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn text_is_for_those_who_like_it_better_than_json() {
        for (accept, text) in [
            ("text/html;q=1, */*;q=0", true),
            ("text/html", true),
            ("text/plain", true),
            ("text/*;q=0.3", true),
            ("TEXT/HTML, application/json;q=0", true),
            ("*/*, application/*;q=0", true),
            ("*/*", false),
            // Firefox, Chrome and Safari, requesting a page.
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,\
                 application/signed-exchange;v=b3;q=0.7",
                true,
            ),
            ("text/html, application/json;q=0.999", true),
            // axios, and scripts of a page.
            ("application/json, text/plain, */*", false),
            ("application/json, text/javascript, */*; q=0.01", false),
            ("text/html, application/json", false),
            ("text/html;q=0.7, application/json;q=0.71", false),
            ("text/html;q=0.5, */*", false),
            ("text/html;q=0.5, */*;q=0.4, application/json;q=0.05", true),
            ("text/html;q=2, */*;q=0.001", false),
            ("text/html;q=0.0001, */*;q=0", false),
            ("application/problem+json", false),
            ("image/png", false),
            ("", false),
            ("text/html;q=0", false),
            ("text/html;q=none", false),
            ("text/html;q=NaN", false),
            (";;;,,,q=1", false),
        ] {
            let request = Request::get("/").header("accept", accept).body(()).unwrap();
            assert_eq!(wants_text((&request).into()), text, "{accept}");
        }
        assert!(!wants_text((&Request::new(())).into()));
    }

    #[test]
    fn of_more_ranges_than_any_client_sends_the_first_are_read() {
        for (before, text) in [(0, true), (63, true), (64, false)] {
            let accept = "image/png, ".repeat(before) + "text/html";
            let request = Request::get("/").header("accept", accept).body(()).unwrap();
            assert_eq!(wants_text((&request).into()), text, "{before}");
        }
    }
}
