//! The keys that come most often, in fixed memory: [`Sketch`].

use super::cut::CutKey;

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
    pub(super) fn count_late(&mut self, digest: u64, key: CutKey, note: u64) {
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
    pub(super) fn floor(&self) -> u64 {
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
