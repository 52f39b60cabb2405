//! Numbers that are found by a hash, each in one place: [`Slots`].
//!
//! # Source
//! Open addressing with linear probing (Knuth, The Art of Computer Programming, volume 3, section 6.4), over a power of two of slots.
//! Nothing is ever removed, so no slot needs a mark for removed entries.

use std::hash::{BuildHasher, Hash};

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
