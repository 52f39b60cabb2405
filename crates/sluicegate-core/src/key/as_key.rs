//! Values that can be keys: [`AsKey`].

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::encoded::{Key, KeyRef, Tag};

/// The name of a bucket: a [`Key`], text, bytes, a whole number, an address, or two to four of them in a tuple.
///
/// Equal numbers are one key whatever their type; text is the same key as its bytes. The trait is sealed: convert other types
/// into one of these, for example `user.id.as_bytes()` or `(tenant, user)`.
///
/// ```
/// use sluicegate_core::{MemoryStore, Policy};
///
/// struct UserId([u8; 16]);
///
/// let api = Policy::gcra("api", "1/min").on(&MemoryStore::new())?;
/// let user = UserId([7; 16]);
/// // An id of your own is a key by its bytes; a tenant and an id by a tuple.
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
    // Always: it is a step of each decision by a borrowed key, and only calls another.
    #[inline(always)]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        (**self).with_key(ask)
    }
}

impl AsKey for Key {
    // Always: it is a step of each decision of a layer.
    #[inline(always)]
    fn with_key<T>(&self, ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
        ask(self.as_ref())
    }
}

impl Key {
    /// This key, followed by the parts of another.
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
}

/// Implements `AsKey` for types that borrow or make one part.
macro_rules! keys {
    ($inline:meta; $([$($generic:tt)*] $name:ty: |$value:ident, $ask:ident| $with:expr;)+) => {$(
        impl<$($generic)*> sealed::Sealed for $name {}

        impl<$($generic)*> AsKey for $name {
            #[$inline]
            fn with_key<T>(&self, $ask: impl FnOnce(KeyRef<'_>) -> T) -> T {
                let $value = self;
                $with
            }
        }
    )+};
}

keys! {
    // Always, as above: the length decides the rest, and one call of `ask` is all that stays.
    inline(always);
    // As in `decode`: longer text never takes the fast path.
    [] [u8]: |bytes, ask| {
        let long;
        // One call, so that it is inlined.
        ask(if bytes.len() < 0x80 {
            KeyRef::part(Tag::Bytes, bytes)
        } else {
            long = KeyRef::part(Tag::Bytes, bytes).to_key();
            long.as_ref()
        })
    };
    [const N: usize] [u8; N]: |bytes, ask| bytes.as_slice().with_key(ask);
    [] Vec<u8>: |bytes, ask| bytes.as_slice().with_key(ask);
    [] str: |text, ask| text.as_bytes().with_key(ask);
    [] String: |text, ask| text.as_bytes().with_key(ask);
    [] Cow<'_, str>: |text, ask| text.as_bytes().with_key(ask);
}

keys! {
    inline;
    // An IPv4-mapped address is the IPv4 address that it maps.
    [] IpAddr: |address, ask| {
        let (four, sixteen);
        ask(match address.to_canonical() {
            IpAddr::V4(v4) => {
                four = v4.octets();
                KeyRef::part(Tag::Ipv4, &four)
            }
            IpAddr::V6(v6) => {
                sixteen = v6.octets();
                KeyRef::part(Tag::Ipv6, &sixteen)
            }
        })
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

/// Makes a tuple of keys one key, part by part.
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

/// Converts every [`AsKey`] into a [`Key`].
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
