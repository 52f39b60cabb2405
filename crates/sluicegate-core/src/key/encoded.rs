//! An owned key and a borrowed key: [`Key`], [`KeyRef`].

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;

use smallvec::SmallVec;

use super::kind::KeyKind;

/// The name of the bucket that a request spends from: an address, a user, an API key, or several of these together.
///
/// A key is a sequence of typed parts. Each part carries its type and length, so no two different sequences have
/// the same bytes, whatever a client writes into them: `("a_b", "c")` is not `("a", "b_c")`, the text `"1"` is not the
/// number `1`. Up to 51 bytes of text fit without an allocation.
///
/// Keys may be secrets; their [kind](Self::kind) says so. `Debug` shows a hash that is valid within this process only.
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
    /// The [`KeyKind`], followed by the parts.
    pub(super) bytes: SmallVec<[u8; 56]>,
}

/// The type of a part, as the first byte of its encoding.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Tag {
    Bytes = 1,
    Number = 2,
    Ipv4 = 3,
    Ipv6 = 4,
    Shared = 5,
    Negative = 6,
    Large = 7,
    Digest = 8,
}

impl Key {
    /// The key of all requests without a key of their own: a part that no client can write.
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

    /// A key that is known only by its digest, for example of a secret, or of a subject with its issuer. The bytes are never shown,
    /// whatever the [kind](Self::kind) of the key.
    ///
    /// ```
    /// use sluicegate_core::Key;
    /// use sluicegate_core::key::KeyKind;
    ///
    /// let user = Key::of_digest([0xab; 16]).of_kind(KeyKind::Name);
    /// assert_eq!(user.shown(), format!("{user:?}"));
    /// assert_ne!(user, Key::from([0xab; 16]));
    /// ```
    pub fn of_digest(digest: [u8; 16]) -> Self {
        KeyRef::part(Tag::Digest, &digest).to_key()
    }

    /// The encoded parts, for stores that hash. Different keys have different bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(1..).unwrap_or_default()
    }

    /// This key with another kind, which its owner knows.
    #[inline]
    #[must_use]
    pub fn of_kind(mut self, kind: KeyKind) -> Self {
        self.set_kind(kind);
        self
    }

    /// Sets the kind in place; see [`of_kind`](Self::of_kind).
    #[inline]
    pub fn set_kind(&mut self, kind: KeyKind) {
        // Every key begins with its kind.
        if let Some(first) = self.bytes.first_mut() {
            *first = kind as u8;
        }
    }

    /// The kind of value, which says who may see it.
    #[inline]
    pub fn kind(&self) -> KeyKind {
        self.bytes.first().map_or(KeyKind::Secret, |kind| KeyKind::read(*kind))
    }

    /// Makes a key from encoded parts, as [`as_bytes`](Self::as_bytes) returns them. For authors of stores.
    ///
    /// ```
    /// use sluicegate_core::Key;
    ///
    /// let key = Key::from(("user-7", "/login"));
    /// assert_eq!(Key::encoded(key.kind(), key.as_bytes()), key);
    /// ```
    pub fn encoded(kind: KeyKind, parts: &[u8]) -> Self {
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

/// A borrowed key, the form that stores are asked with.
///
/// It hashes as [`Key::as_ref`] of the [`Key`] that [`to_key`](Self::to_key) makes, so that a check by `&str`
/// allocates nothing and finds the same bucket.
#[derive(Clone, Copy)]
pub struct KeyRef<'a> {
    /// The type of the only part, or [`KeyRef::SEVERAL`].
    tag: u8,
    pub(super) kind: KeyKind,
    /// The only part, or all parts encoded.
    bytes: &'a [u8],
}

impl<'a> KeyRef<'a> {
    const SEVERAL: u8 = 0;

    #[inline]
    pub(super) fn part(tag: Tag, bytes: &'a [u8]) -> Self {
        let kind = match tag {
            Tag::Ipv4 | Tag::Ipv6 => KeyKind::Address,
            Tag::Shared => KeyKind::Name,
            Tag::Bytes | Tag::Number | Tag::Negative | Tag::Large | Tag::Digest => KeyKind::Secret,
        };
        Self { tag: tag as u8, kind, bytes }
    }

    /// A key of one part is equal whether it was encoded or not.
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
            tag if [Tag::Negative as u8, Tag::Large as u8, Tag::Digest as u8].contains(&tag) => {
                Some(rest).filter(|rest| rest.len() == 16)
            }
            tag if tag == Tag::Shared as u8 => Some(rest).filter(|rest| rest.is_empty()),
            _ => None,
        };
        single.map_or(several, |bytes| Self { tag, kind, bytes })
    }

    /// The kind of value, which says who may see it.
    #[inline]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Type, length and bytes for a hasher: different keys differ in one of them.
    #[inline]
    pub(crate) fn parts(&self) -> (u8, &'a [u8]) {
        (self.tag, self.bytes)
    }

    /// The address, if the key is one address and nothing else.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use sluicegate_core::Key;
    ///
    /// let address = Key::from(Ipv4Addr::LOCALHOST);
    /// assert_eq!(address.as_ref().address(), Some(Ipv4Addr::LOCALHOST.into()));
    /// assert_eq!(address.and("/login").as_ref().address(), None);
    /// ```
    pub fn address(&self) -> Option<IpAddr> {
        match self.tag {
            tag if tag == Tag::Ipv4 as u8 => self.bytes.first_chunk::<4>().map(|octets| (*octets).into()),
            tag if tag == Tag::Ipv6 as u8 => self.bytes.first_chunk::<16>().map(|octets| (*octets).into()),
            _ => None,
        }
    }

    /// A hash that identifies the key within this process. It is keyed at random, so that it reveals nothing about the key.
    pub fn digest(&self) -> u64 {
        static SEED: OnceLock<RandomState> = OnceLock::new();
        let mut hasher = SEED.get_or_init(RandomState::new).build_hasher();
        hasher.write_u8(self.tag);
        hasher.write(self.bytes);
        hasher.finish()
    }

    /// Cuts the key to at most `bytes` bytes, not counting its tag and length, and says whether that is the whole key. For stores that show keys.
    pub fn begin(&self, bytes: usize) -> (Key, bool) {
        let whole = self.bytes.len() <= bytes;
        let begin = self.bytes.get(..bytes).filter(|_| !whole).unwrap_or(self.bytes);
        (Self { bytes: begin, ..*self }.to_key(), whole)
    }

    /// The owned key.
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

    pub(super) fn write(&self, bytes: &mut SmallVec<[u8; 56]>) {
        if self.tag != Self::SEVERAL {
            bytes.push(self.tag);
        }
        if self.tag == Tag::Bytes as u8 {
            push_length(bytes, self.bytes.len());
        }
        bytes.extend_from_slice(self.bytes);
    }
}

/// Equal if the [`Key`]s are equal.
impl PartialEq for KeyRef<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for KeyRef<'_> {}

/// Hashes without an allocation, whatever the key, for stores that keep a table. A [`Key`] hashes differently; its
/// [`as_ref`](Key::as_ref) hashes like this.
impl Hash for KeyRef<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.tag);
        state.write(self.bytes);
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

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:08x})", self.as_ref().digest() >> 32)
    }
}
