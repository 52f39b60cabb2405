//! Lines of a file as errors show them: the values that header fields and parameters must have may be secrets.
//!
//! A line is looked at as it was written, also where it is not YAML: keys and values are told apart by colons, braces and
//! indentation. What is in doubt is masked.

/// The sign that stands for each character of a value.
pub(crate) const MASK: char = '*';

/// Sections that say which requests something is about.
const SECTIONS: [&str; 3] = ["deny", "exempt", "rules"];

/// Words under which there are names with values that a request must have.
const SECRET: [&str; 2] = ["header", "query"];

/// A line, which counts from 1, with its secrets masked; it stays as long as it was.
pub(crate) fn masked(text: &str, line: usize) -> Option<String> {
    let mut scanner = Scanner::default();
    text.lines().take(line).map(|line| scanner.line(line)).nth(line.checked_sub(1)?)
}

/// Where a line stands: below which keys, and in which braces.
#[derive(Default)]
struct Scanner {
    /// How far keys are indented under which the line stands, and what they are.
    above: Vec<(usize, Kind)>,
    /// The braces and brackets that are open.
    within: Vec<Kind>,
    quote: Option<char>,
    /// Whether the line is in one of the sections.
    is_in_section: bool,
}

/// How a key masks the values under it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Open,
    /// A cost names a header, which is no secret.
    Cost,
    /// Names, of which the values are secrets.
    Secret,
}

impl Scanner {
    fn line(&mut self, line: &str) -> String {
        let body = line.trim_start();
        let mut indent = line.len() - body.len();
        if self.within.is_empty() && self.quote.is_none() && !body.is_empty() && !body.starts_with('#') {
            let dashes = body.len() - body.trim_start_matches(['-', ' ']).len();
            indent += if body.starts_with("- ") { dashes } else { 0 };
            self.above.retain(|(above, _)| *above < indent);
            if indent == 0 {
                let word = body.split(':').next().unwrap_or_default().trim_matches(['"', '\'', ' ']);
                self.is_in_section = SECTIONS.contains(&word);
            }
        }
        let (mut shown, mut word, mut key) = (String::new(), String::new(), None);
        let mut chars = line.chars().peekable();
        let mut before = ' ';
        while let Some(c) = chars.next() {
            let ends_key = c == ':' && chars.peek().is_none_or(|next| matches!(next, ' ' | '{' | '['));
            match c {
                _ if self.quote.is_some() => {
                    self.quote = self.quote.filter(|quote| *quote != c);
                    word.push(c);
                    shown.push(self.masked(c, key));
                }
                '#' if before == ' ' => {
                    shown.push(c);
                    shown.extend(chars.by_ref());
                }
                ':' if ends_key && key.is_none() => {
                    key = Some(self.kind_of(&word));
                    word.clear();
                    shown.push(c);
                }
                '{' | '[' if word.is_empty() => {
                    self.within.push(key.take().unwrap_or_else(|| self.kind()));
                    shown.push(c);
                }
                '}' | ']' | ',' if !self.within.is_empty() => {
                    if c != ',' {
                        self.within.pop();
                    }
                    (key, word) = (None, String::new());
                    shown.push(c);
                }
                ' ' => shown.push(c),
                c => {
                    if word.is_empty() && matches!(c, '"' | '\'') {
                        self.quote = Some(c);
                    }
                    if !(c == '-' && word.is_empty()) {
                        word.push(c);
                    }
                    shown.push(self.masked(c, key));
                }
            }
            before = c;
        }
        if let (Some(kind), true, true) = (key, word.is_empty(), self.within.is_empty()) {
            self.above.push((indent, kind));
        }
        shown
    }

    /// The masking by the braces or the key that all of this stands under.
    fn kind(&self) -> Kind {
        self.within.last().copied().or_else(|| self.above.last().map(|(_, kind)| *kind)).unwrap_or_default()
    }

    /// The masking by a key that stands here.
    fn kind_of(&self, word: &str) -> Kind {
        let word = word.trim_matches(['"', '\'']);
        match self.kind() {
            Kind::Secret => Kind::Secret,
            Kind::Cost => Kind::Open,
            Kind::Open if self.is_in_section && SECRET.contains(&word) => Kind::Secret,
            Kind::Open if word == "cost" => Kind::Cost,
            Kind::Open => Kind::Open,
        }
    }

    /// A character of a name, or of a value behind this key.
    fn masked(&self, c: char, key: Option<Kind>) -> char {
        let is_secret = match key {
            Some(key) => key == Kind::Secret,
            // A value without a name, or the rest of one from the line before.
            None => self.quote.is_some() && self.kind() == Kind::Secret && c != '"' && c != '\'',
        };
        if is_secret { MASK } else { c }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        (1..=text.lines().count()).filter_map(|line| masked(text, line)).collect()
    }

    #[test]
    fn values_of_header_fields_and_of_parameters_are_masked_wherever_they_stand() {
        let text = "\
clients: { header: x-forwarded-for }
rules:
  - { name: a, only_if: { path: \"/a/{id}\", header: { x-token: s3cret, \"x-b\": 'a b' }, method: GET }, key: client }
  - name: b
    only_if:
      header:
        x-token: s3cret # a note
        x-other: \"a, b\"
      query: { key: s3cret }
      path: /b
    cost: { header: x-units, min: 1 }
  - only_if: { query: {
      key: s3cret } , host: a.b }
    limit: api
  - only_if: { header: s3cret }
";
        assert_eq!(
            shown(text),
            [
                "clients: { header: x-forwarded-for }",
                "rules:",
                "  - { name: a, only_if: { path: \"/a/{id}\", header: { x-token: ******, \"***\": ***** }, method: GET }, key: client }",
                "  - name: b",
                "    only_if:",
                "      header:",
                "        x-token: ****** # a note",
                "        x-other: ******",
                "      query: { key: ****** }",
                "      path: /b",
                "    cost: { header: x-units, min: 1 }",
                "  - only_if: { query: {",
                "      key: ****** } , host: a.b }",
                "    limit: api",
                "  - only_if: { header: ****** }",
            ]
        );
    }
}
