//! The entry of a visitor into a line, its standing, its turn, and the time at which it asks again.
//!
//! # How a wait is estimated
//! The ranks between the gate and a visitor's own rank are before it; only a share of them comes. The wait is the longest of three spans: the
//! turns of these visitors at the rate, the end of as many passes if their number is bounded, and the calls by free passes. Each is a
//! whole number of microseconds, rounded up; before the room opens the time until then is added.

use std::time::Duration;

use sluicegate_core::clock::micros;

use crate::line::pace::WHOLE;
use crate::line::places::PlaceState;
use crate::line::schedule::{HELD_US, Schedule};
use crate::line::{LineAsk, LineMode, LinePlace, LineStanding, LineTurn, NoPlace};

/// The first number of visitors that enter without a place: far above all places, and below 2^53, so that a script counts exactly.
const WALK_INS: u64 = 1 << 52;

impl Schedule {
    /// Whether the line still knows the place of a ticket: it waits, was passed over, or had its turn within the last minute.
    pub(super) fn knows(&self, place: LinePlace) -> bool {
        let is_due = place.rank(self.early) < self.gate;
        // A pass that was ended is not given again.
        !self.has_ended(place) && self.places.find(place, &self.time, is_due).is_some()
    }

    /// A new place, at the end.
    ///
    /// # Errors
    /// When the line is full, and then when the client has all of its places: both leave the line unchanged.
    pub(super) fn enter(&mut self, ask: LineAsk) -> Result<LinePlace, NoPlace> {
        let of_client =
            ask.client.map(|client| client.max(1)).filter(|_| self.settings.places_per_client.is_some());
        if self.places.waiting() >= self.settings.longest_line {
            return Err(NoPlace::Full);
        }
        if let (Some(client), Some(most)) = (of_client, self.settings.places_per_client)
            && self.places.of_client(client) >= most
        {
            return Err(NoPlace::TooMany);
        }
        let place = self.places.add(ask.lot, of_client);
        if !self.is_open {
            self.early = place.number.saturating_add(1);
        }
        Ok(place)
    }

    /// The turn of a place, if it has one.
    ///
    /// A place gets its turn again for a minute, with a pass that ends when the first one would have ended. A turn that is further away than a
    /// visitor may be held is not given: the visitor is told to come again.
    pub(super) fn turn(&mut self, place: LinePlace) -> Option<LineTurn> {
        let now_us = self.time.now_us();
        let rank = place.rank(self.early);
        let held = self.places.find(place, &self.time, rank < self.gate)?;
        let lasts_us = micros(self.settings.pass_lasts);
        if held.is == PlaceState::Turned {
            let after = Duration::from_micros(held.at_us.saturating_sub(now_us));
            let gone_us = now_us.saturating_sub(held.at_us);
            return Some(LineTurn::new(
                place,
                after,
                Duration::from_micros(lasts_us.saturating_sub(gone_us)),
            ));
        }
        let after_us = match self.mode {
            LineMode::Paused => return None,
            LineMode::Open => 0,
            LineMode::Metered => {
                if self.silence.has(rank, now_us) {
                    self.call_again(rank, self.silence.share_before());
                }
                let may = self.is_open && self.is_due(place) && !self.active.is_full();
                if !may {
                    return None;
                }
                if self.pace.next_us(now_us) > HELD_US {
                    self.turned_away(rank);
                    return None;
                }
                self.share.came(rank);
                if rank == self.gate {
                    self.gate = self.gate.saturating_add(1);
                    self.gate_at_us = now_us;
                }
                self.pace.give(now_us)
            }
        };
        self.places.turn(place, now_us.saturating_add(after_us));
        Some(self.admit(place, after_us))
    }

    /// The turn of a visitor without a place while the room is open to all. No place is kept for it, so that such visitors take no memory,
    /// however many come.
    pub(super) fn walk_in(&mut self, lot: u32) -> LineTurn {
        let place = LinePlace::new(WALK_INS.saturating_add(self.walked_in), lot);
        self.walked_in = self.walked_in.saturating_add(1);
        self.admit(place, 0)
    }

    /// Counts the turn, and its pass unless all passes are out: then the room is open to all, and passes above the bound are not kept.
    fn admit(&mut self, place: LinePlace, after_us: u64) -> LineTurn {
        if self.settings.most_active.is_some() && !self.active.is_full() {
            let at_us = self.time.now_us().saturating_add(after_us);
            self.active.give(place.number, at_us);
            self.time.appoint(at_us.saturating_add(micros(self.settings.pass_lasts)));
        }
        self.admitted = self.admitted.saturating_add(1);
        LineTurn::new(place, Duration::from_micros(after_us), self.settings.pass_lasts)
    }
}

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
