//! The operators' changes to waiting rooms, and the words for them: [`RoomEvents`].

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_core::Quota;
use sluicegate_tower::room::RoomNumbers;

use super::shape::Happened;
use crate::instant::rfc3339;

/// The number of events that are kept, the same as of a store.
const MOST: usize = 100;

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
            (at, Happened { at: rfc3339(at), what, by, policy: None, key: None, room, from, to })
        };
        let rates = (before.rate != after.rate)
            .then(|| event("room_rate_changed", rate(before.rate), rate(after.rate)));
        let modes = (before.mode != after.mode)
            .then(|| event("room_mode_changed", before.mode.to_owned(), after.mode.to_owned()));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(rates.into_iter().chain(modes));
        let too_many = all.len().saturating_sub(MOST);
        all.drain(..too_many);
    }

    /// All events with their times, the oldest first.
    pub(super) fn all(&self) -> Vec<(SystemTime, Happened)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// A rate as people write it. Turns are spaced, so a burst has no effect.
pub(super) fn rate(rate: Quota) -> String {
    Quota::new(rate.limit(), rate.period()).to_string()
}

/// Rate and mode in short form, which a form sends back as the state that its operator has seen.
pub(crate) fn seen(numbers: &RoomNumbers) -> String {
    format!("{} {}", rate(numbers.rate), numbers.mode)
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
