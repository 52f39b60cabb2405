//! The waiting rooms of a file: policies with `on_exceeded: room`, and the rules that name them.
//!
//! A policy with `on_exceeded: room` spends nothing: its quota is the rate at which visitors are let in. Options about keys, counts and
//! refusals have no meaning for it, and are refused by name.

use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use sluicegate_core::policy::TimeSpan;
use sluicegate_core::{Policy, Quota};
use sluicegate_tower::key::OnMissingKey;
use sluicegate_tower::room::RoomTerms;

use super::keys::{GivenKeys, KeyWords};
use super::value::{is_unknown, number, read, refuse};
use crate::at::{At, Position};
use crate::error::Problems;
use crate::schema::{PolicyEntry, RoomEntry};
use crate::shown::short;

/// A waiting room of the file.
#[derive(Clone)]
pub(crate) struct FileRoom {
    /// The terms of the room, without the key that identifies its clients.
    pub terms: RoomTerms,
    /// All terms but the rate.
    pub options: RoomOptions,
    /// The key that identifies its clients.
    key: KeyWords,
    /// The first rule that names it, with its place.
    pub rule: String,
    pub place: Position,
}

/// All terms of a room but its rate. Rules that share a room have equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoomOptions {
    opens_at: Option<SystemTime>,
    most_active: Option<u64>,
    pass_lasts: Option<Duration>,
    longest_line: Option<u64>,
    /// The most places of a client, the words of its key, and the treatment of clients without one.
    places: Option<(u64, Vec<String>, Option<OnMissingKey>)>,
}

/// The terms of a room, without the key that identifies its clients.
#[derive(Clone)]
pub(super) struct FileRoomTerms {
    pub terms: RoomTerms,
    /// The most places in the line that one client may have; the key of the rule identifies clients.
    pub places_per_client: Option<u64>,
}

/// A placeholder for an unknown rate.
const UNKNOWN: &str = "1000/s";

/// The room of a policy with `on_exceeded: room`.
pub(super) fn terms(
    name: &At<String>,
    entry: &PolicyEntry,
    problems: &mut Problems<'_>,
) -> Option<FileRoomTerms> {
    let before = problems.errors();
    refuse(entry.words_of_spending(), problems, |word| {
        format!("a waiting room has no {word:?}: nothing is spent, and nobody is refused for good")
    });
    let [quota] = &mut entry.quota.all()[..] else {
        problems.error(entry.quota.place, "a waiting room has one rate, as 50/s");
        return None;
    };
    if is_unknown(quota, UNKNOWN, problems) {
        UNKNOWN.clone_into(&mut quota.value);
    }
    let rate: Quota = read(quota, problems)?;
    if let Some(algorithm) = rate.algorithm() {
        let text = format!("the turns of a waiting room are spaced evenly: leave \"by {algorithm}\" out");
        problems.error(quota.place, text);
    }
    // Checked as a room uses it: with spaced turns.
    if let Err(error) = Policy::gcra(&*name.value, rate.burst(1)).build() {
        problems.error(if error.quota().is_some() { quota.place } else { name.place }, error.problem());
    }
    let mut terms = RoomTerms::new(&*name.value, rate);
    let mut places_per_client = None;
    if let Some(room) = &entry.room {
        let RoomEntry { opens_at, most_active, pass_lasts, longest_line, places_per_client: places } =
            &room.value;
        let mut count = |text: &At<String>, what| number(text, what, 1..=MOST, problems);
        terms.most_active = most_active.as_ref().and_then(|text| count(text, "a number of visitors"));
        terms.longest_line = longest_line.as_ref().and_then(|text| count(text, "a number of places"));
        places_per_client = places.as_ref().and_then(|text| count(text, "a number of places"));
        terms.opens_at = opens_at.as_ref().and_then(|text| moment(text, problems));
        terms.pass_lasts =
            pass_lasts.as_ref().and_then(|text| read::<TimeSpan>(text, problems)).map(Duration::from);
    }
    (problems.errors() == before).then_some(FileRoomTerms { terms, places_per_client })
}

/// The most visitors that a file may name.
const MOST: u64 = 1 << 32;

impl FileRoom {
    /// The room that a rule names, with the key of that rule.
    pub(super) fn of(
        given: &FileRoomTerms,
        rule: &At<String>,
        words: &[String],
        on_missing_key: Option<OnMissingKey>,
        key: &KeyWords,
    ) -> Self {
        let FileRoomTerms { terms, places_per_client } = given.clone();
        let RoomTerms { opens_at, most_active, pass_lasts, longest_line, .. } = terms;
        let places = places_per_client.map(|places| (places, words.to_vec(), on_missing_key));
        let options = RoomOptions { opens_at, most_active, pass_lasts, longest_line, places };
        Self { terms, options, key: key.clone(), rule: rule.value.clone(), place: rule.place }
    }

    /// The terms of the room where the program finds these keys.
    pub(crate) fn given(&self, keys: &GivenKeys) -> RoomTerms {
        let mut terms = self.terms.clone();
        let places = self.options.places.as_ref();
        terms.places_per_client = places
            .map(|(places, _, on_missing_key)| (*places, self.key.given(keys).extractor(), *on_missing_key));
        terms
    }
}

/// Writes `waiting room sale, 50/s`.
impl fmt::Display for FileRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiting room {}, {}", self.terms.name, self.terms.rate)
    }
}

/// Reads a moment, or reports a mistake in it.
pub(super) fn moment(text: &At<String>, problems: &mut Problems<'_>) -> Option<SystemTime> {
    if is_unknown(text, "that it is open", problems) {
        return None;
    }
    let found = moment_of(&text.value);
    if found.is_none() {
        let shown = short(&text.value);
        let problem = format!(
            "{shown:?} is not a moment: write 2026-11-27T12:00:00Z, or with a zone 2026-11-27T13:00:00+01:00"
        );
        problems.error(text.place, problem);
    }
    found
}

/// A moment of RFC 3339, from the epoch on.
fn moment_of(text: &str) -> Option<SystemTime> {
    let at: Timestamp = text.parse().ok()?;
    (at >= Timestamp::UNIX_EPOCH).then(|| at.into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_moment_is_read_in_any_zone_and_no_other_text_is_one() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-27T12:00:00Z", 1_795_780_800),
            ("2026-11-27T13:30:00+01:30", 1_795_780_800),
            ("2026-11-27T04:00:00-08:00", 1_795_780_800),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(moment_of(text), Some(UNIX_EPOCH + Duration::from_secs(expected)), "{text}");
        }
        for text in [
            "",
            "noon",
            "2026-11-27",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-27T24:00:00Z",
            "2026-11-27T12:00:00",
            "1969-12-31T00:00:00Z",
            "2026-11-27T12:00:00Zz",
            "2026-11-27T12:0é:00Z",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert_eq!(moment_of(text), None, "{text}");
        }
    }
}
