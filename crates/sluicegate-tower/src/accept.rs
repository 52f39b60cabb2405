//! Which kind of body a client can read (RFC 9110, section 12.5.1).

use http::header::ACCEPT;
use http::request::Parts;

/// Whether the client accepts plain text or HTML, and no JSON. A client that says nothing, and one that accepts neither,
/// gets what it would get anyhow.
pub(crate) fn wants_text(parts: &Parts) -> bool {
    let mut lines = parts.headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok()).peekable();
    if lines.peek().is_none() {
        return false;
    }
    let [mut json, mut text] = [Best::default(); 2];
    for range in lines.flat_map(|line| line.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut names = parts.filter_map(|parameter| parameter.split_once('='));
        let weight = names.find(|(name, _)| name.eq_ignore_ascii_case("q")).map(|(_, weight)| weight);
        let accepted = weight.is_none_or(is_something);
        match &*media {
            "application/problem+json" | "application/json" => json.hears(2, accepted),
            "application/*" => json.hears(1, accepted),
            "text/plain" | "text/html" => text.hears(2, accepted),
            "text/*" => text.hears(1, accepted),
            "*/*" => {
                json.hears(0, accepted);
                text.hears(0, accepted);
            }
            _ => {}
        }
    }
    text.accepted && !json.accepted
}

/// Whether a weight is above 0. One that cannot be read is none.
fn is_something(weight: &str) -> bool {
    let is_number = weight.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_number && weight.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// What the most specific range says of a kind; of several equally specific ones, any that accepts.
#[derive(Clone, Copy, Default)]
struct Best {
    specific: u8,
    accepted: bool,
    heard: bool,
}

impl Best {
    fn hears(&mut self, specific: u8, accepted: bool) {
        if !self.heard || specific > self.specific {
            *self = Self { specific, accepted, heard: true };
        } else if specific == self.specific {
            self.accepted |= accepted;
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn only_who_reads_no_json_gets_text() {
        for (accept, text) in [
            ("text/html;q=1, */*;q=0", true),
            ("text/html", true),
            ("text/plain", true),
            ("text/*;q=0.3", true),
            ("TEXT/HTML, application/json;q=0", true),
            ("*/*, application/*;q=0", true),
            ("*/*", false),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
            ("text/html, application/json", false),
            ("application/problem+json", false),
            ("image/png", false),
            ("", false),
            ("text/html;q=0", false),
            ("text/html;q=none", false),
            ("text/html;q=NaN", false),
            (";;;,,,q=1", false),
        ] {
            let request = Request::get("/").header("accept", accept).body(()).unwrap();
            assert_eq!(wants_text(&request.into_parts().0), text, "{accept}");
        }
        assert!(!wants_text(&Request::new(()).into_parts().0));
    }
}
