//! Reads single values of a file: words, numbers, and times.

use std::ops::RangeInclusive;
use std::str::FromStr;

use sluicegate_core::ConfigError;

use crate::at::{At, Position};
use crate::error::Problems;
use crate::schema::OneOrMany;
use crate::shown::short;
use crate::variables::unset;

/// Whether a value is unknown here because its variable is not set. This is reported, and the default is used. Only tools let a variable be
/// unset.
pub(super) fn is_unknown(text: &At<String>, default: &str, problems: &mut Problems<'_>) -> bool {
    let Some(name) = unset(&text.value) else { return false };
    problems.warning(
        text.place,
        format!("the environment variable {name} is not set here: {default} stands for this value"),
    );
    true
}

/// Reads a value, or reports a mistake in it.
pub(super) fn read<T: FromStr<Err = ConfigError>>(
    text: &At<String>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    if is_unknown(text, "its default", problems) {
        return None;
    }
    text.value.parse().map_err(|error| wrong(text, &error, problems)).ok()
}

/// The value of a word of an option, or the default without a word.
pub(super) fn option<T: FromStr<Err = ConfigError>>(
    text: Option<&At<String>>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    text.and_then(|text| read(text, problems))
}

/// Reports words that have no meaning here.
pub(super) fn refuse(
    words: impl IntoIterator<Item = (&'static str, Option<Position>)>,
    problems: &mut Problems<'_>,
    why: impl Fn(&str) -> String,
) {
    for (word, place) in words {
        if let Some(place) = place {
            problems.error(place, why(word));
        }
    }
}

/// Points at the wrong part of a value.
pub(super) fn wrong(text: &At<String>, error: &ConfigError, problems: &mut Problems<'_>) {
    let place = error.span().map_or(text.place, |span| text.place.part(&text.value, &span));
    problems.error(place, error.problem());
}

/// A whole number in a range.
pub(super) fn number(
    text: &At<String>,
    what: &str,
    range: RangeInclusive<u64>,
    problems: &mut Problems<'_>,
) -> Option<u64> {
    if is_unknown(text, &range.start().to_string(), problems) {
        return Some(*range.start());
    }
    let digits: String = text.value.chars().filter(|&c| c != '_').collect();
    let found = digits.parse().ok().filter(|number| range.contains(number));
    if found.is_none() {
        let (least, most) = (range.start(), range.end());
        let shown = short(&text.value);
        problems
            .error(text.place, format!("{shown:?} is not {what}: use a whole number from {least} to {most}"));
    }
    found
}

/// The quotas of a list, as texts; a placeholder replaces an unknown one.
pub(super) fn texts(quotas: &At<OneOrMany>, problems: &mut Problems<'_>) -> Vec<At<String>> {
    let mut all = quotas.all();
    for quota in &mut all {
        if is_unknown(quota, UNKNOWN, problems) {
            UNKNOWN.clone_into(&mut quota.value);
        }
    }
    all
}

/// A placeholder for an unknown quota: as high as every algorithm supports on every store.
const UNKNOWN: &str = "2000/s";
