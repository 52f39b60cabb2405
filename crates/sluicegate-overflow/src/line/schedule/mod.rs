//! The exact algorithm of a line: [`Schedule`]. Time is a parameter, and all numbers are whole.
//!
//! A *gate* moves along the ranks. A place is due when the gate has passed its rank, and then takes the next free turn of the [`TurnPace`]. The
//! gate moves by the rate divided by the [`ArrivalShare`] that comes, and a little faster or slower, so that a second's worth of visitors is
//! always at the door, held for their turns: then no turn is lost because a visitor stays away.
//!
//! The gate goes back if waiting visitors were called in vain: while no visitor could ask ([`Silence`]), or because the rate was raised and
//! lowered again. It also goes back to a visitor that finds its turn given to others that were called long after it.
//!
//! # Source
//! The algorithm is our own. Turns are those of GCRA; the gate is a proportional controller around the measured share, because a line that
//! waits for each absent visitor in turn would lose the time of all visitors that left. Tests compare it on random crowds with a slow model
//! of the rules that knows every visitor.
//!
//! # State
//! A place takes 24 bytes; besides places only appointments and, if they are bounded, passes take memory. Each poll takes a constant
//! number of steps, plus the seconds that are searched for an appointment (at most 64) and the places of a sweep (four with each
//! poll).

mod entry;
mod gate;

use std::time::Duration;

use sluicegate_core::clock::micros;
use sluicegate_core::{ConfigError, Quota};

use super::active::{ArrivalShare, Silence};
use super::settings::LineTime;
use crate::line::active::Active;
use crate::line::calendar::PollCalendar;
use crate::line::pace::{TurnPace, WHOLE};
use crate::line::places::PlaceList;
use crate::line::{LineAnswer, LineAsk, LineChange, LineMode, LinePlace, LineSettings, LineStatus};

/// A turn that is at most this far away is given, and its visitor is held until then.
const HELD_US: u64 = 2_000_000;

/// Silence begins when no visitor asks for this time, nor while this many turns pass.
const SILENT_US: u64 = 2_000_000;
const SILENT_TURNS: u64 = 3;

/// The number of passes that expire for each place of a sweep: 64 with each poll, so that no poll pays for a crowd.
const EXPIRED: u32 = 16;

/// The state of a line.
#[derive(Debug)]
pub(super) struct Schedule {
    settings: LineSettings,
    mode: LineMode,
    pace: TurnPace,
    share: ArrivalShare,
    calendar: PollCalendar,
    time: LineTime,
    is_open: bool,
    /// The time until the room opens.
    opens_after_us: u64,
    /// The number of places that were taken before the room opened.
    early: u64,
    /// Ranks below it are due.
    gate: u64,
    /// The moment up to which the gate has moved.
    gate_at_us: u64,
    silence: Silence,
    /// Ranks below it are called again; visitors of some may have left.
    again_to: u64,
    /// Ranks below it were called before the gate went back to a visitor that was turned away: most of them have had their turns.
    back_to: u64,
    /// If the rate was raised: the gate at that moment, the end of the appointments made before, and the share that came then.
    raised: Option<(u64, u64, u64)>,
    /// Visitors of ranks below it could enter while the room was open to all.
    opened_to: u64,
    /// The number of visitors that entered without a place.
    walked_in: u64,
    places: PlaceList,
    active: Active,
    admitted: u64,
}

impl Schedule {
    /// A line without visitors; it is open if its opening time has passed by this clock.
    ///
    /// # Errors
    /// When the rate cannot be kept.
    pub(super) fn new(settings: LineSettings, clock_us: u64) -> Result<Self, ConfigError> {
        let pace = TurnPace::new(settings.rate)?;
        let time = LineTime::new(clock_us);
        Ok(Self {
            mode: LineMode::Metered,
            share: ArrivalShare::new(0, pace.turns_in(1)),
            calendar: PollCalendar::new(&pace),
            is_open: settings.opens_at_us <= clock_us,
            opens_after_us: settings.opens_at_us.saturating_sub(clock_us),
            early: 0,
            gate: 0,
            gate_at_us: time.now_us(),
            silence: Silence::new(time.now_us()),
            again_to: 0,
            back_to: 0,
            raised: None,
            opened_to: 0,
            walked_in: 0,
            places: PlaceList::new(micros(settings.pass_lasts)),
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

    /// Answers one poll.
    pub(super) fn ask(&mut self, clock_us: u64, ask: LineAsk) -> LineAnswer {
        self.advance(clock_us, 4);
        let (now_us, usual_us) = (self.time.now_us(), self.pace.span_us(SILENT_TURNS, WHOLE).max(SILENT_US));
        self.silence.broken(now_us, self.gate, usual_us);
        self.time.asked();
        let answer = self.answer(ask);
        self.silence.asked(now_us, self.gate, self.share.get());
        answer
    }

    /// The answer at the line's current time: a new place if the ask has no known one and the room is not open to all, then its turn or its
    /// standing.
    fn answer(&mut self, ask: LineAsk) -> LineAnswer {
        let place = match ask.place.filter(|place| self.knows(*place)) {
            Some(place) => place,
            None if self.mode == LineMode::Open => return LineAnswer::Turn(self.walk_in(ask.lot)),
            None => match self.enter(ask) {
                Ok(place) => place,
                Err(none) => return LineAnswer::NoPlace(none),
            },
        };
        match self.turn(place) {
            Some(turn) => LineAnswer::Turn(turn),
            None => LineAnswer::Waiting(self.standing(place)),
        }
    }

    /// Ends the pass of this place now, and frees its room.
    pub(super) fn end(&mut self, clock_us: u64, place: LinePlace) {
        self.advance(clock_us, 4);
        self.active.end(place.number, place.lot, self.time.now_us());
    }

    /// Whether the pass of this place ended early.
    pub(super) fn has_ended(&self, place: LinePlace) -> bool {
        self.active.has_ended(place.number, place.lot)
    }

    /// Sets other settings, except the rate.
    pub(super) fn set(&mut self, clock_us: u64, settings: LineSettings) {
        self.advance(clock_us, 4);
        let lasts_us = micros(settings.pass_lasts);
        self.active.set(settings.most_active, lasts_us);
        self.places.set(lasts_us);
        self.settings = settings;
    }

    /// # Errors
    /// For a rate that cannot be kept.
    pub(super) fn change(&mut self, clock_us: u64, change: LineChange) -> Result<(), ConfigError> {
        self.advance(clock_us, 4);
        match change {
            LineChange::Rate(rate) => self.change_rate(rate)?,
            LineChange::Mode(mode) if mode == self.mode => {}
            LineChange::Mode(mode) => {
                if self.mode == LineMode::Open {
                    // Visitors that slept meanwhile keep their places.
                    self.opened_to = self.places.next_number();
                    self.again_to = self.opened_to;
                    self.active.stands(self.gate, self.time.now_us());
                }
                self.mode = mode;
            }
        }
        Ok(())
    }

    /// Sets another rate: given turns stay, the measured share stays, and appointments begin anew.
    ///
    /// After the rate was raised, visitors sleep until their appointments under the slower rate. They are called meanwhile and come late, so the
    /// position of the gate at that moment is kept: if the rate is lowered again by half or more, the gate goes back there.
    fn change_rate(&mut self, rate: Quota) -> Result<(), ConfigError> {
        let now_us = self.time.now_us();
        let before_us = self.pace.span_us(WHOLE, WHOLE);
        self.pace = self.pace.changed(rate, now_us)?;
        self.raised = self.raised.filter(|(_, until_us, _)| now_us < *until_us);
        let after_us = self.pace.span_us(WHOLE, WHOLE);
        if after_us < before_us {
            // Visitors that sleep longer than their wait at this rate are called, and come later.
            let (from, until_us, share) = self.raised.unwrap_or_else(|| (self.gate, 0, self.share.get()));
            self.raised = Some((from, until_us.max(self.time.last_appointment_us()), share));
        } else if after_us / 2 >= before_us
            && let Some((from, _, share)) = self.raised
        {
            // More visitors are due than this rate lets in.
            self.call_again(from, share);
        }
        self.share = self.share.changed(self.gate, self.pace.turns_in(1));
        self.calendar = PollCalendar::new(&self.pace);
        Ok(())
    }

    /// The current numbers. It sweeps more places than a poll does, so that the numbers are right even if no visitor asks.
    pub(super) fn status(&mut self, clock_us: u64) -> LineStatus {
        self.advance(clock_us, 4_096);
        let next = LinePlace::new(self.places.next_number(), u32::MAX);
        LineStatus {
            waiting: self.places.waiting(),
            active: self.active.count(),
            admitted: self.admitted,
            passed_over: self.places.passed_over(),
            wait: self.wait_us(next).map(Duration::from_micros),
            ..LineStatus::new(self.mode, self.pace.quota())
        }
    }

    /// Takes over the time of the clock.
    ///
    /// In this order: the line's time advances, the room opens, passes expire, the gate moves, and up to `steps` places are swept.
    fn advance(&mut self, clock_us: u64, steps: u32) {
        let step_us = self.time.advance(clock_us);
        let now_us = self.time.now_us();
        if !self.is_open {
            self.opens_after_us = self.settings.opens_at_us.saturating_sub(clock_us);
            self.is_open = self.opens_after_us == 0;
            let since_us = clock_us.saturating_sub(self.settings.opens_at_us).min(step_us);
            self.gate_at_us = now_us.saturating_sub(since_us);
        }
        self.active.advance(now_us, steps.saturating_mul(EXPIRED));
        self.move_gate();
        let (early, gate, is_open_to_all) = (self.early, self.gate, self.mode == LineMode::Open);
        let is_due = |place: LinePlace| is_open_to_all || place.rank(early) < gate;
        self.places.sweep(&self.time, steps, is_due);
    }
}
