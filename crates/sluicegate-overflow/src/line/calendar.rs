//! Appointments at which visitors ask before their turn: [`PollCalendar`].
//!
//! # How often a visitor asks
//! A visitor is told to ask about halfway to its turn, then halfway through the rest, and finally at its turn: 2 + log2 of the wait in
//! seconds. A crowd that came at once would ask at once; the calendar spreads it over the seconds that follow the desired one. No appointment
//! is later than seven eighths of the way, so that an estimate that was too long is corrected in time.
//!
//! # Memory
//! Each page up to the furthest appointment takes four bytes, for half a day at most: 173 kB.

use std::collections::VecDeque;

use crate::line::pace::{TurnPace, WHOLE};

/// Appointments for polls before a turn, which bound the number of polls per second.
///
/// These polls are optional: they tell a visitor its current standing. An appointment without room is left out. Together with the polls at the
/// turns, which the rate itself bounds, all polls stay below three times the rate.
#[derive(Clone, Debug)]
pub(super) struct PollCalendar {
    /// The length of a page: a second, or the time of one turn if that is longer.
    page_us: u64,
    /// The appointments on a page: one and a half times the turns in its time.
    room: u32,
    /// The number of the first page that is kept.
    first: u64,
    booked: VecDeque<u32>,
}

/// The most pages that are searched for room.
const LOOKED_AT: u64 = 64;

/// The number of pages that are kept. An appointment beyond them is not counted: it is half a day away.
const PAGES: u64 = 43_200;

impl PollCalendar {
    /// An empty calendar for this pace. A changed rate needs a new one, because pages and their room would not fit.
    pub(super) fn new(pace: &TurnPace) -> Self {
        let page_us = pace.span_us(1, WHOLE).max(1_000_000);
        let room = pace.ranks_in(page_us, WHOLE).saturating_mul(3) / 2;
        Self {
            page_us,
            room: u32::try_from(room.max(1)).unwrap_or(u32::MAX),
            first: 0,
            booked: VecDeque::new(),
        }
    }

    /// The first time with room from `from_us` on, and before `until_us`.
    pub(super) fn book(&mut self, now_us: u64, from_us: u64, until_us: u64) -> Option<u64> {
        self.turn_to(now_us / self.page_us);
        let wished = from_us / self.page_us;
        for page in wished..wished.saturating_add(LOOKED_AT) {
            let at_us = from_us.saturating_add((page - wished).saturating_mul(self.page_us));
            if at_us >= until_us {
                return None;
            }
            let place = page.saturating_sub(self.first);
            if place >= PAGES {
                return Some(at_us);
            }
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            if place >= self.booked.len() {
                self.booked.resize(place.saturating_add(1), 0);
            }
            if let Some(booked) = self.booked.get_mut(place).filter(|booked| **booked < self.room) {
                *booked = booked.saturating_add(1);
                return Some(at_us);
            }
        }
        None
    }

    /// Drops the pages before this one.
    fn turn_to(&mut self, page: u64) {
        let past = page.saturating_sub(self.first);
        let past = usize::try_from(past).unwrap_or(usize::MAX).min(self.booked.len());
        self.booked.drain(..past);
        self.first = self.first.max(page);
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_core::Quota;

    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_full_second_passes_its_guests_on_to_the_next_one() {
        let mut calendar = PollCalendar::new(&TurnPace::new(Quota::per_second(4)).unwrap());
        let booked: Vec<_> = (0..13).map(|_| calendar.book(0, SECOND, 3 * SECOND)).collect();
        assert_eq!(booked[..6], [Some(SECOND); 6]);
        assert_eq!(booked[6..12], [Some(2 * SECOND); 6]);
        assert_eq!(booked[12], None);
        // A day later all of its appointments are gone.
        let day = 86_400 * SECOND;
        assert_eq!(calendar.book(day, day + SECOND, day + 2 * SECOND), Some(day + SECOND));
        assert_eq!(calendar.booked.len(), 2);
    }

    #[test]
    fn a_slow_room_has_an_appointment_for_each_turn() {
        let mut calendar = PollCalendar::new(&TurnPace::new(Quota::per_minute(1)).unwrap());
        let minute = 60 * SECOND;
        assert_eq!(calendar.book(0, 30 * SECOND, 3 * minute), Some(30 * SECOND));
        assert_eq!(calendar.book(0, 30 * SECOND, 3 * minute), Some(90 * SECOND));
    }
}
