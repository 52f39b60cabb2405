//! The parts of a file that an error may show: short texts, known names, and lines, so that readers of logs do not learn a password from a typing error.
//!
//! A line is judged as written, even if it is not YAML. In doubt, it is not shown.

use std::sync::LazyLock;

use regex::Regex;

/// Sections without secrets.
const OPEN: [&str; 8] = ["version", "clients", "paths", "policies", "tiers", "keys", "in_flight", "headers"];

/// Sections of rules. Their conditions may hold the value that a header field or a parameter must have.
const RULES: [&str; 3] = ["deny", "exempt", "rules"];

/// Words of a rule or a condition with values that are not secret.
const WORDS: [&str; 27] = [
    "deny",
    "exempt",
    "rules",
    "only_if",
    "not",
    "name",
    "group",
    "limit",
    "share",
    "key",
    "on_missing_key",
    "in_flight",
    "refund_if",
    "status",
    "cost",
    "path",
    "method",
    "host",
    "client",
    "tier",
    "class",
    "replaces",
    "bandwidth",
    "settle",
    "domain",
    "regex",
    "present",
];

/// Other words of a condition: a field or a parameter may have to have a secret value.
const HIDING: [&str; 4] = ["header", "query", "body", "descriptor"];

/// Words under which the names of fields stand, and no values that these must have.
static NAMING: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(^|[ \t{,])(cost|settle)[ \t]*:[ \t]*\{[^{}]*\}"#).ok());

/// A name before a colon.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"("(?:[^"\\]|\\.)*"|'[^']*'|[^ \t{}\[\],:"']+)[ \t]*:(?:[ \t{\["']|$)"#).ok()
});

/// A condition that is a text or a list, as a user may write it by mistake.
static OTHER_SHAPE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?:^|[ \t{,"'])(?:only_if|not)["']?[ \t]*:[ \t]*[^ \t{]"#).ok());

/// A line, counted from 1, unless it may hold a secret.
///
/// No line of an unknown section (`jwt` with a typing error) is shown, nor of a file that is one value in braces, such as JSON. The lines
/// of a rule are shown up to the first with an unknown word.
pub(crate) fn shown(text: &str, line: usize) -> Option<&str> {
    let mut scanner = LineScanner::default();
    let mut lines = text.lines().take(line).map(|line| scanner.shows(line).then_some(line));
    lines.nth(line.checked_sub(1)?)?
}

/// The position of a line.
#[derive(Default)]
struct LineScanner {
    section: SectionKind,
    /// The indentation of the rule's dash.
    rule: Option<usize>,
    /// Whether the rest of the rule is hidden.
    is_hidden: bool,
    /// The indentation of a word of the rule under which the names of fields stand.
    naming: Option<usize>,
    /// The number of open braces and brackets, and whether quotes are open.
    within: (i64, [bool; 2]),
}

/// A section of the file.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum SectionKind {
    #[default]
    Closed,
    Open,
    Rules,
}

impl LineScanner {
    fn shows(&mut self, line: &str) -> bool {
        self.enter_section(line);
        self.count_braces(line);
        match self.section {
            SectionKind::Closed => false,
            SectionKind::Open => true,
            SectionKind::Rules => {
                self.enter_rule(line);
                let indent = line.len() - line.trim_start().len();
                if self.naming.is_some_and(|naming| indent > naming) {
                    return !self.is_hidden;
                }
                self.naming = matches!(line.trim(), "cost:" | "settle:").then_some(indent);
                self.is_hidden = self.is_hidden || !is_open_rule(line);
                !self.is_hidden
            }
        }
    }

    /// Begins a section if the line is not indented. Within braces or a text its meaning is unclear, and some readers end a line at a
    /// lone carriage return: both close the section.
    fn enter_section(&mut self, line: &str) {
        let goes_on = matches!(line.split(' ').next(), Some("" | "-" | "}" | "]"));
        if line.contains('\r') {
            self.section = SectionKind::Closed;
        } else if !goes_on && !line.starts_with(['#', '\t', '}', ']']) {
            let words = line.split(':').next().unwrap_or_default().split(' ');
            // An anchor or a tag comes before the word.
            let word = words.into_iter().find(|word| !word.is_empty() && !word.starts_with(['&', '!']));
            let word = word.unwrap_or_default().trim_matches(['"', '\'']);
            (self.rule, self.is_hidden) = (None, false);
            self.section = match () {
                () if self.within != Default::default() => SectionKind::Closed,
                () if OPEN.contains(&word) => SectionKind::Open,
                () if RULES.contains(&word) => SectionKind::Rules,
                () => SectionKind::Closed,
            };
        }
    }

    fn count_braces(&mut self, line: &str) {
        let code = if line.trim_start().starts_with('#') { "" } else { line };
        for c in code.split(" #").next().unwrap_or_default().chars() {
            match c {
                '{' | '[' => self.within.0 += 1,
                '}' | ']' => self.within.0 -= 1,
                '"' => self.within.1[0] ^= true,
                '\'' => self.within.1[1] ^= true,
                _ => {}
            }
        }
    }

    fn enter_rule(&mut self, line: &str) {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        if body.starts_with("- ") && self.rule.is_none_or(|rule| indent <= rule) {
            (self.rule, self.is_hidden) = (Some(indent), false);
        }
    }
}

/// Whether all names of the line are known, and there is one.
fn is_open_rule(line: &str) -> bool {
    let (Some(word), Some(other_shape), Some(naming)) = (&*WORD, &*OTHER_SHAPE, &*NAMING) else {
        return false;
    };
    let line = &*naming.replace_all(line, "$1 cost: 1");
    let mut words = word.captures_iter(line).filter_map(|found| found.get(1)).peekable();
    words.peek().is_some()
        && words.all(|word| is_open_word(word.as_str().trim_matches(['"', '\''])))
        && !other_shape.is_match(line)
}

/// Whether a word has no secret behind it, also with a typing error.
fn is_open_word(word: &str) -> bool {
    let all: Vec<&str> = WORDS.iter().chain(&HIDING).copied().collect();
    WORDS.contains(&word) || nearest(word, &all).is_some_and(|near| WORDS.contains(&near))
}

/// The known word that is most similar to this one.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|known| (strsim::osa_distance(&short(word), known), *known)).min()?;
    (near.0 * 3 <= near.1.len()).then_some(near.1)
}

/// The nearest known name for an unknown one.
pub(crate) fn instead_of(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!(": did you mean {near:?}?"),
        None if known.is_empty() => String::new(),
        None => format!(": there are {}", known.iter().take(8).copied().collect::<Vec<_>>().join(", ")),
    }
}

/// The part of a text that an error shows.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
