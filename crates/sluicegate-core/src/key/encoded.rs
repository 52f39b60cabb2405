//! An owned key and a borrowed key: [`Key`], [`KeyRef`].

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use smallvec::SmallVec;

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

    /// The parts as text, separated by spaces: `192.0.2.7 "/login"`. Only for keys that are not secret.
    ///
    /// ```
    /// use sluicegate_core::Key;
    ///
    /// assert_eq!(Key::from(("user\n7", 12_u64)).plain(), r#""user\n7" 12"#);
    /// ```
    pub fn plain(&self) -> String {
        let texts: Vec<String> = self.parts().map(|(_, text)| text).collect();
        texts.join(" ")
    }

    /// The key as it may be shown to operators: [`plain`](Self::plain), or the output of `Debug` for a secret and
    /// for a key with a [digest](Self::of_digest) in it.
    pub fn shown(&self) -> String {
        self.in_clear().unwrap_or_else(|| format!("{self:?}"))
    }

    /// The parts as text, if operators may see all of them.
    pub fn in_clear(&self) -> Option<String> {
        let has_digest = || self.parts().any(|(tag, _)| tag == Tag::Digest as u8);
        (self.kind() != KeyKind::Secret && !has_digest()).then(|| self.plain())
    }

    /// The type of each part, and its text.
    fn parts(&self) -> impl Iterator<Item = (u8, String)> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let tag = *rest.first()?;
            // The last part of a key that was cut may be incomplete.
            let (text, length) = part(rest).unwrap_or_else(|| ("…".to_owned(), rest.len()));
            rest = &rest[length..];
            Some((tag, text))
        })
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

/// The first part, and the number of bytes that it takes.
fn part(encoded: &[u8]) -> Option<(String, usize)> {
    let (&tag, rest) = encoded.split_first()?;
    Some(match tag {
        tag if tag == Tag::Bytes as u8 => {
            let (length, begin) = length(rest)?;
            let text = rest.get(begin..)?;
            if text.len() < length {
                let text = String::from_utf8_lossy(text);
                let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
                return Some((format!("{text:?}…"), encoded.len()));
            }
            (format!("{:?}", String::from_utf8_lossy(&text[..length])), 1 + begin + length)
        }
        tag if tag == Tag::Number as u8 => (u64::from_le_bytes(*rest.first_chunk()?).to_string(), 9),
        tag if tag == Tag::Large as u8 => (u128::from_le_bytes(*rest.first_chunk()?).to_string(), 17),
        tag if tag == Tag::Negative as u8 => (i128::from_le_bytes(*rest.first_chunk()?).to_string(), 17),
        tag if tag == Tag::Ipv4 as u8 => (Ipv4Addr::from(*rest.first_chunk::<4>()?).to_string(), 5),
        tag if tag == Tag::Ipv6 as u8 => (Ipv6Addr::from(*rest.first_chunk::<16>()?).to_string(), 17),
        tag if tag == Tag::Shared as u8 => ("shared".to_owned(), 1),
        tag if tag == Tag::Digest as u8 => rest.first_chunk::<16>().map(|_| ("digest".to_owned(), 17))?,
        _ => return None,
    })
}

/// The length that is written before text, and the number of bytes that it takes.
fn length(encoded: &[u8]) -> Option<(usize, usize)> {
    let bytes = encoded.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let mut digits = encoded[..bytes].iter().rev();
    let length =
        digits.try_fold(0_usize, |sum, byte| sum.checked_mul(0x80)?.checked_add(usize::from(byte & 0x7f)));
    Some((length?, bytes))
}

/// The kind of a key, from the least to the most secret: it decides how much logs, status pages and explanations show of it.
///
/// A key carries its kind with it, but equal keys share a bucket whatever their kinds. An address is an
/// [`Address`](Self::Address); every other key is a [`Secret`](Self::Secret) unless its owner sets another kind. A key of several
/// parts has the kind of the most secret part.
///
/// ```
/// use std::net::Ipv4Addr;
/// use sluicegate_core::Key;
/// use sluicegate_core::key::KeyKind;
///
/// assert_eq!(Key::from(Ipv4Addr::LOCALHOST).kind(), KeyKind::Address);
/// let user = Key::from("ada");
/// assert_eq!(user.kind(), KeyKind::Secret);
/// let user = user.of_kind(KeyKind::Name);
/// assert_eq!((user.shown(), user.clone().and(7).kind()), (r#""ada""#.to_owned(), KeyKind::Secret));
/// assert_eq!(user, Key::from("ada")); // it is the same bucket
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum KeyKind {
    /// A name that proves nothing: a route, a method, a user. It may be shown.
    Name = 0,
    /// An address of a client or of its network. It may be shown to operators.
    Address = 1,
    /// A secret, its digest, or text that may hold one. It is never shown.
    Secret = 2,
}

impl KeyKind {
    /// From the first byte of a [`Key`](super::Key).
    #[inline]
    pub(crate) fn read(byte: u8) -> Self {
        match byte {
            0 => Self::Name,
            1 => Self::Address,
            _ => Self::Secret,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn every_kind_of_part_is_readable() {
        let address: IpAddr = "192.0.2.7".parse().expect("an address");
        let prefix: IpAddr = "2001:db8::".parse().expect("an address");
        let long = "x".repeat(300);
        let key = Key::from(address)
            .and(prefix)
            .and(7_u64)
            .and(-7)
            .and(u128::MAX)
            .and(&*long)
            .and("")
            .and(Key::of_digest([0xab; 16]))
            .and(Key::shared());
        assert_eq!(
            key.plain(),
            format!("192.0.2.7 2001:db8:: 7 -7 {} {long:?} \"\" digest shared", u128::MAX)
        );
    }
}
