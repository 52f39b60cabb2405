//! Whose bucket it is.
//!
//! Limiters take as a key whatever [`AsKey`] is implemented for: text, numbers, addresses, and
//! tuples of them. A [`Key`] is the form in which it is kept. Requests of the same key spend from
//! the same bucket, and requests of different keys never do.
//!
//! A key that a client can choose freely, such as a header that nobody verifies, is no limit at
//! all: each value has a bucket of its own. Combine it with one that the client cannot choose, or
//! limit the address as well.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use sluicegate_core::{MemoryStore, Policy};
//!
//! let limiter = Policy::gcra("api", "1/min").on(&MemoryStore::new())?;
//! let allowed = |decision: sluicegate_core::store::DecisionFuture| {
//!     decision.now().expect("memory answers at once").map(|decision| decision.is_allowed())
//! };
//! assert!(allowed(limiter.check("ada"))? && !allowed(limiter.check("ada"))?);
//! // A bucket per combination, here of user and address.
//! assert!(allowed(limiter.check(("ada", Ipv4Addr::LOCALHOST)))?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which key
//! | key | for | beware of |
//! |---|---|---|
//! | user or tenant id | anything behind a login | requests before the login: limit those by address |
//! | API key, digested | public APIs | keys that nobody has verified yet |
//! | client address | anonymous traffic | proxies; offices behind one address; IPv6, of which a client has a whole /64 |
//! | constant | what the service as a whole may do | one client can use it up: [hide](crate::policy::PolicyBuilder::hidden) it, and put a limit per client beside it |
//!
//! # In the store
//! Memory stores keep a hash of the key with a random seed, Redis a keyed hash of 128 bits. Neither
//! keeps the key, so an address or an API key cannot be read back from a store.

mod kind;
mod plain;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use smallvec::SmallVec;

pub use self::kind::KeyKind;

/// Whose bucket a request spends from: an address, a user, an API key, or several of these together.
///
/// A key is a sequence of typed parts. Each part carries its type and length, so no two different sequences have
/// the same bytes, whatever a client writes into them: `("a_b", "c")` is not `("a", "b_c")`, the text `"1"` is not the
/// number `1`. Up to 51 bytes of text fit without an allocation.
///
/// Keys may be secrets, which their [kind](Self::kind) says. `Debug` shows a hash that is good within this process only.
///
/// ```
/// use sluicegate_core::Key;
///
/// let by_user_and_route = Key::from(("user-7", "/login"));
/// assert_eq!(by_user_and_route, Key::from("user-7").and("/login"));
/// assert_ne!(Key::from("1"), Key::from(1));
/// assert_eq!(Key::from(1_u8), Key::from(1_i64));
/// ```
#[derive(Clone)]
pub struct Key {
    /// The [`KeyKind`], and then the parts.
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
    Negative = 6,
    Large = 7,
}

impl Key {
    /// The bucket of everyone whose own key could not be found: a part that no client can write.
    ///
    /// ```
    /// use sluicegate_core::Key;
    ///
    /// assert_ne!(Key::shared(), Key::from("shared"));
    /// assert_eq!(Key::shared().plain(), "shared");
    /// ```
    pub fn shared() -> Self {
        KeyRef::part(Tag::Shared, &[]).to_key()
    }

    /// This key with the parts of another behind it.
    ///
    /// ```
    /// use sluicegate_core::Key;
    ///
    /// assert_eq!(Key::from("tenant").and("/search"), Key::from(("tenant", "/search")));
    /// assert_ne!(Key::from("tenant").and("/search"), Key::from("tenant/search"));
    /// ```
    #[must_use]
    pub fn and(mut self, part: impl AsKey) -> Self {
        part.with_key(|part| {
            self.set_kind(self.kind().max(part.kind));
            part.write(&mut self.bytes);
        });
        self
    }

    /// The key of these encoded parts, as [`as_bytes`](Self::as_bytes) has them. It is a secret until [`of_kind`](Self::of_kind)
    /// says otherwise.
    ///
    /// ```
    /// use sluicegate_core::Key;
    ///
    /// let key = Key::from(("user-7", "/login"));
    /// assert_eq!(Key::from_bytes(key.as_bytes()), key);
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Self {
        KeyRef::decode(KeyKind::Secret, bytes).to_key()
    }

    /// The encoded parts, for stores that hash. Different keys have different bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(1..).unwrap_or_default()
    }

    /// A key from its encoded parts.
    #[cfg(feature = "metrics")]
    pub(crate) fn encoded(kind: KeyKind, parts: &[u8]) -> Self {
        let mut bytes = SmallVec::with_capacity(1 + parts.len());
        bytes.push(kind as u8);
        bytes.extend_from_slice(parts);
        Self { bytes }
    }

    /// This key, borrowed.
    #[inline]
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef::decode(self.kind(), self.as_bytes())
    }
}

/// A key that is borrowed from where it is: what stores are asked about.
///
/// It hashes as the [`Key`] that [`to_key`](Self::to_key) makes of it, so that a check by `&str`
/// allocates nothing and finds the same bucket.
#[derive(Clone, Copy)]
pub struct KeyRef<'a> {
    /// The type of the only part, or [`KeyRef::SEVERAL`].
    tag: u8,
    kind: KeyKind,
    /// The only part, or all parts encoded.
    bytes: &'a [u8],
}

impl<'a> KeyRef<'a> {
    const SEVERAL: u8 = 0;

    #[inline]
    fn part(tag: Tag, bytes: &'a [u8]) -> Self {
        let kind = match tag {
            Tag::Ipv4 | Tag::Ipv6 => KeyKind::Address,
            Tag::Shared => KeyKind::Name,
            Tag::Bytes | Tag::Number | Tag::Negative | Tag::Large => KeyKind::Secret,
        };
        Self { tag: tag as u8, kind, bytes }
    }

    /// A key of one part is the same key whether it was encoded or not.
    #[inline]
    fn decode(kind: KeyKind, encoded: &'a [u8]) -> Self {
        let several = Self { tag: Self::SEVERAL, kind, bytes: encoded };
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
            tag if tag == Tag::Negative as u8 || tag == Tag::Large as u8 => {
                Some(rest).filter(|rest| rest.len() == 16)
            }
            tag if tag == Tag::Shared as u8 => Some(rest).filter(|rest| rest.is_empty()),
            _ => None,
        };
        single.map_or(several, |bytes| Self { tag, kind, bytes })
    }

    /// Type, length and bytes for a hasher: different keys differ in one of them.
    #[inline]
    pub(crate) fn parts(&self) -> (u8, &'a [u8]) {
        (self.tag, self.bytes)
    }

    /// Whether it is one address, and nothing beside it.
    pub(crate) fn is_address(&self) -> bool {
        self.tag == Tag::Ipv4 as u8 || self.tag == Tag::Ipv6 as u8
    }

    /// Names the key within this process, and tells nothing about it: the hash is keyed at random.
    pub(crate) fn digest(&self) -> u64 {
        static SEED: OnceLock<RandomState> = OnceLock::new();
        let mut hasher = SEED.get_or_init(RandomState::new).build_hasher();
        hasher.write_u8(self.tag);
        hasher.write(self.bytes);
        hasher.finish()
    }

    /// The beginning of a key with this many bytes, beside a tag and a length, and whether that is all of it.
    #[cfg(feature = "metrics")]
    pub(crate) fn begin(&self, bytes: usize) -> (Key, bool) {
        let whole = self.bytes.len() <= bytes;
        let begin = self.bytes.get(..bytes).filter(|_| !whole).unwrap_or(self.bytes);
        (Self { bytes: begin, ..*self }.to_key(), whole)
    }

    /// The key, to keep.
    #[inline]
    pub fn to_key(&self) -> Key {
        // Addresses and numbers, whose length is known where this is called: a few moves.
        let has_length = self.tag == Tag::Bytes as u8 || self.tag == Self::SEVERAL;
        if !has_length && self.bytes.len() <= 16 {
            let (mut bytes, whole) = ([0; 56], 2 + self.bytes.len());
            bytes[..2].copy_from_slice(&[self.kind as u8, self.tag]);
            bytes[2..whole].copy_from_slice(self.bytes);
            return Key { bytes: SmallVec::from_buf_and_len(bytes, whole) };
        }
        self.encoded()
    }

    fn encoded(&self) -> Key {
        let mut bytes = SmallVec::new();
        bytes.push(self.kind as u8);
        self.write(&mut bytes);
        Key { bytes }
    }

    fn write(&self, bytes: &mut SmallVec<[u8; 56]>) {
        if self.tag != Self::SEVERAL {
            bytes.push(self.tag);
        }
        if self.tag == Tag::Bytes as u8 {
            push_length(bytes, self.bytes.len());
        }
        bytes.extend_from_slice(self.bytes);
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

/// Whatever names a bucket: a [`Key`], text, bytes, a whole number, an address, or two to four of them in a tuple.
///
/// Numbers are the same key whatever their type; text is the same key as its bytes. Sealed: make anything else a key by
/// saying which of these it is, such as `user.id.as_bytes()` or `(tenant, user)`.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
///
/// struct UserId([u8; 16]);
///
/// let api = Policy::gcra("api", "1/min").on(&MemoryStore::new())?;
/// let user = UserId([7; 16]);
/// // An id of your own is its bytes; a tenant and an id are a tuple.
/// assert!(api.check(user.0).now().expect("memory answers at once")?.is_allowed());
/// assert!(api.check(("tenant-1", user.0)).now().expect("memory answers at once")?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key",
    label = "a key is expected here",
    note = "keys are text, bytes, whole numbers, IP addresses, `Key`, and tuples of up to four of these",
    note = "for an id of another type, use `id.to_string()` or `id.as_bytes()`"
)]
pub trait AsKey: sealed::Sealed {
    /// Calls `ask` with the key.
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T;
}

mod sealed {
    use super::Key;

    #[expect(unnameable_types, reason = "nobody else shall implement it")]
    pub trait Sealed {}

    impl<K: Sealed + ?Sized> Sealed for &K {}
    impl Sealed for Key {}
    impl<A, B> Sealed for (A, B) {}
    impl<A, B, C> Sealed for (A, B, C) {}
    impl<A, B, C, D> Sealed for (A, B, C, D) {}
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

/// Keys are equal if their parts are: their kinds do not count.
impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl From<&Self> for Key {
    #[inline]
    fn from(value: &Self) -> Self {
        value.clone()
    }
}

/// How a type is a key: borrowed for a question, and kept.
macro_rules! keys {
    ($([$($generic:tt)*] $name:ty: |$value:ident, $ask:ident| $with:expr;)+) => {$(
        impl<$($generic)*> sealed::Sealed for $name {}

        impl<$($generic)*> AsKey for $name {
            #[inline]
            fn with_key<T>(&self, $ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
                let $value = self;
                $with
            }
        }
    )+};
}

keys! {
    // As `decode` has it: longer text is never the fast path.
    [] [u8]: |bytes, ask| if bytes.len() < 0x80 {
        ask(KeyRef::part(Tag::Bytes, bytes))
    } else {
        ask(KeyRef::part(Tag::Bytes, bytes).to_key().as_ref())
    };
    [const N: usize] [u8; N]: |bytes, ask| bytes.as_slice().with_key(ask);
    [] Vec<u8>: |bytes, ask| bytes.as_slice().with_key(ask);
    [] str: |text, ask| text.as_bytes().with_key(ask);
    [] String: |text, ask| text.as_bytes().with_key(ask);
    [] Cow<'_, str>: |text, ask| text.as_bytes().with_key(ask);
    // As the address stands; an IPv4-mapped one is the IPv4 address that it maps.
    [] IpAddr: |address, ask| match address.to_canonical() {
        IpAddr::V4(v4) => ask(KeyRef::part(Tag::Ipv4, &v4.octets())),
        IpAddr::V6(v6) => ask(KeyRef::part(Tag::Ipv6, &v6.octets())),
    };
    [] Ipv4Addr: |address, ask| IpAddr::V4(*address).with_key(ask);
    [] Ipv6Addr: |address, ask| IpAddr::V6(*address).with_key(ask);
    [] u64: |number, ask| ask(KeyRef::part(Tag::Number, &number.to_le_bytes()));
    [] u128: |number, ask| match u64::try_from(*number) {
        Ok(number) => number.with_key(ask),
        Err(_) => ask(KeyRef::part(Tag::Large, &number.to_le_bytes())),
    };
    [] i128: |number, ask| match u128::try_from(*number) {
        Ok(number) => number.with_key(ask),
        Err(_) => ask(KeyRef::part(Tag::Negative, &number.to_le_bytes())),
    };
    [] u8: |number, ask| u64::from(*number).with_key(ask);
    [] u16: |number, ask| u64::from(*number).with_key(ask);
    [] u32: |number, ask| u64::from(*number).with_key(ask);
    [] usize: |number, ask| (*number as u64).with_key(ask);
    [] i8: |number, ask| i128::from(*number).with_key(ask);
    [] i16: |number, ask| i128::from(*number).with_key(ask);
    [] i32: |number, ask| i128::from(*number).with_key(ask);
    [] i64: |number, ask| i128::from(*number).with_key(ask);
    [] isize: |number, ask| (*number as i128).with_key(ask);
}

/// Several keys are one, part by part.
macro_rules! tuples {
    ($(($first:ident $(, $other:ident)+))+) => {$(
        impl<$first: AsKey, $($other: AsKey),+> AsKey for ($first, $($other),+) {
            fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
                #[expect(non_snake_case, reason = "a value for each type")]
                let ($first, $($other),+) = self;
                let key = $first.with_key(|first| first.to_key())$(.and($other))+;
                ask(key.as_ref())
            }
        }

        impl<$first: AsKey, $($other: AsKey),+> From<($first, $($other),+)> for Key {
            fn from(parts: ($first, $($other),+)) -> Self {
                parts.with_key(|key| key.to_key())
            }
        }
    )+};
}

tuples! { (A, B) (A, B, C) (A, B, C, D) }

/// Every [`AsKey`] can be kept.
macro_rules! kept {
    ($([$($generic:tt)*] $name:ty),+) => {$(
        impl<$($generic)*> From<$name> for Key {
            #[inline]
            fn from(value: $name) -> Self {
                value.with_key(|key| key.to_key())
            }
        }
    )+};
}

kept! {
    [] &str, [] String, [] &String, [] Cow<'_, str>,
    [] &[u8], [] Vec<u8>, [const N: usize] [u8; N], [const N: usize] &[u8; N],
    [] u8, [] u16, [] u32, [] u64, [] u128, [] usize, [] i8, [] i16, [] i32, [] i64, [] i128, [] isize,
    [] IpAddr, [] Ipv4Addr, [] Ipv6Addr
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:08x})", self.as_ref().digest() >> 32)
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
            Key::from(-1),
            Key::from(i128::MIN),
            Key::from(u64::MAX),
            Key::from(u128::MAX),
            Key::from(u128::from(u64::MAX) + 1),
            Key::from([1_u8, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[..i] {
                assert_ne!(a.as_bytes(), b.as_bytes());
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
        same(-7_i64, -7_i8);
        same(u128::MAX, u128::MAX);
        same([0_u8; 16], vec![0_u8; 16]);
        same(Cow::Borrowed("user"), "user");
        same(
            ("tenant", 7_u32, [1_u8; 4], -7),
            Key::from("tenant").and(7_i128).and(vec![1_u8; 4]).and(-7_isize),
        );
    }

    #[test]
    fn a_number_is_the_same_key_whatever_its_type() {
        let sevens =
            [Key::from(7_u8), 7_u16.into(), 7_u32.into(), 7_u64.into(), 7_u128.into(), 7_usize.into()];
        let signed =
            [Key::from(7_i8), 7_i16.into(), 7_i32.into(), 7_i64.into(), 7_i128.into(), 7_isize.into()];
        assert!(sevens.iter().chain(&signed).all(|key| *key == Key::from(7)));
        let negative = [Key::from(-7_i8), (-7_i16).into(), (-7_i64).into(), (-7_i128).into()];
        assert!(negative.iter().all(|key| *key == Key::from(-7) && *key != Key::from(7)));
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
