//! The entry of a visitor into a line, and its turn.

use sluicegate_core::clock::micros;
use std::time::Duration;

use crate::line::places::PlaceState;
use crate::line::schedule::{HELD_US, Schedule};
use crate::line::{LineAsk, LineMode, LinePlace, LineTurn, NoPlace};

impl Schedule {
    /// Whether the line still knows the place of a ticket: it waits, was passed over, or had its turn within the last minute.
    pub(super) fn knows(&self, place: LinePlace) -> bool {
        let is_due = place.rank(self.early) < self.gate;
        // A pass that was ended is not given again.
        !self.has_ended(place) && self.places.find(place, &self.time, is_due).is_some()
    }

    /// A new place, at the end.
    ///
    /// No bound applies while the room is open to all, because a visitor that takes a place leaves it at once.
    ///
    /// # Errors
    /// When the line is full, and then when the client has all of its places: both leave the line unchanged.
    pub(super) fn enter(&mut self, ask: LineAsk) -> Result<LinePlace, NoPlace> {
        let of_client =
            ask.client.map(|client| client.max(1)).filter(|_| self.settings.places_per_client.is_some());
        if self.mode != LineMode::Open {
            if self.places.waiting() >= self.settings.longest_line {
                return Err(NoPlace::Full);
            }
            if let (Some(client), Some(most)) = (of_client, self.settings.places_per_client)
                && self.places.of_client(client) >= most
            {
                return Err(NoPlace::TooMany);
            }
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
        let at_us = now_us.saturating_add(after_us);
        self.places.turn(place, at_us);
        if self.settings.most_active.is_some() {
            self.active.give(place.number, at_us);
            self.time.appoint(at_us.saturating_add(lasts_us));
        }
        self.admitted = self.admitted.saturating_add(1);
        Some(LineTurn::new(place, Duration::from_micros(after_us), self.settings.pass_lasts))
    }
}
