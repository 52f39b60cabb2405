//! The keys of all rows, each with a number in its row: [`RowKeys`].
//!
//! # Two steps
//! The bytes of a key become a number among all keys of the log, which becomes a number in the row that asks. The first step looks into a
//! table that all rows share, the second into a small table of the row. Counts, states and records are then in lists by the number in the
//! row, which costs no further search.
//!
//! # Units
//! Numbers are given from 0 on, in the order of the log. There are at most 4,294,967,294 of each kind: keys beyond that count as one.

use std::hash::{BuildHasher, Hash};
use std::hint::black_box;

use foldhash::fast::RandomState;
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;

use crate::judge::order::NumberedAsk;
use crate::read::{KeyedAsk, ParsedBatch};

/// Keys with a number in each row that has asked for them, in the order of their first request there. The counts of a row are in lists by
/// that number, without a place for keys that only other rows have.
///
/// Most rules ask by the same keys, so each key is kept once, and a row knows it by its number among all. That takes about 20 bytes for
/// each row and key, where a table of keys for each row took 45.
#[derive(Debug)]
pub(super) struct RowKeys {
    all: KeyTable,
    rows: Vec<KeyRow>,
    /// The hash of the key of each ask of a batch; `among_all` has the number among all keys.
    hashes: Vec<usize>,
    among_all: Vec<u32>,
}

/// Each key of any row once. Their bytes follow one another: a map of keys takes four times the memory.
#[derive(Debug, Default)]
struct KeyTable {
    numbers: Slots<Begin>,
    hasher: RandomState,
    bytes: Vec<u8>,
    /// The end of each key in `bytes`.
    ends: Vec<usize>,
}

/// The keys of one row.
#[derive(Debug, Default)]
struct KeyRow {
    /// The number in the row, by the number among all.
    numbers: Slots<u32>,
    /// The number among all, by the number in the row.
    among_all: Vec<u32>,
    /// The kind of a key as the row had it first: a kind says how a key is shown, and not which one it is.
    kinds: Vec<KeyKind>,
}

/// The beginning of a key, which distinguishes an IPv4 address from any other key without reading another place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Begin {
    /// The length, up to 255.
    length: u8,
    bytes: [u8; Self::BYTES],
}

impl Begin {
    const BYTES: usize = 11;

    #[inline]
    fn of(key: &[u8]) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        Self { length: u8::try_from(key.len()).unwrap_or(u8::MAX), bytes }
    }
}

impl RowKeys {
    /// Starts without keys, for this many rows.
    pub(super) fn of_rows(rows: usize) -> Self {
        let (hashes, among_all) = (Vec::new(), Vec::new());
        Self {
            all: KeyTable::default(),
            rows: (0..rows).map(|_| KeyRow::default()).collect(),
            hashes,
            among_all,
        }
    }

    /// Fills `numbered` with the asks of a batch and the numbers of their keys.
    ///
    /// `numbered` is emptied first, and has one entry for each ask of the batch, in their order.
    pub(super) fn numbered(&mut self, taken: &ParsedBatch, numbered: &mut Vec<NumberedAsk>) {
        let Self { all, rows, hashes, among_all } = self;
        hashes.clear();
        among_all.clear();
        // Each key is somewhere else in memory. Reading all of them before any is needed lets the loads wait together.
        black_box(taken.asks().fold(0, |seen, (_, key)| {
            let hash = all.hash(key);
            hashes.push(hash);
            seen ^ all.numbers.glance(hash)
        }));
        among_all.extend(taken.asks().zip(&*hashes).map(|((_, key), hash)| all.number(*hash, key)));
        // A short loop of its own: the more iterations a processor holds, the more loads wait at a time.
        black_box(taken.asks().zip(&*among_all).fold(0, |seen, ((ask, _), number)| {
            seen ^ rows[ask.row as usize].numbers.glance(mixed(*number))
        }));
        numbered.clear();
        numbered.extend(taken.asks().zip(&*among_all).map(|((ask, _), among_all)| {
            let KeyedAsk { row, is_enforced, kind, cost, quotas, .. } = ask;
            NumberedAsk { row, key: rows[row as usize].number(*among_all, kind), cost, is_enforced, quotas }
        }));
    }

    /// The key with this number in a row.
    ///
    /// Its kind is that of the row's first request by it: a kind says how a key is shown, and not which one it is.
    pub(super) fn key(&self, row: usize, number: u32) -> Key {
        let KeyRow { among_all, kinds, .. } = &self.rows[row];
        let place = number as usize;
        Key::encoded(kinds[place], self.all.bytes(among_all[place]))
    }
}

impl KeyTable {
    /// Seeded anew for each replay, so that no client can choose keys that share a slot. Figures do not depend on it.
    #[inline]
    fn hash(&self, key: &[u8]) -> usize {
        hash_of(&self.hasher, key)
    }

    /// The number of a key with these bytes and this hash: a new one for a key that was not seen before.
    #[inline]
    fn number(&mut self, hash: usize, key: &[u8]) -> u32 {
        if self.numbers.is_full() {
            self.widen();
        }
        let (begin, is_short) = (Begin::of(key), key.len() <= Begin::BYTES);
        let is_it = |number, known| known == begin && (is_short || self.bytes(number) == key);
        self.numbers.find(hash, is_it).unwrap_or_else(|place| {
            let number = next_number(self.ends.len());
            self.numbers.put(place, number, begin);
            self.bytes.extend_from_slice(key);
            self.ends.push(self.bytes.len());
            number
        })
    }

    /// Doubles the slots. Hashes are computed again from the bytes, because keeping them would take eight bytes more for each key.
    #[cold]
    fn widen(&mut self) {
        let Self { numbers, hasher, bytes, ends } = self;
        let mut begin = 0;
        numbers.widen(ends.iter().map(|end| {
            let key = &bytes[std::mem::replace(&mut begin, *end)..*end];
            (hash_of(hasher, key), Begin::of(key))
        }));
    }

    /// The bytes of the key with this number.
    fn bytes(&self, number: u32) -> &[u8] {
        let place = number as usize;
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[place]]
    }
}

impl KeyRow {
    /// The number in this row of the key with this number among all.
    #[inline]
    fn number(&mut self, among_all: u32, kind: KeyKind) -> u32 {
        if self.numbers.is_full() {
            self.numbers.widen(self.among_all.iter().map(|known| (mixed(*known), *known)));
        }
        self.numbers.find(mixed(among_all), |_, known| known == among_all).unwrap_or_else(|place| {
            let number = next_number(self.among_all.len());
            self.numbers.put(place, number, among_all);
            self.among_all.push(among_all);
            self.kinds.push(kind);
            number
        })
    }
}

/// The hash of a number, by Fibonacci's multiplier: the keys of a row are often long runs of numbers, which would otherwise fill long runs
/// of slots.
#[inline]
fn mixed(number: u32) -> usize {
    usize::try_from(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or(0)
}

// Numbers that are found by a hash, each in one place: [`Slots`].
//
// # Source
// Open addressing with linear probing (Knuth, The Art of Computer Programming, volume 3, section 6.4), over a power of two of slots.
// Nothing is ever removed, so no slot needs a mark for removed entries.

/// A table of numbers, each beside a small value that identifies it.
///
/// With a hundred rules the tables of all rows are far larger than the caches of a processor, so each search waits for memory. Here a
/// search reads one place, and [`glance`](Self::glance) begins the searches of a batch before the first of them is needed. A table of the
/// library reads two places, one after the other, and cannot begin the first read in advance.
///
/// # Memory
/// At least a quarter of the slots stays free, and at most five eighths are free after widening: 1.3 to 2.7 slots a number.
#[derive(Debug, Default)]
pub(super) struct Slots<K> {
    /// A power of two of slots, or none. A number is in the first slot that was free, starting at the one that its hash names; the first
    /// slot follows the last.
    slots: Vec<TableSlot<K>>,
    taken: usize,
}

#[derive(Clone, Copy, Debug)]
struct TableSlot<K> {
    number: u32,
    known_by: K,
}

/// Marks a free slot. No number is ever that high, because its table would not fit into any memory.
const FREE: u32 = u32::MAX;

/// The least number of slots.
const LEAST: usize = 16;

impl<K: Copy + Default> Slots<K> {
    /// A number out of the slot that is read first for this hash.
    #[inline]
    pub(super) fn glance(&self, hash: usize) -> u32 {
        self.slots.get(hash & self.slots.len().wrapping_sub(1)).map_or(0, |slot| slot.number)
    }

    /// The number with this hash for which `is_it` is true; otherwise the slot for it, unless the table [is full](Self::is_full).
    #[inline]
    pub(super) fn find(&self, hash: usize, is_it: impl Fn(u32, K) -> bool) -> Result<u32, usize> {
        let last = self.slots.len() - 1;
        let mut place = hash & last;
        loop {
            match self.slots[place] {
                TableSlot { number: FREE, .. } => return Err(place),
                TableSlot { number, known_by } if is_it(number, known_by) => return Ok(number),
                _ => place = (place + 1) & last,
            }
        }
    }

    /// Puts a number into the slot that was found for it.
    #[inline]
    pub(super) fn put(&mut self, place: usize, number: u32, known_by: K) {
        self.slots[place] = TableSlot { number, known_by };
        self.taken += 1;
    }

    /// Whether it has to be widened before another number can be searched.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.taken * 4 >= self.slots.len() * 3
    }

    /// Doubles the slots, and puts in all numbers from 0 on by their hashes. The old slots are freed before the new ones are allocated.
    #[cold]
    pub(super) fn widen(&mut self, all: impl Iterator<Item = (usize, K)>) {
        let length = (self.slots.len() * 2).max(LEAST);
        self.slots = Vec::new();
        self.slots.resize(length, TableSlot { number: FREE, known_by: K::default() });
        self.taken = 0;
        for (number, (hash, known_by)) in (0..).zip(all) {
            if let Err(place) = self.find(hash, |_, _| false) {
                self.put(place, number, known_by);
            }
        }
    }
}

/// The hash by which a number is found.
#[inline]
pub(super) fn hash_of(hasher: &impl BuildHasher, known_by: impl Hash) -> usize {
    usize::try_from(hasher.hash_one(known_by)).unwrap_or(usize::MAX)
}

/// The number of an entry that this many came before.
pub(super) fn next_number(before: usize) -> u32 {
    u32::try_from(before).unwrap_or(FREE).min(FREE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::OWN_OF_ROW;

    #[test]
    fn keys_have_numbers_in_the_order_of_their_first_request_of_a_row_and_are_given_back_as_they_were() {
        let of = |place: u32| match place % 3 {
            0 => Key::from(std::net::Ipv4Addr::from_bits(place)),
            1 => Key::from((place, "x".repeat((place % 90) as usize))).of_kind(KeyKind::Name),
            _ => Key::from(format!("secret {place}")),
        };
        // The second row has every other key, from the last one on.
        let mut keys = RowKeys::of_rows(2);
        for round in 0..2 {
            let mut taken = ParsedBatch::default();
            (0..3_000).for_each(|place| taken.push(0, (&of(place), OWN_OF_ROW), 1, true));
            (0..1_500).for_each(|place| taken.push(1, (&of(2_999 - 2 * place), OWN_OF_ROW), 1, true));
            let mut numbered = Vec::new();
            keys.numbered(&taken, &mut numbered);
            let numbers: Vec<u32> = numbered.iter().map(|asks| asks.key).collect();
            assert!(numbers.iter().copied().eq((0..3_000).chain(0..1_500)), "round {round}");
        }
        assert_eq!((keys.all.ends.len(), keys.rows[1].among_all.len()), (3_000, 1_500));
        for place in 0..1_500 {
            for (row, of) in [(0, of(place)), (1, of(2_999 - 2 * place))] {
                let key = keys.key(row, place);
                assert_eq!((&key, key.kind()), (&of, of.kind()));
            }
        }
    }

    /// One rule may show what another one may not.
    #[test]
    fn each_row_has_a_key_in_the_kind_of_its_first_request() {
        let (mut keys, key) = (RowKeys::of_rows(2), || Key::from("ada"));
        let mut taken = ParsedBatch::default();
        taken.push(0, (&key().of_kind(KeyKind::Name), OWN_OF_ROW), 1, true);
        taken.push(1, (&key().of_kind(KeyKind::Secret), OWN_OF_ROW), 1, true);
        taken.push(1, (&key().of_kind(KeyKind::Name), OWN_OF_ROW), 1, true);
        keys.numbered(&taken, &mut Vec::new());
        assert_eq!((keys.all.ends.len(), keys.rows[1].kinds.len()), (1, 1));
        assert_eq!([0, 1].map(|row| keys.key(row, 0).kind()), [KeyKind::Name, KeyKind::Secret]);
    }

    fn number_of(slots: &mut Slots<u32>, (hash, known_by): (usize, u32), all: &mut Vec<(usize, u32)>) -> u32 {
        if slots.is_full() {
            slots.widen(all.iter().copied());
        }
        slots.find(hash, |_, known| known == known_by).unwrap_or_else(|place| {
            let number = u32::try_from(all.len()).unwrap();
            slots.put(place, number, known_by);
            all.push((hash, known_by));
            number
        })
    }

    #[test]
    fn a_number_is_found_again_whatever_its_hash_is() {
        for hash_of in [|_| 0, |_| usize::MAX, |known: u32| known as usize, |known| known as usize % 7] {
            let (mut slots, mut all) = (Slots::default(), Vec::new());
            for round in 0..2 {
                for known in 0..300 {
                    let number = number_of(&mut slots, (hash_of(known), known), &mut all);
                    assert_eq!(number, known, "round {round}");
                }
            }
            assert_eq!((all.len(), slots.slots.len(), slots.taken), (300, 512, 300));
        }
    }

    #[test]
    fn a_glance_sees_the_first_slot_of_a_hash() {
        let (mut slots, mut all) = (Slots::default(), Vec::new());
        assert_eq!(slots.glance(7), 0, "there is none yet");
        number_of(&mut slots, (7, 1), &mut all);
        number_of(&mut slots, (7, 2), &mut all);
        assert_eq!([6, 7, 8, 23].map(|hash| slots.glance(hash)), [FREE, 0, 1, 0]);
    }
}
