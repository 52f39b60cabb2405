//! Environment variables in values of a file.

use std::collections::HashMap;

use regex::Regex;

/// The values of `${NAME}`. Variables are put in after the file was parsed, so that none of them can change its
/// shape.
///
/// A service uses the variables of its [environment](Self::environment), and a missing one stops it. A tool that reads the same file on
/// another machine uses [placeholders](Self::or_placeholders).
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let text = "
/// version: 1
/// store:
///   redis: ${REDIS_URL}
/// policies: { api: { quota: 100/min } }
/// rules: [{ name: all, limit: api, key: client }]
/// ";
/// let parse = |variables: &Variables| RulesFile::parse("rules.yaml", text, variables);
/// let error = parse(&Variables::none()).unwrap_err().to_string();
/// assert!(error.contains("the environment variable \"REDIS_URL\" is not set"));
/// assert!(parse(&Variables::none().or_placeholders()).is_ok());
/// assert!(parse(&[("REDIS_URL", "redis://127.0.0.1")].into_iter().collect()).is_ok());
/// ```
///
/// | written | means |
/// |---|---|
/// | `quota: ${LIMIT}/min` | a part of a value |
/// | `quota: ${LIMIT}` where `LIMIT` is `5/min` | all of it |
/// | `"${LIMIT}/min"`, `{ quota: ${LIMIT} }` | an error: variables in quotes and braces are not replaced |
/// | a name of letters, digits and `_`, without a digit in front | a variable |
///
/// A value is never more than part of one text, whatever it contains: a quote, a line end or a brace has no effect.
/// An empty variable is an empty text, which no word accepts. Errors show a value of eight bytes and more by its name, as `${LIMIT}`, because
/// it may be a secret; names of rules and groups, which pages show, take no variables. The secrets of `sluicegate serve` itself are not put
/// into files. `Debug` shows only names.
///
/// ```
/// use sluicegate_rules::{RulesFile, Variables};
///
/// let text = "
/// version: 1
/// policies:
///   api:
///     quota: ${LIMIT}/min
/// rules: [{ name: all, limit: api, key: client }]
/// ";
/// let parse = |value| RulesFile::parse("rules.yaml", text, &[("LIMIT", value)].into_iter().collect());
/// assert!(parse("5").is_ok());
/// assert!(parse("5/min, mode: off } #").is_err(), "it is one text");
/// assert!(parse("").is_err());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Variables {
    known: ValueSource,
    placeholders: bool,
}

#[derive(Clone, Default)]
enum ValueSource {
    #[default]
    Environment,
    These(HashMap<String, String>),
}

/// Names only: values may be secrets.
impl std::fmt::Debug for ValueSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Environment => f.write_str("Environment"),
            Self::These(these) => f.debug_set().entries(these.keys()).finish(),
        }
    }
}

impl Variables {
    /// The environment variables of this process, as they are when a file is read: a reload reads them again. One that is not set is an
    /// error.
    pub fn environment() -> Self {
        Self::default()
    }

    /// No variables: each variable in a file is an error.
    pub fn none() -> Self {
        Self::from_iter([("", ""); 0])
    }

    /// Uses a placeholder with its name for each variable that is not set: for tools that read a file without connecting. The value
    /// that contains it gets its default, with a [warning](crate::RulesFile::warnings), and the rest is checked.
    #[must_use]
    pub fn or_placeholders(mut self) -> Self {
        self.placeholders = true;
        self
    }

    /// The values of the variables that this text names.
    pub(crate) fn of(&self, text: &str) -> HashMap<String, String> {
        let mut values = HashMap::new();
        // The pattern is valid.
        let Ok(reference) = Regex::new(r"\$\{([A-Za-z_][A-Za-z0-9_]*)") else { return values };
        for name in reference.captures_iter(text).filter_map(|found| found.get(1)) {
            let name = name.as_str();
            let value = match &self.known {
                _ if values.contains_key(name) => continue,
                ValueSource::Environment => std::env::var(name).ok().filter(|_| !is_own_secret(name)),
                ValueSource::These(these) => these.get(name).cloned(),
            };
            let placeholder = || self.placeholders.then(|| format!("{PLACEHOLDER}{name} is not set here>"));
            values.extend(value.or_else(placeholder).map(|value| (name.to_owned(), value)));
        }
        values
    }
}

/// Whether `sluicegate serve` reads a secret from the variable with this name. The writers of a rules file need not know it.
pub(crate) fn is_own_secret(name: &str) -> bool {
    matches!(name, "SLUICEGATE_SECRET" | "SLUICEGATE_RECEIPT_SECRET")
}

/// The bytes of the shortest value that may be a secret.
const SHORTEST_SECRET: usize = 8;

/// The characters of a value that show a part of it.
const TELLING: usize = 5;

/// A text without the values of these variables: each has its name in its place. If a part of a value is left, the text only names the
/// variable.
pub(crate) fn without_values(mut text: String, variables: &[(String, String)]) -> String {
    for (name, value) in variables {
        text = text.replace(&**value, &format!("${{{name}}}"));
        let (shown, value) = (text.to_lowercase(), value.to_lowercase());
        let starts = value.char_indices().map(|(start, _)| &value[start..]);
        let mut parts = starts.filter_map(|rest| {
            rest.char_indices().nth(TELLING - 1).map(|(end, last)| &rest[..end + last.len_utf8()])
        });
        if parts.any(|part| shown.contains(part) && !name.to_lowercase().contains(part)) {
            return format!("the value of ${{{name}}} is not accepted here");
        }
    }
    text
}

/// The variables with values that may be secrets.
pub(crate) fn hidden(values: &HashMap<String, String>) -> Vec<(String, String)> {
    let may_be_secret =
        |(_, value): &(&String, &String)| value.len() >= SHORTEST_SECRET && unset(value).is_none();
    let mut hidden: Vec<_> =
        values.iter().filter(may_be_secret).map(|(name, value)| (name.clone(), value.clone())).collect();
    // A value that contains another one is replaced first.
    hidden.sort_by_key(|(name, value)| (std::cmp::Reverse(value.len()), name.clone()));
    hidden
}

/// The beginning of a variable's placeholder.
const PLACEHOLDER: &str = "<the environment variable ";

/// The variable in this value that is not set, if there is one: then the value is unknown.
pub(crate) fn unset(value: &str) -> Option<&str> {
    let (_, named) = value.split_once(PLACEHOLDER)?;
    named.split(' ').next()
}

/// Makes these variables, and no others.
impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let these = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { known: ValueSource::These(these), placeholders: false }
    }
}
