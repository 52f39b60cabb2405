//! The standing of a visitor, and the time at which it asks again.
//!
//! # How it is estimated
//! The ranks between the gate and a visitor's own rank are before it; only a share of them comes. The wait is the longest of three spans: the
//! turns of these visitors at the rate, the end of as many passes if their number is bounded, and the calls by free passes. Each is a
//! whole number of microseconds, rounded up; before the room opens the time until then is added.

use std::time::Duration;

use crate::line::pace::WHOLE;
use crate::line::schedule::Schedule;
use crate::line::{LineMode, LinePlace, LineStanding};

/// The time before its turn at which a visitor should come.
const EARLY_US: u64 = 500_000;

/// A visitor is passed over if it has not asked for twice its interval, and for at least this time.
const PATIENCE_US: u64 = 60_000_000;

/// A visitor with at most this wait is told to come at its turn.
const SOON_US: u64 = 2_000_000;

/// Appointments are whole seconds, because browsers know no fractions.
const SECOND_US: u64 = 1_000_000;

/// The interval at which a visitor with an unknown wait asks.
const UNKNOWN_US: u64 = 30_000_000;

impl Schedule {
    /// The standing of a place without a turn, and the time at which it asks again.
    pub(super) fn standing(&mut self, place: LinePlace) -> LineStanding {
        let now_us = self.time.now_us();
        let wait_us = self.wait_us(place);
        let after_us = match wait_us {
            None => self.half_way(now_us, 2 * UNKNOWN_US).unwrap_or(2 * UNKNOWN_US),
            Some(wait_us) => {
                let turn_us = wait_us.saturating_sub(EARLY_US);
                let half_us = if turn_us > SOON_US { self.half_way(now_us, turn_us) } else { None };
                // The visitor comes early rather than late, because an early one is held.
                half_us.unwrap_or_else(|| (turn_us - turn_us % SECOND_US).max(SECOND_US))
            }
        };
        self.time.appoint(now_us.saturating_add(after_us));
        let missed_us = after_us.saturating_mul(2).max(PATIENCE_US);
        self.places.expect(place, self.time.patience_us().saturating_add(missed_us));
        let is_drawn = self.is_open || place.number >= self.early;
        LineStanding {
            position: is_drawn.then(|| self.ahead(place).saturating_add(1)),
            wait: wait_us.map(Duration::from_micros),
            opens_after: (!self.is_open).then(|| Duration::from_micros(self.opens_after_us)),
            ..LineStanding::new(place, Duration::from_micros(after_us))
        }
    }

    /// The appointment about halfway to the turn, if there is room for it.
    fn half_way(&mut self, now_us: u64, turn_us: u64) -> Option<u64> {
        let half_us = (turn_us / 2).div_ceil(SECOND_US).saturating_mul(SECOND_US);
        let latest_us = now_us.saturating_add(turn_us - turn_us / 8);
        let at_us = self.calendar.book(now_us, now_us.saturating_add(half_us), latest_us)?;
        Some(at_us.saturating_sub(now_us))
    }

    /// The number of visitors that will come before this place.
    pub(super) fn ahead(&self, place: LinePlace) -> u64 {
        let rank = place.rank(self.early);
        let mut ranks = rank.saturating_sub(self.gate);
        if self.gate < self.opened_to {
            // Some of those that came before have entered as well.
            ranks = ranks.min(self.places.waiting());
        }
        ranks.saturating_mul(self.share.get()).div_ceil(WHOLE)
    }

    /// The estimated wait of a place until its turn, if visitors enter.
    pub(super) fn wait_us(&self, place: LinePlace) -> Option<u64> {
        let (now_us, ahead) = (self.time.now_us(), self.ahead(place));
        let by_rate = || self.pace.next_us(now_us).saturating_add(self.pace.span_us(ahead, WHOLE));
        let wait_us = match self.mode {
            LineMode::Paused => return None,
            LineMode::Open => 0,
            LineMode::Metered => {
                let rank = place.rank(self.early);
                let calls_us = self.active.calls_after_us(rank, now_us, self.share.get());
                by_rate().max(self.active.room_after_us(ahead, now_us)).max(calls_us)
            }
        };
        Some(wait_us.saturating_add(if self.is_open { 0 } else { self.opens_after_us }))
    }
}
