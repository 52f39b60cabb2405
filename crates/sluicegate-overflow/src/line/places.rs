//! The places of a line: [`PlaceList`].
//!
//! # States of a place
//! ```text
//! waiting --its turn--> turned --kept a minute--> forgotten
//!    |  ^
//!    |  asks again
//!    v  |
//! passed over --kept ten minutes--> forgotten
//! ```
//!
//! A place is passed over when it is due and its visitor is missing. Each poll sweeps a few of the oldest places to find such places,
//! so that no poll pays for a crowd. A place is found directly by its number, because numbers are given in order, and the list begins at the
//! first number that is kept.
//!
//! # Memory
//! A place takes 24 bytes, in every state. Places are removed only from the front, so one that waits long keeps all places behind it. A
//! list that is three quarters empty shrinks.

use std::collections::{HashMap, VecDeque};

use foldhash::quality::RandomState;

use super::settings::LineTime;
use crate::line::LinePlace;

/// The time for which a given turn is given again for the same place.
pub(super) const AGAIN_US: u64 = 60_000_000;

/// The time for which a place that was passed over is kept.
const KEPT_US: u64 = 600_000_000;

/// All places by their numbers: 24 bytes each, without the room that a growing list keeps.
#[derive(Debug)]
pub(super) struct PlaceList {
    /// The time for which a turn is given again: no longer than its pass is valid.
    again_us: u64,
    /// The number of the first place that is kept.
    first: u64,
    places: VecDeque<StoredPlace>,
    /// All places with lower numbers had their turn or were passed over.
    swept: u64,
    waiting: u64,
    passed_over: u64,
    /// The number of waiting places of each client; only if it is bounded.
    clients: HashMap<u64, u64, RandomState>,
}

/// A place as it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredPlace {
    lot: u32,
    pub(super) state: PlaceState,
    /// The moment of the turn, or the moment from which the visitor is missing.
    pub(super) at_us: u64,
    /// The client; 0 if places of clients are not counted.
    client: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceState {
    Waiting,
    PassedOver,
    Turned,
}

impl StoredPlace {
    /// The time since its turn, or the time for which its visitor has been missing.
    fn age_us(&self, time: &LineTime) -> u64 {
        let now_us = if self.state == PlaceState::Turned { time.now_us() } else { time.patience_us() };
        now_us.saturating_sub(self.at_us)
    }

    /// The time after that for which it is kept.
    fn kept_us(&self, again_us: u64) -> u64 {
        match self.state {
            PlaceState::Turned => again_us,
            PlaceState::Waiting | PlaceState::PassedOver => KEPT_US,
        }
    }
}

impl PlaceList {
    /// An empty list, for passes of this length.
    pub(super) fn new(pass_lasts_us: u64) -> Self {
        Self {
            again_us: pass_lasts_us.min(AGAIN_US),
            first: 0,
            places: VecDeque::new(),
            swept: 0,
            waiting: 0,
            passed_over: 0,
            clients: HashMap::default(),
        }
    }

    /// Sets another length of passes.
    pub(super) fn set(&mut self, pass_lasts_us: u64) {
        self.again_us = pass_lasts_us.min(AGAIN_US);
    }

    /// The number that the next new place will have.
    pub(super) fn next_number(&self) -> u64 {
        self.first.saturating_add(self.places.len() as u64)
    }

    /// The number of places that wait and were not passed over.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The number of places that were passed over since the line began; a place that came back and was passed over again counts twice.
    pub(super) fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// The number of waiting places of this client.
    pub(super) fn of_client(&self, client: u64) -> u64 {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    /// Adds a place at the end, whose visitor cannot be missing before it was told when to ask.
    ///
    /// The client 0 stands for none, so a digest of 0 is taken as 1: two clients in 2^64 would count as one.
    pub(super) fn add(&mut self, lot: u32, client: Option<u64>) -> LinePlace {
        let place = LinePlace::new(self.next_number(), lot);
        let client = client.map_or(0, |client| client.max(1));
        self.places.push_back(StoredPlace { lot, state: PlaceState::Waiting, at_us: u64::MAX, client });
        self.join(client);
        place
    }

    /// The state of the place, unless it is forgotten. `is_due` says whether its turn has come.
    pub(super) fn find(&self, place: LinePlace, time: &LineTime, is_due: bool) -> Option<StoredPlace> {
        let stored = *self.places.get(self.index(place.number)?).filter(|stored| stored.lot == place.lot)?;
        let is_over = stored.age_us(time) >= stored.kept_us(self.again_us);
        let counts = is_due || stored.state == PlaceState::Turned;
        (!is_over || !counts).then_some(stored)
    }

    /// Whether no visitor waits at this number any longer: it had its turn, or is missing.
    pub(super) fn is_left(&self, number: u64, time: &LineTime) -> bool {
        let stored = self.index(number).and_then(|index| self.places.get(index));
        number < self.next_number()
            && stored.is_none_or(|stored| stored.state != PlaceState::Waiting || stored.age_us(time) > 0)
    }

    /// Notes that the visitor has asked and waits, and counts as missing from this moment on.
    pub(super) fn expect(&mut self, place: LinePlace, missed_us: u64) {
        let Some(stored) = self.stored_mut(place) else { return };
        stored.at_us = missed_us;
        if stored.state == PlaceState::PassedOver {
            stored.state = PlaceState::Waiting;
            let client = stored.client;
            self.join(client);
            self.swept = self.swept.min(place.number);
        }
    }

    /// Notes that the visitor has its turn at this time.
    pub(super) fn turn(&mut self, place: LinePlace, at_us: u64) {
        let Some(stored) = self.stored_mut(place) else { return };
        let (was, client) = (stored.state, stored.client);
        (stored.state, stored.at_us) = (PlaceState::Turned, at_us);
        if was == PlaceState::Waiting {
            self.leave(client);
        }
    }

    /// Passes over visitors that did not come, and forgets those that did not come back: `steps` places at most. Each poll sweeps more than
    /// one place, so that the sweep keeps up with new places.
    pub(super) fn sweep(&mut self, time: &LineTime, steps: u32, is_due: impl Fn(LinePlace) -> bool) {
        for _ in 0..steps {
            let number = self.swept;
            let Some(stored) = self.index(number).and_then(|index| self.places.get_mut(index)) else { break };
            if stored.state == PlaceState::Waiting {
                if stored.age_us(time) == 0 || !is_due(LinePlace::new(number, stored.lot)) {
                    break;
                }
                stored.state = PlaceState::PassedOver;
                let client = stored.client;
                self.leave(client);
                self.passed_over = self.passed_over.saturating_add(1);
            }
            self.swept = self.swept.saturating_add(1);
        }
        let again_us = self.again_us;
        for _ in 0..steps {
            let is_over = |stored: &StoredPlace| stored.age_us(time) > stored.kept_us(again_us);
            if self.first >= self.swept || !self.places.front().is_some_and(is_over) {
                break;
            }
            self.places.pop_front();
            self.first = self.first.saturating_add(1);
        }
        // Frees the room that a crowd has left behind.
        if self.places.capacity() > 1_024 && self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to(self.places.len().saturating_mul(2));
        }
        if self.clients.capacity() > 1_024 && self.clients.len() < self.clients.capacity() / 4 {
            self.clients.shrink_to(self.clients.len().saturating_mul(2));
        }
    }

    /// Counts one more waiting place.
    fn join(&mut self, client: u64) {
        self.waiting = self.waiting.saturating_add(1);
        if client != 0 {
            let places = self.clients.entry(client).or_default();
            *places = places.saturating_add(1);
        }
    }

    /// Counts one waiting place less. A client without places is forgotten, so that the map grows with the line and not with its history.
    fn leave(&mut self, client: u64) {
        self.waiting = self.waiting.saturating_sub(1);
        if let Some(places) = self.clients.get_mut(&client) {
            *places = places.saturating_sub(1);
            if *places == 0 {
                self.clients.remove(&client);
            }
        }
    }

    fn stored_mut(&mut self, place: LinePlace) -> Option<&mut StoredPlace> {
        let index = self.index(place.number)?;
        self.places.get_mut(index)
    }

    /// The place of a number in the list; `None` if it was forgotten.
    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }
}
