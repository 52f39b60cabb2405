//! The last 5 to 10 minutes: [`InTurn`].

use std::collections::HashMap;

use super::cut::CutKey;
use super::sketch::{Sketch, SketchedKey};

/// The time that a sketch counts before the other one takes over, in microseconds.
pub(super) const TURN_US: u64 = 5 * 60 * 1_000_000;

/// Two sketches in turn: one counts, and the other one holds the five minutes before.
#[derive(Debug)]
pub(super) struct InTurn {
    /// The number of the current five minutes.
    turn: u64,
    now: Sketch,
    before: Sketch,
}

/// A key that came in the last 5 to 10 minutes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frequent {
    pub(super) digest: u64,
    pub(super) key: CutKey,
    /// How often it came; too high by at most `error`.
    pub(super) count: u64,
    pub(super) error: u64,
    /// The note of its last ask.
    pub(super) note: u64,
}

impl InTurn {
    /// Two empty sketches, with room for this many keys each.
    pub(super) fn new(room: usize) -> Self {
        Self { turn: 0, now: Sketch::new(room), before: Sketch::new(room) }
    }

    /// Counts an ask of the key with this digest.
    pub(super) fn count(&mut self, digest: u64, key: impl FnOnce() -> CutKey, note: u64, now_us: u64) {
        self.turn_to(now_us);
        self.now.count(digest, key, note);
    }

    /// Counts an ask of an earlier moment, unless it is older than all that is counted now.
    pub(super) fn count_late(&mut self, digest: u64, key: CutKey, note: u64, (at_us, now_us): (u64, u64)) {
        self.turn_to(now_us);
        // It may be a second ahead of a reader.
        match self.turn.saturating_sub(at_us / TURN_US) {
            0 => self.now.count_late(digest, key, note),
            1 => self.before.count_late(digest, key, note),
            _ => {}
        }
    }

    /// The keys that came most often, in the order of their certain counts, and the number of all asks. It includes each key that
    /// came more often than the number of all asks divided by the room of one sketch.
    pub(super) fn frequent(&mut self, now_us: u64) -> (u64, Vec<Frequent>) {
        self.turn_to(now_us);
        let mut all = HashMap::<u64, Frequent>::new();
        let (now_floor, before_floor) = (self.now.floor(), self.before.floor());
        // First the sketch that counts now, because its notes are younger.
        let both = self.now.iter().map(|of| (of, before_floor));
        let both = both.chain(self.before.iter().map(|of| (of, now_floor)));
        for (SketchedKey { digest, key, count, error, note }, elsewhere) in both {
            // A key that is not in the other sketch may have come there as often as that sketch's floor.
            all.entry(digest)
                .and_modify(|known| {
                    known.count = known.count - before_floor + count;
                    known.error = known.error - before_floor + error;
                })
                .or_insert(Frequent {
                    digest,
                    key: *key,
                    count: count + elsewhere,
                    error: error + elsewhere,
                    note,
                });
        }
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|of| (u64::MAX - (of.count - of.error), u64::MAX - of.count, of.digest));
        (self.now.total() + self.before.total(), all)
    }

    /// The key that is listed with this digest.
    pub(super) fn find(&self, digest: u64) -> Option<&CutKey> {
        self.now.iter().chain(self.before.iter()).find(|of| of.digest == digest).map(|of| of.key)
    }

    fn turn_to(&mut self, now_us: u64) {
        let turn = now_us / TURN_US;
        if turn == self.turn {
            return;
        }
        // If the clock is set back a little, counting continues; if it is set back by more, it begins anew, as after a pause.
        if turn.saturating_add(1) == self.turn {
            return;
        }
        std::mem::swap(&mut self.now, &mut self.before);
        self.now.clear();
        if turn != self.turn.saturating_add(1) {
            self.before.clear();
        }
        self.turn = turn;
    }

    /// The memory that it takes on the heap.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.now.bytes() + self.before.bytes()
    }
}
