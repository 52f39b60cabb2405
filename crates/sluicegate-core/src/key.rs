//! Whose bucket it is.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use smallvec::SmallVec;

/// Whose bucket a request spends from: an address, a user, an API key, or several of these together.
///
/// A key is a sequence of typed parts. Each part carries its type and length, so no two different sequences have
/// the same bytes, whatever a client writes into them: `("a_b", "c")` is not `("a", "b_c")`, the text `"1"` is not the
/// number `1`. Up to 51 bytes of text fit without an allocation.
///
/// Keys may be secrets. `Debug` shows a hash that is good within this process only.
///
/// ```
/// use sluicegate_core::Key;
///
/// let by_user_and_route = Key::from(("user-7", "/login"));
/// assert_eq!(by_user_and_route, Key::from("user-7").and("/login"));
/// assert_ne!(Key::from("1"), Key::from(1_u64));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    bytes: SmallVec<[u8; 56]>,
}

/// What a part is, as the first byte of its encoding.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Tag {
    Bytes = 1,
    Number = 2,
    Ipv4 = 3,
    Ipv6 = 4,
    Shared = 5,
}

impl Key {
    /// The bucket of everyone whose own key could not be found: a part that no client can write.
    pub fn shared() -> Self {
        Self::part(Tag::Shared, &[])
    }

    /// This key with the parts of another behind it.
    #[must_use]
    pub fn and(mut self, part: impl Into<Self>) -> Self {
        self.bytes.extend_from_slice(&part.into().bytes);
        self
    }

    /// The encoded parts: what stores hash. Different keys have different bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A part of a fixed length.
    #[inline]
    fn part(tag: Tag, value: &[u8]) -> Self {
        let mut bytes = SmallVec::new();
        bytes.push(tag as u8);
        bytes.extend_from_slice(value);
        Self { bytes }
    }
}

impl From<&[u8]> for Key {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
    fn from(value: &[u8]) -> Self {
        // A varint: no length is cut off, and text below 128 bytes needs one.
        let mut bytes = SmallVec::new();
        bytes.push(Tag::Bytes as u8);
        let mut length = value.len();
        while length >= 0x80 {
            bytes.push((length % 0x80) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend_from_slice(value);
        Self { bytes }
    }
}

impl From<&str> for Key {
    #[inline]
    fn from(value: &str) -> Self {
        value.as_bytes().into()
    }
}

impl From<&String> for Key {
    #[inline]
    fn from(value: &String) -> Self {
        value.as_bytes().into()
    }
}

impl From<String> for Key {
    #[inline]
    fn from(value: String) -> Self {
        value.as_bytes().into()
    }
}

impl From<u64> for Key {
    #[inline]
    fn from(value: u64) -> Self {
        Self::part(Tag::Number, &value.to_le_bytes())
    }
}

impl From<Ipv4Addr> for Key {
    #[inline]
    fn from(value: Ipv4Addr) -> Self {
        Self::part(Tag::Ipv4, &value.octets())
    }
}

impl From<Ipv6Addr> for Key {
    /// As the address stands; an IPv4-mapped one becomes the IPv4 address that it is.
    #[inline]
    fn from(value: Ipv6Addr) -> Self {
        match value.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => Self::part(Tag::Ipv6, &value.octets()),
        }
    }
}

impl From<IpAddr> for Key {
    #[inline]
    fn from(value: IpAddr) -> Self {
        match value {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl From<&Self> for Key {
    #[inline]
    fn from(value: &Self) -> Self {
        value.clone()
    }
}

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for Key {
    fn from((a, b): (A, B)) -> Self {
        a.into().and(b)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>> From<(A, B, C)> for Key {
    fn from((a, b, c): (A, B, C)) -> Self {
        a.into().and(b).and(c)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        static SEED: OnceLock<std::hash::RandomState> = OnceLock::new();
        let hash = SEED.get_or_init(std::hash::RandomState::new).hash_one(self);
        write!(f, "Key({:08x})", hash >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_parts_are_different_keys() {
        let long = "x".repeat(200);
        let keys = [
            Key::from(("a_b", "c")),
            Key::from(("a", "b_c")),
            Key::from(("", "x")),
            Key::from(("x", "")),
            Key::from("x"),
            Key::from(""),
            Key::shared(),
            Key::from(1_u64),
            Key::from("1"),
            Key::from(Ipv4Addr::new(1, 0, 0, 0)),
            Key::from(Ipv6Addr::LOCALHOST),
            Key::from(&*long),
            Key::from(("u7", "r", 9_u64)),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[..i] {
                assert_ne!(a.as_bytes(), b.as_bytes());
            }
        }
    }

    #[test]
    fn a_mapped_address_is_the_address_that_it_maps() {
        let mapped: IpAddr = "::ffff:198.51.100.7".parse().unwrap();
        assert_eq!(Key::from(mapped), Key::from(Ipv4Addr::new(198, 51, 100, 7)));
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", Key::from("sk_live_51H"));
        assert!(shown.starts_with("Key(") && !shown.contains("sk_live"), "{shown}");
    }
}
