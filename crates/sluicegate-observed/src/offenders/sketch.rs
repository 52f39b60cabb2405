//! The keys that come most often, in fixed memory: [`Sketch`].

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use sluicegate_core::key::KeyRef;
use sluicegate_core::support::lock;

use crate::lanes;
use crate::lanes::PLACES;
use crate::offenders::CutKey;

/// Counts of the keys that come most often: Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and
/// top-k elements in data streams", 2005, algorithm of figure 1; a list in place of their sorted buckets).
///
/// With room for k keys, after n arrivals: each key that came more than n / k times is in the sketch; a count is never too low, and
/// too high by at most its error; a key outside the sketch came at most [`floor`](Self::floor) times. The counts add up to n.
#[derive(Debug)]
pub(super) struct Sketch {
    room: usize,
    /// Once there is no room left, no count is below this, and no count before `next` equals it.
    least: u64,
    next: usize,
    /// Apart from the rest, because the digests are searched for each key that comes.
    digests: Vec<u64>,
    counts: Vec<u64>,
    rest: Vec<SketchDetails>,
}

#[derive(Debug)]
struct SketchDetails {
    error: u64,
    note: u64,
    key: CutKey,
}

/// A key that is in a [`Sketch`].
#[derive(Clone, Copy, Debug)]
pub(super) struct SketchedKey<'a> {
    pub(super) digest: u64,
    pub(super) key: &'a CutKey,
    pub(super) count: u64,
    pub(super) error: u64,
    /// The note of its last arrival.
    pub(super) note: u64,
}

impl Sketch {
    /// An empty sketch, with room for this many keys. It allocates here, because keys come in the middle of requests.
    pub(super) fn new(room: usize) -> Self {
        let (digests, counts) = (Vec::with_capacity(room), Vec::with_capacity(room));
        Self { room, least: 0, next: 0, digests, counts, rest: Vec::with_capacity(room) }
    }

    /// Counts an arrival of the key with this digest.
    pub(super) fn count(&mut self, digest: u64, key: impl FnOnce() -> CutKey, note: u64) {
        *self.arrived(digest, key) = note;
    }

    /// Counts an arrival that others may have followed: the later of two notes stays, which is the higher one.
    fn count_late(&mut self, digest: u64, key: CutKey, note: u64) {
        let last = self.arrived(digest, || key);
        *last = note.max(*last);
    }

    /// Counts an arrival; returns the note of the arrival before, 0 if none is known.
    fn arrived(&mut self, digest: u64, key: impl FnOnce() -> CutKey) -> &mut u64 {
        let place = self.place(digest).unwrap_or_else(|| self.take_in(digest, key));
        self.counts[place] += 1;
        &mut self.rest[place].note
    }

    fn place(&self, digest: u64) -> Option<usize> {
        // Eight at once, without a branch for each, because most keys of a flood are not in the sketch.
        let mut eights = self.digests.chunks(8).enumerate();
        let (eight, digests) =
            eights.find(|(_, eight)| eight.iter().fold(false, |found, known| found | (*known == digest)))?;
        digests.iter().position(|known| *known == digest).map(|place| 8 * eight + place)
    }

    /// Replaces one of the rarest keys by this one, which may have come as often.
    fn take_in(&mut self, digest: u64, key: impl FnOnce() -> CutKey) -> usize {
        let rest = |error| SketchDetails { error, note: 0, key: key() };
        let place = self.counts.len();
        if place < self.room {
            self.digests.push(digest);
            self.counts.push(0);
            self.rest.push(rest(0));
            return place;
        }
        let place = self.least();
        self.digests[place] = digest;
        self.rest[place] = rest(self.counts[place]);
        place
    }

    /// One of the keys with the lowest count, in turn. Counts only grow, so a flood looks at each key once before
    /// the lowest count changes.
    fn least(&mut self) -> usize {
        let from = |next: usize, least: u64| {
            let mut counts = self.counts.iter().enumerate().skip(next);
            counts.find(|(_, count)| **count == least).map(|(place, _)| place)
        };
        let (place, least) = match from(self.next, self.least) {
            Some(place) => (place, self.least),
            None => {
                let least = self.counts.iter().copied().min().unwrap_or(0);
                (from(0, least).unwrap_or(0), least)
            }
        };
        (self.next, self.least) = (place + 1, least);
        place
    }

    /// The number of times that keys came, in all.
    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The most times that a key outside the sketch can have come.
    fn floor(&self) -> u64 {
        if self.counts.len() < self.room { 0 } else { self.counts.iter().copied().min().unwrap_or(0) }
    }

    /// The keys that are in it, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = SketchedKey<'_>> {
        let rest = self.digests.iter().zip(&self.counts).zip(&self.rest);
        rest.map(|((digest, count), SketchDetails { error, note, key })| SketchedKey {
            digest: *digest,
            key,
            count: *count,
            error: *error,
            note: *note,
        })
    }

    /// Forgets all keys, and keeps its memory.
    pub(super) fn clear(&mut self) {
        (self.least, self.next) = (0, 0);
        self.digests.clear();
        self.counts.clear();
        self.rest.clear();
    }

    /// The memory that it takes on the heap.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.room * (2 * size_of::<u64>() + size_of::<SketchDetails>())
    }
}

// The last 5 to 10 minutes: [`InTurn`].

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
    fn count_late(&mut self, digest: u64, key: CutKey, note: u64, (at_us, now_us): (u64, u64)) {
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

    /// Forgets the note of this key.
    pub(super) fn forget_note(&mut self, digest: u64) {
        for sketch in [&mut self.now, &mut self.before] {
            if let Some(place) = sketch.place(digest) {
                sketch.rest[place].note = 0;
            }
        }
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

// The refused keys, counted by many threads at once: [`RefusedKeys`].

/// The refusals that a thread keeps before it waits for the list.
const LATE: usize = 16;

/// The refused keys of a policy.
///
/// Each refusal may change any place of the list, so the list has one lock. In a flood threads would spend most of their time waiting for
/// it: a thread that finds it locked keeps this refusal and its next fifteen, and counts them together.
#[derive(Debug)]
pub(super) struct RefusedKeys {
    counted: Mutex<InTurn>,
    /// For each [place](lanes::place) of threads; made when one first finds the list locked.
    late: OnceLock<Box<[LateRefusals; PLACES]>>,
}

/// Aligned, so that no cache line belongs to two places. Its lock is only taken under the lock of the list, or alone.
#[derive(Debug, Default)]
#[repr(align(64))]
struct LateRefusals(Mutex<Vec<LateRefusal>>);

#[derive(Debug)]
struct LateRefusal {
    digest: u64,
    key: CutKey,
    note: u64,
    at_us: u64,
}

impl RefusedKeys {
    /// An empty list, with room for this many keys.
    pub(super) fn new(room: usize) -> Self {
        Self { counted: Mutex::new(InTurn::new(room)), late: OnceLock::new() }
    }

    /// Counts a refusal of a key.
    pub(super) fn count(&self, key: KeyRef<'_>, note: u64, now_us: u64) {
        let digest = key.digest();
        let refusal = || LateRefusal { digest, key: CutKey::of(key), note, at_us: now_us };
        let own = self.late.get().map(|late| &late[lanes::place()]);
        // All the room is used, so that threads meet less often.
        if own.is_some_and(|own| own.keep(1..LATE, refusal)) {
            return;
        }
        let has_kept = || self.late.get_or_init(Box::default)[lanes::place()].keep(0..LATE, refusal);
        let mut counted = match self.counted.try_lock() {
            Ok(counted) => counted,
            Err(TryLockError::Poisoned(counted)) => counted.into_inner(),
            Err(TryLockError::WouldBlock) if has_kept() => return,
            Err(TryLockError::WouldBlock) => lock(&self.counted),
        };
        if let Some(own) = own {
            own.count_in(&mut counted, now_us);
        }
        counted.count(digest, || CutKey::of(key), note, now_us);
    }

    /// The list with all refusals so far.
    pub(super) fn counted(&self, now_us: u64) -> MutexGuard<'_, InTurn> {
        let mut counted = lock(&self.counted);
        for late in self.late.get().into_iter().flat_map(|late| late.iter()) {
            late.count_in(&mut counted, now_us);
        }
        counted
    }

    /// The key that is listed with this digest.
    pub(super) fn find(&self, digest: u64) -> Option<CutKey> {
        lock(&self.counted).find(digest).copied()
    }

    /// The memory that it takes on the heap, before any thread found the list locked.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        lock(&self.counted).bytes()
    }
}

impl LateRefusals {
    /// Keeps a refusal if this many are kept already; `false` if not.
    fn keep(&self, if_kept: Range<usize>, refusal: impl FnOnce() -> LateRefusal) -> bool {
        let mut late = lock(&self.0);
        let keeps = if_kept.contains(&late.len());
        if keeps {
            late.push(refusal());
        }
        keeps
    }

    fn count_in(&self, counted: &mut InTurn, now_us: u64) {
        for LateRefusal { digest, key, note, at_us } in lock(&self.0).drain(..) {
            counted.count_late(digest, key, note, (at_us, now_us));
        }
    }
}
