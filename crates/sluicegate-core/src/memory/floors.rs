//! The lowest level of a bucket while leases of it are in use: [`Floors`].
//!
//! A floor is the level at which the latest lease ends, and only time lowers it; it keeps [leases](super::leases) safe. Floors
//! are kept [beside](Beside) the table, and only while leases are in use.

use super::beside::Beside;
use crate::algorithm::{Rule, State};

/// The floors of the keys of one bucket: for each key, the latest end of a lease.
pub(super) struct Floors(Beside<State>);

impl Floors {
    /// Floors of at most `most` keys.
    pub(super) fn new(most: usize) -> Self {
        Self(Beside::new(most))
    }

    /// The floor of a key; at rest if the key has no floor or its floor has ended.
    pub(super) fn of(&self, key: u64, now_us: u64) -> State {
        let floor = self.0.of(key);
        if floor.until_us <= now_us { State::REST } else { floor }
    }

    /// Gives a key this floor, unless its own is higher.
    pub(super) fn raise(&self, rule: &Rule, key: u64, floor: State, now_us: u64) {
        let own = self.of(key, now_us);
        if rule.weight(own, now_us) < rule.weight(floor, now_us) {
            self.set(key, floor, now_us);
        }
    }

    /// Whether there is room for a floor of this key.
    pub(super) fn has_room(&self, key: u64, now_us: u64) -> bool {
        self.0.has_room(now_us, |floor| floor.until_us <= now_us) || self.of(key, now_us) != State::REST
    }

    /// Gives a key this floor.
    pub(super) fn set(&self, key: u64, floor: State, now_us: u64) {
        let is_over = |floor: &State| floor.until_us <= now_us;
        if is_over(&floor) {
            self.0.change(key, |own| *own = State::REST, is_over);
        } else {
            self.0.add(key, |own| *own = floor, is_over);
        }
    }
}
