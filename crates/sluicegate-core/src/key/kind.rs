//! How much of a key may be shown: [`KeyKind`].

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
