//! Everything that the page shows, as data: both `status.json` and the page are made from it.
//!
//! So page and JSON cannot disagree. Some fields are only drawn, such as a quota as people write it; they are left out of the JSON, whose
//! [shape](crate#statusjson) is a promise.
//!
//! This is the only place that decides how much of a key is shown: the document of a page without a guard has no address, no name and no
//! word that stands for a key.

mod html;
mod look_up;
mod shape;
mod summary;

pub(crate) use self::html::{Look, STYLE, Theme, page};
pub(crate) use self::look_up::{LookedUp, by_key, by_request, usual_span};
pub(crate) use self::shape::{Document, ShownKeys};

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::Quota;
use sluicegate_core::limiter::Overrides;
use sluicegate_core::support::{ceil_seconds, lock};
use sluicegate_observed::{Observed, PastEvent, Snapshot};
use sluicegate_tower::room::{Room, RoomNumbers};

use crate::document::shape::{
    AskerShown, BudgetShown, GivenQuotas, GivenShown, Happened, NamedLimit, NoticeShown, OffenderShown,
    OverrideShown, PolicyStatus, PolicyView, RoomShown, Tighter, status,
};
use crate::document::summary::{NextAction, sentence, steps};
use crate::page::{Scope, rfc3339};

// Puts the current document together: [`gather`].
//
// A snapshot sums counts and walks tables, and is made for each request for the page. That takes less than a millisecond for a service
// with some policies, so nothing is kept between requests.

/// Puts the snapshots of all stores together. If two policies have one name, the first is shown.
pub(crate) fn gather(
    instance: &str,
    (scope, notices, room_events): (&Scope, &Notices, &RoomEvents),
    keys: ShownKeys<'_>,
) -> Document {
    let snapshots = scope.stores.iter().map(|store| (store, store.0.snapshot()));
    let snapshots: Vec<(&(Observed, Overrides), Snapshot)> = snapshots.collect();
    let at = snapshots.iter().map(|(_, known)| known.at).max().unwrap_or(UNIX_EPOCH);
    let uptime = snapshots.iter().map(|(_, known)| known.uptime).max().unwrap_or_default();
    let mut names = HashSet::new();
    let policies = snapshots.iter().flat_map(|((observed, overrides), known)| {
        let standing = overrides.list();
        let shown = known.policies.iter().filter(|it| names.insert(it.policy.name().to_owned()));
        let shown = shown.map(|policy| {
            let (standing, store) = (&standing, known.stores.first());
            status(&PolicyView { observed, overrides, standing, policy, store, keys, at: known.at })
        });
        shown.collect::<Vec<_>>()
    });
    let policies = policies.collect();
    // First, because they are the most likely reason to open the page.
    let alarms = snapshots.iter().flat_map(|(_, known)| &known.policies).flat_map(|policy| &policy.alarms);
    let alarms = alarms.map(|alarm| Notice {
        about: alarm.policy.clone(),
        since_us: alarm.since_us,
        text: alarm.to_string(),
    });
    let events = snapshots.iter().flat_map(|(_, known)| &known.events);
    let events = events.map(|event| (event.at, happened(event, keys)));
    let mut events: Vec<_> = events.chain(room_events.all()).collect();
    events.sort_by_key(|(at, _)| *at);
    Document {
        version: 1,
        at: rfc3339(at),
        instance: instance.to_owned(),
        uptime_seconds: uptime.as_secs(),
        notices: alarms
            .map(|it| NoticeShown { is_alarm: true, ..notice(it, keys) })
            .chain(notices.all().into_iter().map(|it| notice(it, keys)))
            .collect(),
        stores: snapshots.iter().flat_map(|(_, known)| &known.stores).cloned().collect(),
        policies,
        in_flight: snapshots.iter().flat_map(|(_, known)| &known.in_flight).cloned().collect(),
        adaptive: snapshots.iter().flat_map(|(_, known)| &known.adaptive).map(named).collect(),
        shared: snapshots.iter().flat_map(|(_, known)| &known.shared).map(named).collect(),
        rooms: scope.rooms.iter().map(|room| room_shown(&**room)).collect(),
        events: events.into_iter().map(|(_, event)| event).collect(),
    }
}

fn named<T: Clone>((name, status): &(String, T)) -> NamedLimit<T> {
    NamedLimit { name: name.clone(), status: status.clone() }
}

/// A notice; only operators see its text.
fn notice(Notice { about, since_us, text }: Notice, keys: ShownKeys<'_>) -> NoticeShown {
    let since = rfc3339(UNIX_EPOCH + Duration::from_micros(since_us));
    NoticeShown { about, since, text: matches!(keys, ShownKeys::Shown(_)).then_some(text), is_alarm: false }
}

fn happened(event: &PastEvent, keys: ShownKeys<'_>) -> Happened {
    Happened {
        at: rfc3339(event.at),
        until: event.until.map(rfc3339),
        what: event.what,
        by: event.by.clone(),
        policy: event.policy.clone(),
        key: event.key.as_ref().map(|key| match keys {
            ShownKeys::Shown(_) => key.to_string(),
            ShownKeys::Digests => format!("digest {}", key.digest),
        }),
        room: None,
        from: event.from.clone(),
        to: event.to.clone(),
        outage: event.outage,
    }
}

/// The current state of a waiting room.
pub(crate) fn room_shown(room: &dyn Room) -> RoomShown {
    let now = room.numbers();
    RoomShown {
        name: room.name().to_owned(),
        mode: now.mode,
        rate: rate(now.rate),
        waiting: now.waiting,
        active: now.active,
        admitted: now.admitted,
        passed_over: now.passed_over,
        wait_seconds: now.wait.map(ceil_seconds),
        seen: seen(&now),
    }
}

// The operators' changes to waiting rooms, and the words for them: [`RoomEvents`].

/// The number of events that are kept, the same as of a store.
const MOST_ROOMS: usize = 100;

/// A change that was made: the room, and its numbers before and after.
pub(crate) struct RoomChanged {
    pub(crate) room: String,
    pub(crate) before: RoomNumbers,
    pub(crate) after: RoomNumbers,
}

/// The last changes of rooms that were made by this page.
#[derive(Default)]
pub(crate) struct RoomEvents(Mutex<VecDeque<(SystemTime, Happened)>>);

impl RoomEvents {
    /// Adds an event for the rate and one for the mode, if they have changed. The oldest make room.
    pub(crate) fn add(&self, changed: &RoomChanged, by: &str, now_us: u64) {
        let RoomChanged { room, before, after } = changed;
        let at = UNIX_EPOCH + Duration::from_micros(now_us);
        let event = |what, from: String, to: String| {
            let [by, room, from, to] = [by.to_owned(), room.clone(), from, to].map(Some);
            let (policy, key, until, outage) = (None, None, None, None);
            (at, Happened { at: rfc3339(at), until, what, by, policy, key, room, from, to, outage })
        };
        let rates = (before.rate != after.rate)
            .then(|| event("room_rate_changed", rate(before.rate), rate(after.rate)));
        let modes = (before.mode != after.mode)
            .then(|| event("room_mode_changed", before.mode.to_owned(), after.mode.to_owned()));
        let mut all = lock(&self.0);
        all.extend(rates.into_iter().chain(modes));
        let too_many = all.len().saturating_sub(MOST_ROOMS);
        all.drain(..too_many);
    }

    /// All events with their times, the oldest first.
    fn all(&self) -> Vec<(SystemTime, Happened)> {
        lock(&self.0).iter().cloned().collect()
    }
}

/// A rate as people write it. Turns are spaced, so a burst has no effect.
fn rate(rate: Quota) -> String {
    Quota::new(rate.limit(), rate.period()).to_string()
}

/// Rate and mode in short form, which a form sends back as the state that its operator has seen.
pub(crate) fn seen(numbers: &RoomNumbers) -> String {
    format!("{} {}", rate(numbers.rate), numbers.mode)
}

// Texts that the application puts on the page: [`Notices`].
//
// They are for conditions that last until they are fixed, such as a wrong rules file. A single occurrence is an event.

/// The most notices at a time. An application has a handful of subjects.
const MOST_NOTICES: usize = 32;

/// The longest text that is kept, in bytes: about fifty lines of a file with carets below them.
const LONGEST: usize = 4_096;

/// The notices that are on the page until they are taken back, by subject.
#[derive(Default)]
pub(crate) struct Notices(Mutex<BTreeMap<String, Notice>>);

/// A text, and the time since which it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Notice {
    about: String,
    since_us: u64,
    text: String,
}

impl Notices {
    /// Puts a text, which replaces another one about the same subject. A text that is put again keeps its first time. If there are too
    /// many, the oldest makes room.
    pub(crate) fn put(&self, about: String, mut text: String, now_us: u64) {
        // Among any four places there is a boundary between characters.
        let end = (0..=LONGEST.min(text.len())).rev().find(|place| text.is_char_boundary(*place));
        text.truncate(end.unwrap_or_default());
        let mut all = lock(&self.0);
        let since_us = all.get(&about).filter(|known| known.text == text).map_or(now_us, |it| it.since_us);
        all.insert(about.clone(), Notice { about, since_us, text });
        if all.len() > MOST_NOTICES {
            let oldest = all.values().min_by_key(|notice| notice.since_us).map(|it| it.about.clone());
            oldest.and_then(|oldest| all.remove(&oldest));
        }
    }

    pub(crate) fn take_back(&self, about: &str) {
        lock(&self.0).remove(about);
    }

    /// All notices, by subject.
    fn all(&self) -> Vec<Notice> {
        lock(&self.0).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_hundred_changes_makes_room_and_what_is_the_same_is_no_event() {
        let events = RoomEvents::default();
        let numbers = |mode, limit| RoomNumbers::new(mode, Quota::per_second(limit).burst(1));
        let change = |before, after| RoomChanged { room: "sale".to_owned(), before, after };
        events.add(&change(numbers("metered", 5), numbers("metered", 5)), "ada", 1);
        assert!(events.all().is_empty());
        for number in 1..=60 {
            events.add(&change(numbers("metered", number), numbers("paused", number + 1)), "ada", number);
        }
        let all = events.all();
        let [(at, first), (_, second), .., (_, last)] = &all[..] else { panic!("{all:?}") };
        assert_eq!((all.len(), first.what, second.what), (100, "room_rate_changed", "room_mode_changed"));
        let text = |text: &Option<String>| text.clone().unwrap();
        assert_eq!([&first.from, &first.to, &last.to].map(text), ["11/s", "12/s", "paused"]);
        assert_eq!(*at, UNIX_EPOCH + Duration::from_micros(11));
    }
}

#[cfg(test)]
mod notices_tests {
    use super::*;

    #[test]
    fn a_notice_stands_since_it_was_put_first_and_the_oldest_makes_room() {
        let notices = Notices::default();
        let put = |about: &str, text: &str, now_us| notices.put(about.to_owned(), text.to_owned(), now_us);
        let since = || notices.all().iter().map(|notice| notice.since_us).collect::<Vec<_>>();
        put("rules", "line 3", 1);
        put("rules", "line 3", 2);
        assert_eq!(since(), [1]);
        put("rules", "line 4", 3);
        assert_eq!(since(), [3]);
        for number in 0..100_u64 {
            put(&format!("{number:03}"), "x", 10 + number);
        }
        assert_eq!((since().len(), since().iter().min()), (32, Some(&78)));
        notices.take_back("099");
        notices.take_back("099");
        assert_eq!(since().len(), 31);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let notices = Notices::default();
        notices.put("rules".to_owned(), "€".repeat(9_000), 1);
        assert_eq!(notices.all()[0].text, "€".repeat(1_365));
    }
}
