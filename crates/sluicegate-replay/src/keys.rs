//! The keys of a row, each with a number: [`Keys`].

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;

/// Keys in the order of their first request. Their bytes stand one behind the other: a map of keys takes four times the memory.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    numbers: HashTable<Entry>,
    hasher: RandomState,
    bytes: Vec<u8>,
    /// Where each key ends, and what it is.
    ends: Vec<(usize, KeyKind)>,
}

/// A key with its number: an address of IPv4 is found without a look at any other place.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u32,
    begin: Begin,
}

/// How long a key is, up to 255, and how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begin(u8, [u8; Self::BYTES]);

impl Begin {
    const BYTES: usize = 11;

    #[inline]
    fn of(key: &[u8]) -> Self {
        let mut begin = [0; Self::BYTES];
        begin.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        Self(u8::try_from(key.len()).unwrap_or(u8::MAX), begin)
    }
}

impl Keys {
    /// The number of a key with these bytes: a new one for a key that was not seen before.
    #[inline]
    pub(crate) fn number(&mut self, key: &[u8], kind: KeyKind) -> u32 {
        let Self { numbers, hasher, bytes, ends } = self;
        let (hash, begin) = (hasher.hash_one(key), Begin::of(key));
        let is_it = |entry: &Entry| {
            entry.begin == begin && (key.len() <= Begin::BYTES || of(bytes, ends, entry.number) == key)
        };
        if let Some(entry) = numbers.find(hash, is_it) {
            return entry.number;
        }
        let number = u32::try_from(ends.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(key);
        ends.push((bytes.len(), kind));
        let hash_of = |entry: &Entry| hasher.hash_one(of(bytes, ends, entry.number));
        numbers.insert_unique(hash, Entry { number, begin }, hash_of);
        number
    }

    /// The key of a number that was given out.
    pub(crate) fn key(&self, number: u32) -> Key {
        Key::from_bytes(of(&self.bytes, &self.ends, number)).of_kind(self.ends[number as usize].1)
    }
}

/// The bytes of the key of a number.
fn of<'a>(bytes: &'a [u8], ends: &[(usize, KeyKind)], number: u32) -> &'a [u8] {
    let place = number as usize;
    let begin = place.checked_sub(1).map_or(0, |before| ends[before].0);
    &bytes[begin..ends[place].0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_numbers_in_the_order_of_their_first_request_and_are_given_back_as_they_were() {
        let mut keys = Keys::default();
        let of = |place: u32| match place % 3 {
            0 => Key::from(std::net::Ipv4Addr::from_bits(place)),
            1 => Key::from((place, "x".repeat((place % 90) as usize))).of_kind(KeyKind::Name),
            _ => Key::from(format!("secret {place}")),
        };
        for round in 0..2 {
            for place in 0..3_000 {
                let key = of(place);
                assert_eq!(keys.number(key.as_bytes(), key.kind()), place, "round {round}");
            }
        }
        assert_eq!(keys.ends.len(), 3_000);
        for place in 0..3_000 {
            let key = keys.key(place);
            assert_eq!((&key, key.kind()), (&of(place), of(place).kind()));
        }
    }
}
