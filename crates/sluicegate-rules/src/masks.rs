//! Lines of a file as errors show them. Only sections without secrets are shown; values that header fields and parameters must have may be
//! secrets, too, and are masked.
//!
//! A line is looked at as it was written, also where it is not YAML: keys and values are told apart by colons, braces and
//! indentation. In doubt, a value is masked.
//!
//! Readers of logs should not learn a password from a typing error: that is why lines are not quoted as they are. A mask has as many
//! characters as the value, so that columns of an error still point to their place.

/// The sign that stands for each character of a value.
pub(crate) const MASK: char = '*';

/// Sections without secrets, where the words below have other values.
const PLAIN: [&str; 8] = ["version", "clients", "paths", "policies", "tiers", "keys", "in_flight", "headers"];

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

/// A line, counted from 1, with its secrets masked; its length does not change. Returns `None` for a section that may have secrets, such as
/// an unknown one (`jwt` with a typing error), and for a file that is one value in braces, as JSON is.
pub(crate) fn masked(text: &str, line: usize) -> Option<String> {
    let mut scanner = Scanner::default();
    let shown = text.lines().take(line).map(|line| scanner.line(line)).nth(line.checked_sub(1)?)?;
    (scanner.section != Section::Closed).then_some(shown)
}

/// The position of a line: its section, the keys above it, and the braces around it.
#[derive(Default)]
struct Scanner {
    section: Section,
    /// The keys that the line stands under: the indentation and the kind of each.
    above: Vec<(usize, Kind)>,
    /// The braces and brackets that are open.
    within: Vec<Kind>,
    quote: Option<char>,
    /// A block text, as `|` begins it: it goes on while lines are indented further than this.
    lines: Option<(usize, Kind)>,
}

/// Whether the lines of a section are shown.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Section {
    /// No line is shown.
    #[default]
    Closed,
    /// Lines are shown unmasked.
    Plain,
    /// Lines are shown without the values of conditions.
    Rules,
}

/// The way in which a key masks the values under it.
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
    /// Names whose values are secrets.
    Names,
    /// A secret, whatever its shape.
    Secret,
}

impl Scanner {
    fn line(&mut self, line: &str) -> String {
        self.enter_section(line);
        if let Some(shown) = self.line_of_text(line) {
            return shown;
        }
        let indent = self.enter_line(line);
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
                    // An escaped quote does not end the text.
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
                    // A value comes behind its anchor or tag.
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
            self.lines = Some(key.map_or_else(|| (indent_of(line), self.kind()), |kind| (indent, kind)));
        }
        shown
    }

    /// The next line of a block text, masked; `None` once the text has ended.
    fn line_of_text(&mut self, line: &str) -> Option<String> {
        let (above, kind) = self.lines?;
        if !line.trim_start().is_empty() && indent_of(line) <= above {
            self.lines = None;
            return None;
        }
        let is_open = matches!(kind, Kind::Open | Kind::Cost);
        Some(line.chars().map(|c| if is_open || c == ' ' { c } else { MASK }).collect())
    }

    /// Leaves the keys that a new line does not stand under; returns how far its own keys are indented, behind its dashes.
    fn enter_line(&mut self, line: &str) -> usize {
        let (body, outer) = (line.trim_start(), indent_of(line));
        if !self.within.is_empty() || self.quote.is_some() || body.is_empty() || body.starts_with('#') {
            return outer;
        }
        let dashes = body.len() - body.trim_start_matches(['-', ' ']).len();
        let indent = outer + if body.starts_with("- ") { dashes } else { 0 };
        self.above.retain(|(above, _)| *above < indent);
        indent
    }

    /// Begins a section if the line is not indented. Within a text or braces its meaning is unclear, and some readers end a line at a lone
    /// carriage return: both close the section.
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

    /// The masking of the innermost braces or key that the current text stands under.
    fn kind(&self) -> Kind {
        self.within.last().copied().or_else(|| self.above.last().map(|(_, kind)| *kind)).unwrap_or_default()
    }

    /// The masking that a key at this place asks for.
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

/// The number of bytes of white space at the start of a line.
fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

impl Kind {
    /// Whether a text under such a key is masked.
    fn hides(self) -> bool {
        matches!(self, Self::Condition | Self::Names | Self::Secret)
    }
}

#[cfg(test)]
mod tests;
