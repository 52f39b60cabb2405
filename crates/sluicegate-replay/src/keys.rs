//! The keys of a row, each with a number: [`Keys`].

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use sluicegate_core::Key;
use sluicegate_core::key::KeyKind;

/// Keys in the order of their first request. Their bytes stand one behind the other: a map of keys takes four times the memory.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    numbers: HashTable<u32>,
    hasher: RandomState,
    bytes: Vec<u8>,
    /// Where each key ends, and what it is.
    ends: Vec<(usize, KeyKind)>,
}

impl Keys {
    /// The number of a key: a new one for a key that was not seen before.
    pub(crate) fn number(&mut self, key: &Key) -> u32 {
        let Self { numbers, hasher, bytes, ends } = self;
        let hash = hasher.hash_one(key.as_bytes());
        if let Some(number) = numbers.find(hash, |number| of(bytes, ends, *number) == key.as_bytes()) {
            return *number;
        }
        let number = u32::try_from(ends.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(key.as_bytes());
        ends.push((bytes.len(), key.kind()));
        numbers.insert_unique(hash, number, |number| hasher.hash_one(of(bytes, ends, *number)));
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
                assert_eq!(keys.number(&of(place)), place, "round {round}");
            }
        }
        assert_eq!(keys.ends.len(), 3_000);
        for place in 0..3_000 {
            let key = keys.key(place);
            assert_eq!((&key, key.kind()), (&of(place), of(place).kind()));
        }
    }
}
