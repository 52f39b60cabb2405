//! How much of a key may be shown: [`KeyKind`].

use super::{Key, KeyRef};

/// What a key is, from the least to the most secret: so much of it may logs, status pages and explanations show.
///
/// A key carries its kind with it, and requests of the same key spend from the same bucket whatever its kind. An address is an
/// [`Address`](Self::Address); everything else is a [`Secret`](Self::Secret) unless its owner says what it is. Of several parts
/// the most secret one counts.
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
    /// An address of a client or of its network. It may be shown to those who run the service.
    Address = 1,
    /// A secret, its digest, or text that may hold one. It is never shown.
    Secret = 2,
}

impl KeyKind {
    /// From the first byte of a [`Key`].
    #[inline]
    pub(super) fn read(byte: u8) -> Self {
        match byte {
            0 => Self::Name,
            1 => Self::Address,
            _ => Self::Secret,
        }
    }
}

impl Key {
    /// The same key, of which its owner says what it is.
    #[inline]
    #[must_use]
    pub fn of_kind(mut self, kind: KeyKind) -> Self {
        self.set_kind(kind);
        self
    }

    /// [`of_kind`](Self::of_kind), where the key is.
    #[inline]
    pub fn set_kind(&mut self, kind: KeyKind) {
        // Every key begins with its kind.
        if let Some(first) = self.bytes.first_mut() {
            *first = kind as u8;
        }
    }

    /// What it is, which says who may see it.
    #[inline]
    pub fn kind(&self) -> KeyKind {
        self.bytes.first().map_or(KeyKind::Secret, |kind| KeyKind::read(*kind))
    }

    /// The key as it may be shown to those who run the service: [`plain`](Self::plain), or what `Debug` says of a secret.
    pub fn shown(&self) -> String {
        match self.kind() {
            KeyKind::Secret => format!("{self:?}"),
            KeyKind::Name | KeyKind::Address => self.plain(),
        }
    }
}

impl KeyRef<'_> {
    /// What it is, which says who may see it.
    #[inline]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::key::AsKey;

    #[test]
    fn a_kind_changes_nothing_about_whose_bucket_it_is() {
        let (secret, name) = (Key::from("ada"), Key::from("ada").of_kind(KeyKind::Name));
        assert_eq!((&secret, secret.as_bytes()), (&name, name.as_bytes()));
        assert_eq!(secret.as_ref().parts(), name.as_ref().parts());
        assert_eq!(secret.cmp(&name), std::cmp::Ordering::Equal);
        assert_eq!(format!("{secret:?}"), format!("{name:?}"));
    }

    #[test]
    fn a_kind_stays_with_a_key_that_is_borrowed_and_kept() {
        let long = "x".repeat(300);
        for kind in [KeyKind::Name, KeyKind::Address, KeyKind::Secret] {
            for key in [Key::from(7), Key::from(&*long), Key::from(("a", 1)), Key::shared()] {
                let key = key.of_kind(kind);
                assert_eq!(
                    (key.kind(), key.as_ref().kind(), key.as_ref().to_key().kind()),
                    (kind, kind, kind)
                );
            }
        }
    }

    #[test]
    fn the_most_secret_part_says_what_the_whole_is() {
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        let route = Key::from("/login").of_kind(KeyKind::Name);
        let kind = |key: &dyn Fn() -> Key| key().kind();
        assert_eq!(kind(&|| (&route, address).with_key(|key| key.to_key())), KeyKind::Address);
        assert_eq!(kind(&|| route.clone().and(Key::shared())), KeyKind::Name);
        assert_eq!(kind(&|| (address, "sk_live").into()), KeyKind::Secret);
        assert_eq!(kind(&|| 7.into()), KeyKind::Secret);
    }

    #[test]
    fn only_names_and_addresses_are_shown() {
        assert_eq!(Key::from(IpAddr::from([192, 0, 2, 7])).shown(), "192.0.2.7");
        assert!(!Key::from("sk_live_51H").shown().contains("sk_live"));
    }
}
