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
        KeyRef::part(Tag::Shared, &[]).to_key()
    }

    /// This key with the parts of another behind it.
    #[must_use]
    pub fn and(mut self, part: impl Into<Self>) -> Self {
        self.bytes.extend_from_slice(&part.into().bytes);
        self
    }

    /// The encoded parts, for stores that hash. Different keys have different bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// This key, borrowed.
    #[inline]
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef::decode(&self.bytes)
    }
}

/// A key that is borrowed from where it is: what stores are asked about.
#[derive(Clone, Copy)]
pub struct KeyRef<'a> {
    /// The type of the only part, or [`KeyRef::SEVERAL`].
    tag: u8,
    /// The only part, or all parts encoded.
    bytes: &'a [u8],
}

impl<'a> KeyRef<'a> {
    const SEVERAL: u8 = 0;

    #[inline]
    fn part(tag: Tag, bytes: &'a [u8]) -> Self {
        Self { tag: tag as u8, bytes }
    }

    /// A key of one part is the same key whether it was encoded or not.
    #[inline]
    fn decode(encoded: &'a [u8]) -> Self {
        let several = Self { tag: Self::SEVERAL, bytes: encoded };
        let Some((&tag, rest)) = encoded.split_first() else { return several };
        let single = match tag {
            tag if tag == Tag::Bytes as u8 => match rest.split_first() {
                // Longer text has a longer length; it is never the fast path, and hashes as several parts do.
                Some((&length, text)) if length < 0x80 && text.len() == usize::from(length) => Some(text),
                _ => None,
            },
            tag if tag == Tag::Number as u8 => Some(rest).filter(|rest| rest.len() == 8),
            tag if tag == Tag::Ipv4 as u8 => Some(rest).filter(|rest| rest.len() == 4),
            tag if tag == Tag::Ipv6 as u8 => Some(rest).filter(|rest| rest.len() == 16),
            tag if tag == Tag::Shared as u8 => Some(rest).filter(|rest| rest.is_empty()),
            _ => None,
        };
        single.map_or(several, |bytes| Self { tag, bytes })
    }

    /// Type, length and bytes for a hasher: different keys differ in one of them.
    #[inline]
    pub(crate) fn parts(&self) -> (u8, &'a [u8]) {
        (self.tag, self.bytes)
    }

    /// The key, to keep.
    pub fn to_key(&self) -> Key {
        let mut bytes = SmallVec::new();
        if self.tag != Self::SEVERAL {
            bytes.push(self.tag);
        }
        if self.tag == Tag::Bytes as u8 {
            push_length(&mut bytes, self.bytes.len());
        }
        bytes.extend_from_slice(self.bytes);
        Key { bytes }
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_key().fmt(f)
    }
}

/// A varint: no length is cut off, and text below 128 bytes needs one.
#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
fn push_length(bytes: &mut SmallVec<[u8; 56]>, mut length: usize) {
    while length >= 0x80 {
        bytes.push((length % 0x80) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
}

/// Whatever names a bucket: a [`Key`], text, a number, an address, or several of them in a tuple.
pub trait AsKey {
    /// Calls `ask` with the key.
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T;
}

impl<K: AsKey + ?Sized> AsKey for &K {
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        (**self).with_key(ask)
    }
}

impl AsKey for Key {
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        ask(self.as_ref())
    }
}

impl AsKey for [u8] {
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        // As `decode` has it.
        if self.len() < 0x80 { ask(KeyRef::part(Tag::Bytes, self)) } else { ask(Key::from(self).as_ref()) }
    }
}

impl AsKey for str {
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        self.as_bytes().with_key(ask)
    }
}

impl AsKey for String {
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        self.as_bytes().with_key(ask)
    }
}

impl AsKey for u64 {
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        ask(KeyRef::part(Tag::Number, &self.to_le_bytes()))
    }
}

impl AsKey for IpAddr {
    /// As the address stands; an IPv4-mapped one is the IPv4 address that it maps.
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        match self.to_canonical() {
            Self::V4(v4) => ask(KeyRef::part(Tag::Ipv4, &v4.octets())),
            Self::V6(v6) => ask(KeyRef::part(Tag::Ipv6, &v6.octets())),
        }
    }
}

impl AsKey for Ipv4Addr {
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        IpAddr::V4(*self).with_key(ask)
    }
}

impl AsKey for Ipv6Addr {
    #[inline]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        IpAddr::V6(*self).with_key(ask)
    }
}

impl<A: AsKey, B: AsKey> AsKey for (A, B) {
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        let key = self.0.with_key(|first| first.to_key()).and(self.1.with_key(|second| second.to_key()));
        ask(key.as_ref())
    }
}

impl<A: AsKey, B: AsKey, C: AsKey> AsKey for (A, B, C) {
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        ((&self.0, &self.1), &self.2).with_key(ask)
    }
}

/// Every [`AsKey`] can be kept.
macro_rules! kept {
    ($($name:ty),+) => {$(
        impl From<$name> for Key {
            #[inline]
            fn from(value: $name) -> Self {
                value.with_key(|key| key.to_key())
            }
        }
    )+};
}

kept!(&str, String, &String, u64, IpAddr, Ipv4Addr, Ipv6Addr);

impl From<&[u8]> for Key {
    #[inline]
    fn from(value: &[u8]) -> Self {
        KeyRef::part(Tag::Bytes, value).to_key()
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
                assert_ne!(a.bytes, b.bytes);
                assert_ne!(a.as_ref().parts(), b.as_ref().parts());
            }
        }
    }

    #[test]
    fn a_borrowed_key_is_the_same_key_as_a_kept_one() {
        fn same(borrowed: impl AsKey, kept: impl Into<Key>) {
            let kept = kept.into();
            borrowed.with_key(|key| {
                assert_eq!((key.parts(), key.to_key()), (kept.as_ref().parts(), kept.clone()))
            });
        }
        for length in [0, 1, 15, 51, 127, 128, 300, 20_000] {
            let text = "x".repeat(length);
            same(&*text, &*text);
        }
        same(7, 7);
        same(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        same(("user", 7), ("user", 7));
        same(("", "x", 9), ("", "x", 9));
        same(Key::shared(), Key::shared());
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
