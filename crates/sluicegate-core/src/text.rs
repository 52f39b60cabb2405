//! Reading what people write in files and attributes: numbers, and the words of options, which metrics and logs show.
//!
//! Every mistake says where it stands, as a slice of the text: the attribute turns that into a span
//! of the source, an editor of rules into a mark.

use std::fmt::Write as _;

use crate::error::{ConfigError, ConfigErrorKind};

/// A mistake in a part of a text.
pub(crate) struct Fault<'a> {
    kind: ConfigErrorKind,
    part: &'a str,
    problem: String,
}

impl<'a> Fault<'a> {
    pub(crate) fn unreadable(part: &'a str, problem: String) -> Self {
        Self { kind: ConfigErrorKind::Unreadable, part, problem }
    }

    pub(crate) fn out_of_range(part: &'a str, problem: String) -> Self {
        Self { kind: ConfigErrorKind::Quota, part, problem }
    }

    /// The error of the `text` that the part is in, which is not `what` it should be.
    pub(crate) fn in_text(self, text: &str, what: &str, advice: &str) -> ConfigError {
        let shown: String = text.trim().chars().take(64).collect();
        // The part is a slice of the text, so its position is the distance from the text's beginning.
        let start = (self.part.as_ptr().addr()).saturating_sub(text.as_ptr().addr()).min(text.len());
        let end = start.saturating_add(self.part.len()).min(text.len());
        let problem = format!("{shown:?} is not {what}: {}{advice}", self.problem);
        ConfigError::new(self.kind, problem).at(start..end)
    }
}

/// The remedy for a limit of 0: no quota refuses everything.
pub(crate) const REFUSE_ALL: &str = " (to refuse everything, deny it)";

/// A positive number; underscores may group its digits.
pub(crate) fn number<'a>(text: &'a str, what: &str) -> Result<u64, Fault<'a>> {
    positive(number_or_none(text, what)?, text.trim(), what)
}

/// The number that a text says, unless it is 0.
fn positive<'a>(number: u64, text: &'a str, what: &str) -> Result<u64, Fault<'a>> {
    if number > 0 {
        return Ok(number);
    }
    let instead = if what == "limit" { REFUSE_ALL } else { "" };
    Err(Fault::out_of_range(text, format!("the {what} is 0, and must be at least 1{instead}")))
}

/// A positive number of units, as people write large ones: `1_500`, `1.5k`, `2M`; and of bytes: `500 B`, `10MB`, `1.5GB`.
pub(crate) fn units<'a>(text: &'a str, what: &str) -> Result<u64, Fault<'a>> {
    let text = text.trim();
    let digits = text.strip_suffix('B').unwrap_or(text).trim_end();
    let factors = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let found = factors.iter().find_map(|(letter, factor)| Some((digits.strip_suffix(*letter)?, *factor)));
    let Some((digits, factor)) = found else { return number(digits, what) };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
    let places = u32::try_from(part.len()).ok().filter(|places| *places <= 9 && is_digits(part));
    let Some(parts_of) = places.and_then(|places| 10_u64.checked_pow(places)) else {
        return Err(Fault::unreadable(text, format!("the {what} {text:?} is not a number")));
    };
    let part = if part.is_empty() { 0 } else { part.parse::<u64>().unwrap_or(0).saturating_mul(factor) };
    if part % parts_of > 0 {
        return Err(Fault::unreadable(text, format!("the {what} {text:?} is no whole number of units")));
    }
    let whole = number_or_none(whole, what)?.checked_mul(factor);
    match whole.and_then(|whole| whole.checked_add(part / parts_of)) {
        Some(units) => positive(units, text, what),
        None => Err(Fault::out_of_range(text, format!("the {what} {text} is too large"))),
    }
}

/// A number of 0 or more; underscores may group its digits.
pub(crate) fn number_or_none<'a>(text: &'a str, what: &str) -> Result<u64, Fault<'a>> {
    let text = text.trim();
    let digits: String = text.chars().filter(|&c| c != '_').collect();
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse() {
        _ if !plain => Err(Fault::unreadable(text, format!("the {what} {text:?} is not a whole number"))),
        Ok(number) => Ok(number),
        Err(_) => Err(Fault::out_of_range(text, format!("the {what} {text} is too large"))),
    }
}

/// The value that a word stands for; `decides` says what the option is about, and `more` what else can be written.
pub(crate) fn value_of<T: Copy>(
    text: &str,
    words: &[(&str, T)],
    decides: &str,
    more: &str,
) -> Result<T, ConfigError> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let shown: String = text.chars().take(64).collect();
        let mut problem = format!("{shown:?} does not say {decides}: use ");
        for (index, (word, _)) in words.iter().enumerate() {
            let between = match index {
                0 => "",
                _ if index + 1 == words.len() && more.is_empty() => " or ",
                _ => ", ",
            };
            // Writing to a string cannot fail.
            let _ = write!(problem, "{between}{word:?}");
        }
        ConfigError::new(ConfigErrorKind::Unreadable, problem + more).at(0..text.len())
    })
}

/// Gives an option its words: it prints as the word that it reads from.
macro_rules! words {
    ($option:ident decides $decides:literal: $($word:literal => $value:ident),+) => {
        impl std::fmt::Display for $option {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $word,)+
                })
            }
        }

        impl std::str::FromStr for $option {
            type Err = $crate::ConfigError;

            /// Reads the word that `Display` prints.
            ///
            /// # Errors
            /// [`Unreadable`](crate::error::ConfigErrorKind::Unreadable) for any other text; the message lists the words.
            fn from_str(text: &str) -> Result<Self, $crate::ConfigError> {
                $crate::text::value_of(text, &[$(($word, Self::$value)),+], $decides, "")
            }
        }
    };
}

pub(crate) use words;

/// Lists the values of an option, and gives each its word.
#[cfg(feature = "limiter")]
#[doc(hidden)]
#[macro_export]
macro_rules! listed {
    ($option:ident, $all:literal, $as_str:literal: $($value:ident => $word:literal),+) => {
        impl $option {
            #[doc = $all]
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            #[doc = $as_str]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }
    };
}

#[cfg(feature = "limiter")]
pub(crate) use listed;
