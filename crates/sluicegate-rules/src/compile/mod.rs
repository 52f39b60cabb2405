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
mod quotas;
mod reader;
mod rooms;
mod rule;
mod store;
mod tiers;
mod value;

use std::path::Path;

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
use crate::error::Problems;
use crate::schema::File;

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
