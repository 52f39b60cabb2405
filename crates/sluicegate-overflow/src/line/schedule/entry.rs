//! The entry of a visitor into a line, and its turn.

use sluicegate_core::clock::micros;
use std::time::Duration;

use crate::line::places::PlaceState;
use crate::line::schedule::{HELD_US, Schedule};
use crate::line::{LineAsk, LineMode, LinePlace, LineTurn, NoPlace};

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
