//! Makes limits from the sections of a file. Values are read by the same code as elsewhere.

mod by;
mod choice;
mod compiled;
mod condition;
mod descriptor;
mod finder;
mod in_flight;
mod keys;
mod limits;
mod own;
mod paths;
mod pattern;
mod policies;
mod reader;
mod rooms;
mod rule;
mod store;
mod tiers;

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use sluicegate_core::ConfigError;

pub(crate) use self::choice::Choice;
pub(crate) use self::compiled::{Compiled, LimitsPart, Sections};
use self::in_flight::InFlightNumbers;
pub(crate) use self::keys::GivenKeys;
use self::keys::Keys;
pub(crate) use self::own::WithKeys;
use self::policies::Policies;
use self::reader::NamedSections;
pub(crate) use self::rooms::FileRoom;
pub(crate) use self::rule::Rule;
pub(crate) use self::store::{Leases, NamedStore};
use crate::at::{At, Position};
use crate::error::Problems;
use crate::schema::File;
use crate::variables::unset;

/// A table filled by the file and looked up by requests. Clients do not choose its keys, so its hash may be a fast one.
type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Adds a number to a list in order, once.
fn note(numbers: &mut Vec<usize>, number: usize) {
    if numbers.last() != Some(&number) {
        numbers.push(number);
    }
}

/// Compiles the contents of a file, without a store.
pub(crate) fn compile(
    file: &File,
    folder: Option<&Path>,
    given_keys: &[String],
    problems: &mut Problems<'_>,
) -> Option<Compiled> {
    if file.version.value != "1" {
        let text = format!("version {:?} is not known: this program reads version 1", file.version.value);
        problems.error(file.version.place, text);
    }
    let store = file.store.as_ref().and_then(|store| NamedStore::of(store, problems));
    let keys = Keys::of(file, folder, given_keys, problems);
    let policies = Policies::of(&file.policies, &keys, problems);
    let tiers = tiers::all(file, &policies, &keys, problems);
    let in_flight = InFlightNumbers::of(file, store.as_ref(), problems);
    let (policies, tiers, keys, in_flight) = (&policies, &tiers, &keys, &in_flight);
    let named = NamedSections { policies, tiers, keys, store: store.as_ref(), in_flight };
    let compiled = limits::of(file, named, problems);
    in_flight.warn_of_unused(problems);
    if !file.is_by_name() {
        policies.warn_of_unused(problems);
    }
    if let (Some(section), Some(listed)) = (&file.api_keys, keys.all_listed()) {
        policies.warn_of_unread(section, listed, problems);
    }
    compiled
}

/// Whether a value is unknown here because its variable is not set. This is reported, and the default is used. Only tools let a variable be
/// unset.
fn is_unknown(text: &At<String>, default: &str, problems: &mut Problems<'_>) -> bool {
    let Some(name) = unset(&text.value) else { return false };
    problems.warning(
        text.place,
        format!("the environment variable {name} is not set here: {default} stands for this value"),
    );
    true
}

/// Reads a value, or reports a mistake in it.
fn read<T: FromStr<Err = ConfigError>>(text: &At<String>, problems: &mut Problems<'_>) -> Option<T> {
    if is_unknown(text, "its default", problems) {
        return None;
    }
    text.value.parse().map_err(|error| wrong(text, &error, problems)).ok()
}

/// The value of a word of an option, or the default without a word.
fn option<T: FromStr<Err = ConfigError>>(
    text: Option<&At<String>>,
    problems: &mut Problems<'_>,
) -> Option<T> {
    text.and_then(|text| read(text, problems))
}

/// Reports words that have no meaning here.
fn refuse(
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
fn wrong(text: &At<String>, error: &ConfigError, problems: &mut Problems<'_>) {
    let place = error.span().map_or(text.place, |span| text.place.part(&text.value, &span));
    problems.error(place, error.problem());
}

/// A whole number in a range.
fn number(
    text: &At<String>,
    what: &str,
    range: std::ops::RangeInclusive<u64>,
    problems: &mut Problems<'_>,
) -> Option<u64> {
    if is_unknown(text, &range.start().to_string(), problems) {
        return Some(*range.start());
    }
    let digits: String = text.value.chars().filter(|&c| c != '_').collect();
    let found = digits.parse().ok().filter(|number| range.contains(number));
    if found.is_none() {
        let (least, most) = (range.start(), range.end());
        let shown = crate::read::short(&text.value);
        problems
            .error(text.place, format!("{shown:?} is not {what}: use a whole number from {least} to {most}"));
    }
    found
}
