//! The exact algorithm of a line: [`Schedule`]. Time is a parameter, and all numbers are whole.
//!
//! A *gate* moves along the ranks: a place is due when the gate has reached its rank, and then takes the next free turn of the [`TurnPace`].
//! The gate moves at the rate, and up to half as fast again while a turn is near that no visitor has taken. So the next second's visitors
//! are at the door, held for their turns, although up to a third of all visitors does not come.
//!
//! # When a visitor asks
//! It is told its wait at the rate as if all visitors before it come, and asks after two thirds of it. The gate is not faster than that, so no
//! visitor is called before it asks. So it goes on until its turn is two seconds away, and it comes for that.
//!
//! # When the gate goes back
//! A due visitor that finds no turn puts the gate back to its rank: visitors behind it were called too early, because nobody could ask for a
//! while, the clock stepped, or the rate was lowered. Ranks at which nobody waits any longer are skipped.
//!
//! # Source
//! The algorithm is our own. Turns are those of GCRA; a line that waits for each absent visitor in turn would lose the time of all visitors
//! that left. Tests compare it on random crowds with a slow model of the rules that knows every visitor.
//!
//! # State
//! A place takes 24 bytes; besides places only passes take memory, if they are bounded. Each poll takes a constant number of steps.

use std::time::Duration;

use sluicegate_core::ConfigError;
use sluicegate_core::clock::micros;

use crate::line::pace::TurnPace;
use crate::line::passes::PassList;
use crate::line::places::{PlaceList, PlaceState};
use crate::line::settings::LineTime;
use crate::line::{
    LineAnswer, LineAsk, LineChange, LineMode, LinePlace, LineSettings, LineStanding, LineStatus, LineTurn,
    NoPlace,
};

/// Appointments are whole seconds, because browsers know no fractions.
const SECOND_US: u64 = 1_000_000;

/// A turn that is at most this far away is given, and its visitor is held until then.
const HELD_US: u64 = 2_000_000;

/// The time before its turn at which a visitor should come.
const EARLY_US: u64 = 500_000;

/// A visitor whose turn is at most this far away is told to come for it.
const SOON_US: u64 = 2_000_000;

/// The interval at which a visitor asks in a pause.
const PAUSED_US: u64 = 60_000_000;

/// A visitor is missing when it has not asked for this time after its appointment.
const PATIENCE_US: u64 = 60_000_000;

/// The speed of the gate in hundredths of the rate while a turn is free now. It loses one for each of these spans until the next free turn,
/// and is the rate if that is a second away.
const FASTEST: u64 = 150;
const SLOWER_EACH_US: u64 = SECOND_US / (FASTEST - 100);

/// The number of ranks without a waiting visitor that the gate skips with one poll.
const SKIPPED: u64 = 16;

/// The gate goes back by the ranks of this time at most, or by as many as one poll skips: a visitor that comes late is no reason to call all
/// ranks behind it again.
const BACK_US: u64 = 5_000_000;

/// The number of passes that expire for each place of a sweep: 64 with each poll, so that no poll pays for a crowd.
const EXPIRED: u32 = 16;

/// The first number of visitors that enter without a place: far above all places, and below 2^53, so that a script counts exactly.
const WALK_INS: u64 = 1 << 52;

/// The state of a line.
#[derive(Debug)]
pub(super) struct Schedule {
    settings: LineSettings,
    mode: LineMode,
    pace: TurnPace,
    time: LineTime,
    is_open: bool,
    /// The number of places that were taken before the room opened.
    early: u64,
    /// Ranks up to it are due.
    gate: u64,
    /// The moment up to which the gate has moved.
    gate_at_us: u64,
    /// The number of visitors that entered without a place.
    walked_in: u64,
    places: PlaceList,
    passes: PassList,
    admitted: u64,
}

impl Schedule {
    /// A line without visitors; it is open if its opening time has passed by this clock.
    ///
    /// # Errors
    /// When the rate cannot be kept.
    pub(super) fn new(settings: LineSettings, clock_us: u64) -> Result<Self, ConfigError> {
        let time = LineTime::new(clock_us);
        let lasts_us = micros(settings.pass_lasts);
        Ok(Self {
            mode: LineMode::Metered,
            pace: TurnPace::new(settings.rate)?,
            is_open: settings.opens_at_us <= clock_us,
            early: 0,
            gate: 0,
            gate_at_us: time.now_us(),
            walked_in: 0,
            places: PlaceList::new(lasts_us),
            passes: PassList::new(settings.most_active, lasts_us),
            admitted: 0,
            time,
            settings,
        })
    }

    /// Answers one poll.
    pub(super) fn ask(&mut self, clock_us: u64, ask: LineAsk) -> LineAnswer {
        self.advance(clock_us, 4);
        self.time.asked();
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
        self.passes.end(place.number, place.lot, self.time.now_us());
    }

    /// Whether the pass of this place ended early.
    pub(super) fn has_ended(&self, place: LinePlace) -> bool {
        self.passes.has_ended(place.number, place.lot)
    }

    /// Sets other settings, except the rate.
    pub(super) fn set(&mut self, clock_us: u64, settings: LineSettings) {
        self.advance(clock_us, 4);
        let lasts_us = micros(settings.pass_lasts);
        self.passes.set(settings.most_active, lasts_us);
        self.places.set(lasts_us);
        self.settings = settings;
    }

    /// Sets another rate or mode: given turns stay, and visitors that sleep keep their places and appointments.
    ///
    /// # Errors
    /// For a rate that cannot be kept.
    pub(super) fn change(&mut self, clock_us: u64, change: LineChange) -> Result<(), ConfigError> {
        self.advance(clock_us, 4);
        let now_us = self.time.now_us();
        match change {
            LineChange::Rate(rate) => self.pace = self.pace.changed(rate, now_us)?,
            LineChange::Mode(mode) => {
                if self.mode == LineMode::Open && mode != self.mode {
                    self.passes.stand(self.gate, now_us);
                }
                self.mode = mode;
            }
        }
        Ok(())
    }

    /// The current numbers. It sweeps more places than a poll does, so that the numbers are right even if no visitor asks.
    pub(super) fn status(&mut self, clock_us: u64) -> LineStatus {
        self.advance(clock_us, 4_096);
        LineStatus {
            waiting: self.places.waiting(),
            active: self.passes.count(),
            admitted: self.admitted,
            passed_over: self.places.passed_over(),
            wait: self.wait_us(self.places.next_number()).map(Duration::from_micros),
            ..LineStatus::new(self.mode, self.pace.quota())
        }
    }

    /// Takes over the time of the clock: the room opens, passes expire, the gate moves, and up to `steps` places are swept.
    fn advance(&mut self, clock_us: u64, steps: u32) {
        self.time.advance(clock_us);
        let now_us = self.time.now_us();
        if !self.is_open && self.settings.opens_at_us <= clock_us {
            (self.is_open, self.gate_at_us) = (true, now_us);
        }
        self.passes.advance(now_us, steps.saturating_mul(EXPIRED));
        self.move_gate();
        let (early, gate, is_open_to_all) = (self.early, self.gate, self.mode == LineMode::Open);
        let is_due = |place: LinePlace| is_open_to_all || place.rank(early) < gate;
        self.places.sweep(&self.time, steps, is_due);
    }
}

/// The gate.
impl Schedule {
    /// Moves the gate by the time that has gone by.
    fn move_gate(&mut self) {
        let now_us = self.time.now_us();
        // Also without a bound on passes, because one may be set later.
        if self.passes.calls_nobody() {
            self.passes.stand(self.gate, now_us);
        }
        let moves = self.is_open && self.mode == LineMode::Metered && !self.passes.is_full();
        if moves {
            self.skip();
        }
        let last = self.places.next_number().min(self.passes.calls_below(now_us));
        if !moves || self.gate >= last {
            self.gate_at_us = now_us;
            return;
        }
        let speed = FASTEST - self.pace.next_us(now_us).min(SECOND_US) / SLOWER_EACH_US;
        let gone_us = now_us.saturating_sub(self.gate_at_us).saturating_mul(speed) / 100;
        let ranks = self.pace.ranks_in(gone_us).min(last.saturating_sub(self.gate));
        let used_us = self.pace.span_us(ranks).saturating_mul(100) / speed;
        self.gate = self.gate.saturating_add(ranks);
        self.gate_at_us = self.gate_at_us.saturating_add(used_us).min(now_us);
    }

    /// Skips ranks at which nobody waits. The number behind a rank by lot is not known.
    fn skip(&mut self) {
        for _ in 0..SKIPPED {
            if self.gate < self.early || !self.places.is_left(self.gate, &self.time) {
                break;
            }
            self.gate = self.gate.saturating_add(1);
            self.passes.skip(self.gate);
        }
    }

    /// Whether a rank may take a turn: the gate has passed it, or is there and no pass is kept for those before it.
    fn is_due(&self, rank: u64) -> bool {
        let is_next = rank == self.gate && rank < self.passes.calls_below(self.time.now_us());
        self.is_open && (rank < self.gate || is_next)
    }

    /// Moves the gate back to a due visitor that finds no turn.
    fn call_again(&mut self, rank: u64) {
        let most = self.pace.ranks_in(BACK_US).max(SKIPPED);
        let gate = rank.max(self.gate.saturating_sub(most));
        if gate < self.gate {
            (self.gate, self.gate_at_us) = (gate, self.time.now_us());
        }
    }
}

/// Places and their turns.
impl Schedule {
    /// Whether the line still knows the place of a ticket: it waits, was passed over, or had its turn within the last minute.
    fn knows(&self, place: LinePlace) -> bool {
        let is_due = place.rank(self.early) < self.gate;
        // A pass that was ended is not given again.
        !self.has_ended(place) && self.places.find(place, &self.time, is_due).is_some()
    }

    /// A new place, at the end.
    ///
    /// # Errors
    /// When the line is full, and then when the client has all of its places: both leave the line unchanged.
    fn enter(&mut self, ask: LineAsk) -> Result<LinePlace, NoPlace> {
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
    fn turn(&mut self, place: LinePlace) -> Option<LineTurn> {
        let now_us = self.time.now_us();
        let rank = place.rank(self.early);
        let stored = self.places.find(place, &self.time, rank < self.gate)?;
        if stored.state == PlaceState::Turned {
            let after = Duration::from_micros(stored.at_us.saturating_sub(now_us));
            let gone = Duration::from_micros(now_us.saturating_sub(stored.at_us));
            return Some(LineTurn::new(place, after, self.settings.pass_lasts.saturating_sub(gone)));
        }
        let after_us = match self.mode {
            LineMode::Paused => return None,
            LineMode::Open => 0,
            LineMode::Metered if !self.is_due(rank) => return None,
            LineMode::Metered if self.passes.is_full() || self.pace.next_us(now_us) > HELD_US => {
                self.call_again(rank);
                return None;
            }
            LineMode::Metered => {
                if rank == self.gate {
                    (self.gate, self.gate_at_us) = (self.gate.saturating_add(1), now_us);
                }
                self.pace.give(now_us)
            }
        };
        self.places.turn(place, now_us.saturating_add(after_us));
        Some(self.admit(place, after_us))
    }

    /// The turn of a visitor without a place while the room is open to all. No place is kept for it, so that such visitors take no memory,
    /// however many come.
    fn walk_in(&mut self, lot: u32) -> LineTurn {
        let place = LinePlace::new(WALK_INS.saturating_add(self.walked_in), lot);
        self.walked_in = self.walked_in.saturating_add(1);
        self.admit(place, 0)
    }

    /// Counts the turn, and its pass unless all passes are out: then the room is open to all, and passes above the bound are not kept.
    fn admit(&mut self, place: LinePlace, after_us: u64) -> LineTurn {
        if self.settings.most_active.is_some() && !self.passes.is_full() {
            let at_us = self.time.now_us().saturating_add(after_us);
            self.passes.give(place.number, at_us);
            self.time.appoint(at_us.saturating_add(micros(self.settings.pass_lasts)));
        }
        self.admitted = self.admitted.saturating_add(1);
        LineTurn::new(place, Duration::from_micros(after_us), self.settings.pass_lasts)
    }

    /// The standing of a place without a turn, and the time at which it asks again.
    fn standing(&mut self, place: LinePlace) -> LineStanding {
        let rank = place.rank(self.early);
        let wait_us = self.wait_us(rank);
        let after_us = wait_us.map_or(PAUSED_US, ask_after_us);
        self.time.appoint(self.time.now_us().saturating_add(after_us));
        let missed_us = self.time.patience_us().saturating_add(after_us).saturating_add(PATIENCE_US);
        self.places.expect(place, missed_us);
        let is_drawn = self.is_open || place.number >= self.early;
        LineStanding {
            position: is_drawn.then(|| self.ahead(rank).saturating_add(1)),
            wait: wait_us.map(Duration::from_micros),
            opens_after: (!self.is_open).then(|| Duration::from_micros(self.opens_after_us())),
            ..LineStanding::new(place, Duration::from_micros(after_us))
        }
    }

    /// The most visitors that may enter before this rank. Some of the ranks before it may have entered while the room was open to all.
    fn ahead(&self, rank: u64) -> u64 {
        rank.saturating_sub(self.gate).min(self.places.waiting())
    }

    /// The longest wait of a rank until its turn, if visitors enter: for the turns before it at the rate, and for passes.
    fn wait_us(&self, rank: u64) -> Option<u64> {
        let (now_us, ahead) = (self.time.now_us(), self.ahead(rank));
        let wait_us = match self.mode {
            LineMode::Paused => return None,
            LineMode::Open => 0,
            LineMode::Metered => {
                let turn_us = self.pace.next_us(now_us).saturating_add(self.pace.span_us(ahead));
                turn_us.max(self.passes.pass_after_us(rank, now_us))
            }
        };
        Some(wait_us.saturating_add(self.opens_after_us()))
    }

    /// The time until the room opens.
    fn opens_after_us(&self) -> u64 {
        if self.is_open { 0 } else { self.settings.opens_at_us.saturating_sub(self.time.clock_us()) }
    }
}

/// The time after which a visitor with this wait asks again: two thirds of it, or at its turn, and rather early than late, because an early
/// visitor is held.
fn ask_after_us(wait_us: u64) -> u64 {
    let turn_us = wait_us.saturating_sub(EARLY_US);
    let latest_us = (turn_us - turn_us % SECOND_US).max(SECOND_US);
    if turn_us <= SOON_US {
        return latest_us;
    }
    (turn_us / 3).saturating_mul(2).div_ceil(SECOND_US).saturating_mul(SECOND_US).min(latest_us)
}
