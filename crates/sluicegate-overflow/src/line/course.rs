//! The exact algorithm of a line: [`Course`]. Time is a parameter, and all numbers are whole.
//!
//! A *gate* moves along the ranks. A place is due when the gate has passed its rank, and then takes the next free turn of the
//! [`Pace`]. The gate moves by the rate divided by the [`Share`] that comes, and a little faster or slower, so that a second's worth of visitors
//! is always at the door, held for their turns: then no turn is lost because a visitor stays away.

use std::time::Duration;

use sluicegate_core::ConfigError;

use crate::line::active::Active;
use crate::line::book::{Book, Is};
use crate::line::calendar::Calendar;
use crate::line::pace::{Pace, WHOLE, micros};
use crate::line::share::Share;
use crate::line::time::Time;
use crate::line::{Answer, Ask, Change, LineSettings, LineStatus, Mode, NoPlace, Place, Standing, Turn};

/// A turn that is at most so far away is given, and its visitor is held until then.
const HELD_US: u64 = 2_000_000;

/// How much of the next time shall be given to visitors that are held.
const TARGET_US: u64 = 1_000_000;

/// So long before the gate comes to its rank, a visitor that asks is due: appointments are whole seconds, so that it is early.
const SLACK_US: u64 = 350_000;

/// So long before its turn a visitor shall come.
const EARLY_US: u64 = 500_000;

/// A visitor that has not asked for twice its interval, and at least so long, is passed over.
const PATIENCE_US: u64 = 60_000_000;

/// A visitor whose wait is at most this is told to come at its turn.
const SOON_US: u64 = 2_000_000;

/// Appointments are whole seconds, because browsers know no others.
const SECOND_US: u64 = 1_000_000;

/// How often a visitor asks whose wait is not known.
const UNKNOWN_US: u64 = 30_000_000;

/// A line at one moment.
#[derive(Debug)]
pub(super) struct Course {
    settings: LineSettings,
    mode: Mode,
    pace: Pace,
    share: Share,
    calendar: Calendar,
    time: Time,
    is_open: bool,
    /// How far away the opening is.
    opens_after_us: u64,
    /// How many places were taken before the room opened.
    early: u64,
    /// Ranks below it are due.
    gate: u64,
    /// Up to when the gate has moved.
    gate_at_us: u64,
    book: Book,
    active: Active,
    admitted: u64,
}

impl Course {
    pub(super) fn new(settings: LineSettings, clock_us: u64) -> Result<Self, ConfigError> {
        let pace = Pace::new(settings.rate)?;
        let time = Time::new(clock_us);
        Ok(Self {
            mode: Mode::Metered,
            share: Share::new(0, pace.turns_in(1)),
            calendar: Calendar::new(&pace),
            is_open: settings.opens_at_us <= clock_us,
            opens_after_us: settings.opens_at_us.saturating_sub(clock_us),
            early: 0,
            gate: 0,
            gate_at_us: time.now_us(),
            book: Book::new(micros(settings.pass_lasts)),
            active: Active::new(settings.most_active, micros(settings.pass_lasts)),
            admitted: 0,
            pace,
            time,
            settings,
        })
    }

    #[cfg(test)]
    pub(super) fn share_now(&self) -> u64 {
        self.share.get()
    }

    /// One poll.
    pub(super) fn ask(&mut self, clock_us: u64, ask: Ask) -> Answer {
        self.advance(clock_us, 4);
        let place = match ask.place.filter(|place| self.knows(*place)) {
            Some(place) => place,
            None => match self.enter(ask) {
                Ok(place) => place,
                Err(none) => return Answer::NoPlace(none),
            },
        };
        match self.turn(place) {
            Some(turn) => Answer::Turn(turn),
            None => Answer::Waiting(self.standing(place)),
        }
    }

    pub(super) fn end(&mut self, clock_us: u64, place: Place) {
        self.advance(clock_us, 4);
        self.active.end(place.number, place.lot, self.time.now_us());
    }

    pub(super) fn has_ended(&self, place: Place) -> bool {
        self.active.has_ended(place.number, place.lot)
    }

    /// # Errors
    /// For a rate that cannot be kept.
    pub(super) fn change(&mut self, clock_us: u64, change: Change) -> Result<(), ConfigError> {
        self.advance(clock_us, 4);
        match change {
            Change::Rate(rate) => {
                self.pace = self.pace.changed(rate, self.time.now_us())?;
                self.share = self.share.changed(self.gate, self.pace.turns_in(1));
                self.calendar = Calendar::new(&self.pace);
            }
            Change::Mode(mode) => {
                if self.mode == Mode::Open {
                    // All that are in line were free to enter, so that those that still wait are due.
                    self.gate = self.book.next_number();
                    self.share = self.share.changed(self.gate, self.pace.turns_in(1));
                }
                self.mode = mode;
            }
        }
        Ok(())
    }

    pub(super) fn status(&mut self, clock_us: u64) -> LineStatus {
        self.advance(clock_us, 4_096);
        let next = Place::new(self.book.next_number(), u32::MAX);
        LineStatus {
            waiting: self.book.waiting(),
            active: self.active.count(),
            admitted: self.admitted,
            passed_over: self.book.passed_over(),
            wait: self.wait_us(next).map(Duration::from_micros),
            ..LineStatus::new(self.mode, self.pace.quota())
        }
    }

    /// The clock shows this now.
    fn advance(&mut self, clock_us: u64, steps: u32) {
        let step_us = self.time.advance(clock_us);
        let now_us = self.time.now_us();
        if !self.is_open {
            self.opens_after_us = self.settings.opens_at_us.saturating_sub(clock_us);
            self.is_open = self.opens_after_us == 0;
            let since_us = clock_us.saturating_sub(self.settings.opens_at_us).min(step_us);
            self.gate_at_us = now_us.saturating_sub(since_us);
        }
        self.active.advance(now_us);
        self.move_gate();
        let (early, gate, is_open_to_all) = (self.early, self.gate, self.mode == Mode::Open);
        let is_due = |place: Place| is_open_to_all || place.rank(early) < gate;
        self.book.sweep(now_us, steps, is_due);
    }

    /// Moves the gate by the time that has gone by.
    fn move_gate(&mut self) {
        let (now_us, last) = (self.time.now_us(), self.book.next_number());
        let held_us = self.pace.held_us(now_us);
        let stands = !self.is_open
            || self.mode != Mode::Metered
            || self.gate >= last
            || held_us >= HELD_US
            || self.active.is_full();
        if stands {
            self.gate_at_us = now_us;
            return;
        }
        // In 1024ths: up to an eighth faster if nobody is held, and up to an eighth slower if all that may be are. Turns that are far
        // apart are given when they are due, to the next visitor.
        let speed = if self.pace.span_us(1, WHOLE) > TARGET_US / 4 {
            WHOLE
        } else {
            (WHOLE + WHOLE / 8).saturating_sub(held_us.saturating_mul(WHOLE / 8) / TARGET_US)
        };
        let gone_us = now_us.saturating_sub(self.gate_at_us).saturating_mul(speed) / WHOLE;
        let ranks = self.pace.ranks_in(gone_us, self.share.get()).min(last.saturating_sub(self.gate));
        let used_us = self.pace.span_us(ranks, self.share.get()).saturating_mul(WHOLE) / speed;
        self.gate = self.gate.saturating_add(ranks);
        self.gate_at_us = self.gate_at_us.saturating_add(used_us).min(now_us);
        self.share.called(self.gate);
    }

    fn is_due(&self, place: Place) -> bool {
        let rank = place.rank(self.early);
        // Nobody is before the rank at the gate, so that it need not wait for the gate.
        let ranks = rank.saturating_sub(self.gate);
        let gone_us = self.time.now_us().saturating_sub(self.gate_at_us);
        ranks == 0
            || self.pace.span_us(ranks.saturating_add(1), self.share.get())
                <= gone_us.saturating_add(SLACK_US)
    }

    fn knows(&self, place: Place) -> bool {
        let is_due = place.rank(self.early) < self.gate;
        // A pass that was ended is not given again.
        !self.has_ended(place) && self.book.find(place, self.time.now_us(), is_due).is_some()
    }

    /// A new place, at the end.
    fn enter(&mut self, ask: Ask) -> Result<Place, NoPlace> {
        let of_client =
            ask.client.map(|client| client.max(1)).filter(|_| self.settings.places_per_client.is_some());
        if self.mode != Mode::Open {
            if self.book.waiting() >= self.settings.longest_line {
                return Err(NoPlace::Full);
            }
            if of_client.map(|client| self.book.of_client(client)) >= self.settings.places_per_client
                && of_client.is_some()
            {
                return Err(NoPlace::TooMany);
            }
        }
        let place = self.book.add(ask.lot, of_client);
        if !self.is_open {
            self.early = place.number.saturating_add(1);
        }
        Ok(place)
    }

    /// The turn of a place, if it has one.
    fn turn(&mut self, place: Place) -> Option<Turn> {
        let now_us = self.time.now_us();
        let rank = place.rank(self.early);
        let held = self.book.find(place, now_us, rank < self.gate)?;
        let lasts_us = micros(self.settings.pass_lasts);
        if held.is == Is::Turned {
            let after = Duration::from_micros(held.at_us.saturating_sub(now_us));
            let gone_us = now_us.saturating_sub(held.at_us);
            return Some(Turn::new(place, after, Duration::from_micros(lasts_us.saturating_sub(gone_us))));
        }
        let after_us = match self.mode {
            Mode::Paused => return None,
            Mode::Open => 0,
            Mode::Metered => {
                let may = self.is_open && self.is_due(place) && !self.active.is_full();
                if !may || self.pace.next_us(now_us) > HELD_US {
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
        self.book.turn(place, at_us);
        if self.settings.most_active.is_some() {
            self.active.give(place.number, at_us);
            self.time.appoint(at_us.saturating_add(lasts_us));
        }
        self.admitted = self.admitted.saturating_add(1);
        Some(Turn::new(place, Duration::from_micros(after_us), self.settings.pass_lasts))
    }

    /// Where a place stands that has no turn, and when to ask again.
    fn standing(&mut self, place: Place) -> Standing {
        let now_us = self.time.now_us();
        let wait_us = self.wait_us(place);
        let after_us = match wait_us {
            None => self.half_way(now_us, 2 * UNKNOWN_US).unwrap_or(2 * UNKNOWN_US),
            Some(wait_us) => {
                let turn_us = wait_us.saturating_sub(EARLY_US);
                let half_us = if turn_us > SOON_US { self.half_way(now_us, turn_us) } else { None };
                // Early rather than late: it is held then.
                half_us.unwrap_or_else(|| (turn_us - turn_us % SECOND_US).max(SECOND_US))
            }
        };
        self.time.appoint(now_us.saturating_add(after_us));
        self.book.expect(place, now_us.saturating_add(after_us.saturating_mul(2).max(PATIENCE_US)));
        let is_drawn = self.is_open || place.number >= self.early;
        Standing {
            position: is_drawn.then(|| self.ahead(place).saturating_add(1)),
            wait: wait_us.map(Duration::from_micros),
            opens_after: (!self.is_open).then(|| Duration::from_micros(self.opens_after_us)),
            ..Standing::new(place, Duration::from_micros(after_us))
        }
    }

    /// The appointment about half way to the turn, if there is room for it.
    fn half_way(&mut self, now_us: u64, turn_us: u64) -> Option<u64> {
        let half_us = (turn_us / 2).div_ceil(SECOND_US).saturating_mul(SECOND_US);
        let latest_us = now_us.saturating_add(turn_us - turn_us / 8);
        let at_us = self.calendar.book(now_us, now_us.saturating_add(half_us), latest_us)?;
        Some(at_us.saturating_sub(now_us))
    }

    /// How many will come before this place.
    fn ahead(&self, place: Place) -> u64 {
        let ranks = place.rank(self.early).saturating_sub(self.gate);
        ranks.saturating_mul(self.share.get()).div_ceil(WHOLE)
    }

    /// The estimated wait of a place until its turn, if visitors enter.
    fn wait_us(&self, place: Place) -> Option<u64> {
        let (now_us, ahead) = (self.time.now_us(), self.ahead(place));
        let by_rate = || self.pace.next_us(now_us).saturating_add(self.pace.span_us(ahead, WHOLE));
        let wait_us = match self.mode {
            Mode::Paused => return None,
            Mode::Open => 0,
            Mode::Metered => by_rate().max(self.active.room_after_us(ahead, now_us)),
        };
        Some(wait_us.saturating_add(if self.is_open { 0 } else { self.opens_after_us }))
    }
}
