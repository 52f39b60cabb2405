//! Lines of a file as errors show them: of sections only in which there is no secret, and the values that header fields and
//! parameters must have may be secrets, too.
//!
//! A line is looked at as it was written, also where it is not YAML: keys and values are told apart by colons, braces and
//! indentation. What is in doubt is masked.
//!
//! Readers of logs should not learn a password from a typing error: that is why lines are not quoted as they are. A mask has as many
//! characters as the value, so that columns of an error still point to their place.

/// The sign that stands for each character of a value.
pub(crate) const MASK: char = '*';

/// Sections without secrets, where the words below have other values.
const PLAIN: [&str; 7] = ["version", "clients", "policies", "tiers", "keys", "in_flight", "headers"];

/// Sections of rules.
const RULES: [&str; 3] = ["deny", "exempt", "rules"];

/// Words of a rule, and of a condition, that have no secrets.
const OPEN: [&str; 14] = [
    "name",
    "group",
    "limit",
    "share",
    "key",
    "on_missing_key",
    "in_flight",
    "refund_if",
    "status",
    "path",
    "method",
    "host",
    "client",
    "tier",
];

/// Words with conditions under them.
const CONDITION: [&str; 2] = ["only_if", "not"];

/// Words under which there are names with values that a request must have.
const SECRET: [&str; 2] = ["header", "query"];

/// A line, which counts from 1, with its secrets masked; it stays as long as it was. Nothing of a section that may have secrets: one
/// that nobody knows, as where `jwt` has a typing error, and of a file that is one value in braces, as JSON is.
pub(crate) fn masked(text: &str, line: usize) -> Option<String> {
    let mut scanner = Scanner::default();
    let shown = text.lines().take(line).map(|line| scanner.line(line)).nth(line.checked_sub(1)?)?;
    (scanner.section != Section::Closed).then_some(shown)
}

/// Where a line stands: in which section, below which keys, and in which braces.
#[derive(Default)]
struct Scanner {
    section: Section,
    /// How far keys are indented under which the line stands, and what they are.
    above: Vec<(usize, Kind)>,
    /// The braces and brackets that are open.
    within: Vec<Kind>,
    quote: Option<char>,
    /// A text of whole lines, as `|` begins it: it goes on while lines are indented further than this.
    lines: Option<(usize, Kind)>,
}

/// Whether the lines of a section are shown.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Section {
    /// None of them.
    #[default]
    Closed,
    /// As they are.
    Plain,
    /// Without the values of conditions.
    Rules,
}

/// How a key masks the values under it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Open,
    /// A cost names a header, which is no secret.
    Cost,
    /// A word that is not known here: it may be meant as one with names under it.
    Unknown,
    /// Conditions. A text in their place may be any of them.
    Condition,
    /// Names, of which the values are secrets.
    Names,
    /// A secret, whatever its shape.
    Secret,
}

impl Scanner {
    fn line(&mut self, line: &str) -> String {
        let body = line.trim_start();
        let outer = line.len() - body.len();
        let mut indent = outer;
        self.enter_section(line);
        if let Some((above, kind)) = self.lines {
            if body.is_empty() || outer > above {
                let is_open = matches!(kind, Kind::Open | Kind::Cost);
                return line.chars().map(|c| if is_open || c == ' ' { c } else { MASK }).collect();
            }
            self.lines = None;
        }
        if self.within.is_empty() && self.quote.is_none() && !body.is_empty() && !body.starts_with('#') {
            let dashes = body.len() - body.trim_start_matches(['-', ' ']).len();
            indent += if body.starts_with("- ") { dashes } else { 0 };
            self.above.retain(|(above, _)| *above < indent);
        }
        let (mut shown, mut word, mut key, mut begins) = (String::new(), String::new(), None, None);
        let mut has_key = !self.within.is_empty() || self.quote.is_some();
        let mut chars = line.chars().peekable();
        let mut before = ' ';
        while let Some(c) = chars.next() {
            let next = chars.peek().copied();
            let ends_key = c == ':'
                && (next.is_none_or(|next| matches!(next, ' ' | '\t' | '{' | '['))
                    || word.ends_with(['"', '\'']));
            match c {
                _ if self.quote.is_some() => {
                    word.push(c);
                    shown.push(self.masked(c, key));
                    // What is escaped does not end the text.
                    let is_escape = c == '\\' && self.quote == Some('"');
                    let is_doubled = c == '\'' && self.quote == Some(c) && next == Some(c);
                    match chars.next_if(|_| is_escape || is_doubled) {
                        Some(escaped) => {
                            word.push(escaped);
                            shown.push(self.masked(escaped, key));
                        }
                        None => self.quote = self.quote.filter(|quote| *quote != c),
                    }
                }
                '#' if before == ' ' => {
                    shown.push(c);
                    shown.extend(chars.by_ref());
                }
                ':' if ends_key && key.is_none() => {
                    // A name is known by its colon only: until then it may have been a value.
                    if let Some(begin) = begins.take() {
                        shown.truncate(begin);
                        shown.push_str(&word);
                    }
                    let kind = self.kind_of(&word);
                    if !std::mem::replace(&mut has_key, true) {
                        self.above.push((indent, kind));
                    }
                    key = Some(kind);
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
                    (key, word, begins) = (None, String::new(), None);
                    shown.push(c);
                }
                ' ' => {
                    // What has an anchor or a tag comes behind it.
                    if word.starts_with(['&', '!']) {
                        word.clear();
                    }
                    begins = None;
                    shown.push(c);
                }
                c => {
                    if word.is_empty() {
                        self.quote = Some(c).filter(|c| matches!(c, '"' | '\''));
                        let has_names = match self.kind() {
                            Kind::Names => self.quote.is_none(),
                            kind => kind == Kind::Condition,
                        };
                        begins = has_names.then_some(shown.len());
                    }
                    if c == '-' && word.is_empty() && key.is_none() {
                        shown.push(c);
                        before = c;
                        continue;
                    }
                    word.push(c);
                    shown.push(self.masked(c, key));
                }
            }
            before = c;
        }
        if self.within.is_empty() && word.starts_with(['|', '>']) {
            let (indent, kind) = key.map_or_else(|| (outer, self.kind()), |kind| (indent, kind));
            self.lines = Some((indent, kind));
        }
        shown
    }

    /// A line that is not indented begins a section. In the midst of a text or of braces nobody knows what it is, and a return alone
    /// ends lines for some.
    fn enter_section(&mut self, line: &str) {
        if line.contains('\r') {
            self.section = Section::Closed;
            return;
        }
        let goes_on = |line: &str| matches!(line.split(' ').next(), Some("" | "-" | "}" | "]"));
        if goes_on(line) || line.starts_with(['#', '\t', '}', ']']) {
            return;
        }
        let is_free = self.within.is_empty() && self.quote.is_none();
        let words = line.split(':').next().unwrap_or_default();
        // An anchor or a tag comes before the word.
        let word = words.split(' ').find(|word| !word.is_empty() && !word.starts_with(['&', '!']));
        let word = word.unwrap_or_default().trim_matches(['"', '\'']);
        self.section = match () {
            () if is_free && PLAIN.contains(&word) => Section::Plain,
            () if is_free && RULES.contains(&word) => Section::Rules,
            () => Section::Closed,
        };
    }

    /// The masking by the braces or the key that all of this stands under.
    fn kind(&self) -> Kind {
        self.within.last().copied().or_else(|| self.above.last().map(|(_, kind)| *kind)).unwrap_or_default()
    }

    /// The masking by a key that stands here.
    fn kind_of(&self, word: &str) -> Kind {
        let word = word.trim_start_matches('?').trim_matches(['"', '\'']);
        let above = self.kind();
        match above {
            // The value of a key that stands before it is like one of a key that is written in another way than in letters.
            Kind::Names | Kind::Secret => Kind::Secret,
            Kind::Cost => Kind::Open,
            _ if self.section == Section::Plain => Kind::Open,
            _ if SECRET.contains(&word) => Kind::Names,
            _ if CONDITION.contains(&word) => Kind::Condition,
            _ if word.is_empty() || word.contains('\\') => Kind::Secret,
            _ if OPEN.contains(&word) => Kind::Open,
            Kind::Condition | Kind::Unknown => Kind::Names,
            _ if word == "cost" => Kind::Cost,
            _ if RULES.contains(&word) => Kind::Open,
            Kind::Open => Kind::Unknown,
        }
    }

    /// A character of a name, or of a value behind this key.
    fn masked(&self, c: char, key: Option<Kind>) -> char {
        let is_secret = match key {
            Some(key) => key.hides(),
            // A value without a name, or the rest of one from the line before.
            None => self.kind().hides() && !matches!(c, '"' | '\''),
        };
        if is_secret { MASK } else { c }
    }
}

impl Kind {
    /// Whether a text under such a key is masked.
    fn hides(self) -> bool {
        matches!(self, Self::Condition | Self::Names | Self::Secret)
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

    #[test]
    fn no_secret_is_shown_however_it_is_written() {
        for text in [
            "  - only_if: { header: { x-token: [s3cret] } }",
            "  - only_if: { header: { x-token: [a, \"s3cret\"] }, method: GET }",
            "  - only_if: { header: [s3cret] }",
            "  - only_if: { header: { x-token: { s3cret: s3cret } } }",
            "  - only_if: { header: &h { x-token: s3cret } }",
            "  - only_if: &o { header: { x-token: s3cret } }",
            "  - only_if: !!map { query: !!map { token: !!str s3cret } }",
            "  - only_if: { header: { x-token: \"a\\\"}}, s3cret\" } }",
            "  - only_if: { header: { x-token: 'it''s }}, s3cret' } }",
            "  - only_if: { header: { \"x-token\":\"}s3cret\" } }",
            "  - only_if: {\"header\":{\"x-token\":\"}s3cret\"}}",
            "  - only_if: { \"h\\u0065ader\": { x-token: s3cret } }",
            "  - only_if: { ? header : { x-token: s3cret } }",
            "  - only_if:\n      header:\n        - s3cret",
            "  - only_if:\n      header:\n      - s3cret",
            "  - only_if:\n      header:\n        s3cret",
            "  - only_if:\n      header: &h\n        x-token: s3cret",
            "  - only_if:\n      header:\n        x-token:\n          s3cret",
            "  - only_if:\n      header:\n        x-token: a\n          s3cret",
            "  - only_if:\n      header:\n        x-token:\n        - s3cret",
            "  - only_if:\n      header:\n        x-token: |\n          \"s3cret\n          s3cret: s3cret # s3cret",
            "  - only_if:\n      header:\n        x-token: >-\n\n          {s3cret",
            "  - only_if:\n      header:\n        x-token: &a !!str |2\n          s3cret",
            "  - only_if:\n      header:\n        x-token: \"a\\\"\n          s3cret: s3cret\"",
            "  - only_if:\n      ? header\n      : { x-token: s3cret }",
            "  - only_if:\n      header: |\n        s3cret\n      query: { token: s3cret }",
            "  - only_if: { headers: { x-token: s3cret } }",
            "  - only_if: { heder: s3cret, path: /a }",
            "  - only_if: { not: { heder: { x-token: s3cret } } }",
            "  - only_if: { \"qery\": { token: \"s3cret\" } }",
            "  - only_if: header x-token is s3cret",
            "  - only_if: [ header, x-token, s3cret ]",
            "  - only_if: \"header x-token is s3cret\"",
            "  - only_if:\n      - s3cret",
            "  - only_if:\n      headers:\n        x-token: s3cret",
            "  - only_if:\n      x-token: s3cret",
            "  - only_if:\n      not:\n        x-token: s3cret",
            "  - only_iff: { heder: { x-token: s3cret } }",
            "  - only_iff:\n      heder:\n        x-token: s3cret",
            "  - heder: { x-token: s3cret }",
            "  - heder: |\n      s3cret",
        ] {
            let text = format!("rules:\n{text}\n    limit: shown\n");
            let shown = shown(&text);
            assert!(!shown.iter().any(|line| line.contains("s3cret")), "{text}{shown:#?}");
            assert_eq!(shown.last().map(|line| &**line), Some("    limit: shown"), "{text}");
            let lengths =
                |lines: &[String]| lines.iter().map(|line| line.chars().count()).collect::<Vec<_>>();
            assert_eq!(lengths(&shown), lengths(&text.lines().map(str::to_owned).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn words_that_are_known_and_what_is_under_a_misspelt_one_of_a_rule_stay_readable() {
        for line in [
            "  - { name: a, only_if: { path: [/a, \"/b\"], tier: { plan: free } }, limits: api, key: client }",
            "  - { only_if: { \"path\": \"/a\", not: { client: 10.0.0.0/8 } }, cost: { header: x-units } }",
        ] {
            assert_eq!(shown(&format!("rules:\n{line}"))[1], line);
        }
        let masked = shown("rules:\n  - { only_if: { paht: /a, method: GET }, limit: api }");
        assert_eq!(masked[1], "  - { only_if: { paht: **, method: GET }, limit: api }");
    }

    #[test]
    fn no_line_of_a_section_that_may_have_secrets_is_shown_however_the_section_begins() {
        for line in [
            "jwt: { hs256: s3cret }",
            "&a jwt: { hs256: s3cret }",
            "&a !!map jwt: { hs256: s3cret }",
            "!!str jwt: { hs256: s3cret }",
            "? jwt\n: { hs256: s3cret }",
            "\"jw\\u0074\": { hs256: s3cret }",
            "--- jwt: { hs256: s3cret }",
            "jtw:\n  hs256: s3cret",
            "jtw:\n- s3cret",
            "jwt: { hs256: \"a\nrules: s3cret\" }",
            "jwt: {\nrules: s3cret }",
            "keys: {\rjwt: { hs256: s3cret }",
            "keys: {}\rjwt:\n  hs256: s3cret",
            "{ jwt: { hs256: s3cret },\nrules: s3cret }",
        ] {
            // What stands before it is open.
            let text = format!("policies: {{}}\nrules: [ a ]\n{line}\n");
            for text in [&*text, line] {
                let shown = shown(text);
                assert!(!shown.iter().any(|line| line.contains("s3cret")), "{shown:#?}");
            }
        }
        assert_eq!(
            shown("&p policies: { a: 1 }\n&r \"rules\":\n- a"),
            ["&p policies: { a: 1 }", "&r \"rules\":", "- a"]
        );
        assert_eq!(shown("  rules: s3cret"), Vec::<String>::new(), "nobody knows where it stands");
    }

    #[test]
    fn a_text_of_lines_that_is_no_secret_is_shown_and_opens_nothing() {
        let text = "rules:\n  - name: |\n      \"{ header:\n    limit: shown\n    key: client";
        assert_eq!(shown(text), text.lines().collect::<Vec<_>>());
    }
}
