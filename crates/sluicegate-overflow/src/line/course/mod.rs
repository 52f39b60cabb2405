//! The exact algorithm of a line: [`Course`]. Time is a parameter, and all numbers are whole.
//!
//! A *gate* moves along the ranks. A place is due when the gate has passed its rank, and then takes the next free turn of the
//! [`Pace`]. The gate moves by the rate divided by the [`Share`] that comes, and a little faster or slower, so that a second's worth of visitors
//! is always at the door, held for their turns: then no turn is lost because a visitor stays away.
//!
//! The gate goes back where visitors that wait were called in vain: while nobody could ask ([`Silence`]), or because the rate was raised
//! and lowered again. It goes back as well to one that finds the turns given to others that were called long after it.
//!
//! # Source
//! It is an algorithm of our own. Turns are those of GCRA; the gate is a proportional controller around the measured share, since a line
//! that waits for each absent visitor in turn would lose the time of all who left. A slow model of the rules in the tests, which
//! knows every visitor, is compared with it on random crowds.
//!
//! # State
//! 24 bytes a place; beside them only appointments and, where passes are bounded, passes take room. Each question takes a constant
//! number of steps, but for the seconds that an appointment looks at (64 at most) and the places that a sweep passes (four with
//! each poll).

mod entry;
mod gate;
mod standing;

use std::time::Duration;

use sluicegate_core::{ConfigError, Quota};

use crate::line::active::Active;
use crate::line::book::Book;
use crate::line::calendar::Calendar;
use crate::line::pace::{Pace, WHOLE, micros};
use crate::line::share::Share;
use crate::line::silence::Silence;
use crate::line::time::Time;
use crate::line::{Answer, Ask, Change, LineSettings, LineStatus, Mode, Place};

/// A turn that is at most so far away is given, and its visitor is held until then.
const HELD_US: u64 = 2_000_000;

/// Silence: nobody asks for this time, nor while this many turns pass.
const SILENT_US: u64 = 2_000_000;
const SILENT_TURNS: u64 = 3;

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
    silence: Silence,
    /// Ranks below it are called again, and some of them may be left.
    again_to: u64,
    /// Ranks below it were called before the gate went back to one that was turned away: most of them have had their turns.
    back_to: u64,
    /// Where the gate was when the rate was raised, until when visitors come by the appointments of before, and the share that came then.
    raised: Option<(u64, u64, u64)>,
    /// The numbers that were given while the room was open to all, from and to: nobody waits there.
    free: (u64, u64),
    book: Book,
    active: Active,
    admitted: u64,
}

impl Course {
    /// A line in which nobody is, open if its time has come by this clock.
    ///
    /// # Errors
    /// For a rate that cannot be kept.
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
            silence: Silence::new(time.now_us()),
            again_to: 0,
            back_to: 0,
            raised: None,
            free: (0, 0),
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
        let (now_us, usual_us) = (self.time.now_us(), self.pace.span_us(SILENT_TURNS, WHOLE).max(SILENT_US));
        self.silence.broken(now_us, self.gate, usual_us);
        self.time.asked();
        let answer = self.answer(ask);
        self.silence.asked(now_us, self.gate, self.share.get());
        answer
    }

    /// The answer at the time that was set: a place first, if the ask has none that is known, and then its turn or its standing.
    fn answer(&mut self, ask: Ask) -> Answer {
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

    /// The pass of this place ends now, and its room is free.
    pub(super) fn end(&mut self, clock_us: u64, place: Place) {
        self.advance(clock_us, 4);
        self.active.end(place.number, place.lot, self.time.now_us());
    }

    /// Whether the pass of this place ended before its time.
    pub(super) fn has_ended(&self, place: Place) -> bool {
        self.active.has_ended(place.number, place.lot)
    }

    /// Other settings from now on, but for the rate.
    pub(super) fn set(&mut self, clock_us: u64, settings: LineSettings) {
        self.advance(clock_us, 4);
        let lasts_us = micros(settings.pass_lasts);
        self.active.set(settings.most_active, lasts_us);
        self.book.set(lasts_us);
        self.settings = settings;
    }

    /// # Errors
    /// For a rate that cannot be kept.
    pub(super) fn change(&mut self, clock_us: u64, change: Change) -> Result<(), ConfigError> {
        self.advance(clock_us, 4);
        match change {
            Change::Rate(rate) => self.change_rate(rate)?,
            Change::Mode(mode) if mode == self.mode => {}
            Change::Mode(mode) => {
                if mode == Mode::Open && self.gate >= self.free.1 {
                    self.free = (self.book.next_number(), 0);
                }
                if self.mode == Mode::Open {
                    // Those that were asleep meanwhile keep their places.
                    self.free.1 = self.book.next_number();
                    self.again_to = self.free.1;
                    self.active.stands(self.gate, self.time.now_us());
                }
                self.mode = mode;
            }
        }
        Ok(())
    }

    /// Another rate: turns that are given stay, the share that was measured stays, and appointments begin anew.
    ///
    /// Visitors sleep by the appointments of the slower rate after it was raised. They are called meanwhile and come late, so that the
    /// place of the gate at that moment is kept: if the rate is lowered again by half or more, the gate goes back there.
    fn change_rate(&mut self, rate: Quota) -> Result<(), ConfigError> {
        let now_us = self.time.now_us();
        let before_us = self.pace.span_us(WHOLE, WHOLE);
        self.pace = self.pace.changed(rate, now_us)?;
        self.raised = self.raised.filter(|(_, until_us, _)| now_us < *until_us);
        let after_us = self.pace.span_us(WHOLE, WHOLE);
        if after_us < before_us {
            // Those that sleep longer than it is to their turn at this rate are called, and come later.
            let (from, until_us, share) = self.raised.unwrap_or_else(|| (self.gate, 0, self.share.get()));
            self.raised = Some((from, until_us.max(self.time.last_appointment_us()), share));
        } else if after_us / 2 >= before_us
            && let Some((from, _, share)) = self.raised
        {
            // Of those more are due than this rate lets in.
            self.call_again(from, share);
        }
        self.share = self.share.changed(self.gate, self.pace.turns_in(1));
        self.calendar = Calendar::new(&self.pace);
        Ok(())
    }

    /// The numbers of now. It sweeps more places than a poll does, so that they are right where nobody asks.
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
    ///
    /// In this order: the line's time goes on, the room opens, passes expire, the gate moves, and places are swept, as many as `steps`.
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
        self.book.sweep(&self.time, steps, is_due);
    }
}
