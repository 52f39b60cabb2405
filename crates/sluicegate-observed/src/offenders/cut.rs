//! A key in a fixed number of bytes: [`CutKey`].

use sluicegate_core::key::{Key, KeyKind, KeyRef};

/// The bytes of a name that are kept.
const NAME: usize = 64;

/// A key, or the beginning of a long one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutKey {
    kind: KeyKind,
    length: u8,
    is_whole: bool,
    /// Encoded, with a tag and a length before the name.
    bytes: [u8; NAME + 2],
}

impl CutKey {
    /// Cuts a key to the bytes that are kept.
    pub(crate) fn of(key: KeyRef<'_>) -> Self {
        let (begin, is_whole) = key.begin(NAME);
        let encoded = begin.as_bytes();
        let mut bytes = [0; NAME + 2];
        let length = encoded.len().min(bytes.len());
        bytes[..length].copy_from_slice(&encoded[..length]);
        // It is at most 66.
        let length = u8::try_from(length).unwrap_or(u8::MAX);
        Self { kind: key.kind(), length, is_whole, bytes }
    }

    /// The kind of the key.
    pub(crate) fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The key, if it was not cut.
    pub(crate) fn whole(&self) -> Option<Key> {
        self.is_whole.then(|| self.kept())
    }

    /// The key as text, perhaps without its end; `None` for a secret and for a key with a digest in it.
    pub(crate) fn plain(&self) -> Option<String> {
        let plain = self.kept().in_clear()?;
        Some(if self.is_whole { plain } else { plain.trim_end_matches('…').to_owned() + "…" })
    }

    fn kept(&self) -> Key {
        let bytes = self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes);
        Key::encoded(self.kind, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::key::AsKey;

    fn cut(key: impl AsKey) -> CutKey {
        key.with_key(CutKey::of)
    }

    #[test]
    fn a_name_is_kept_up_to_64_bytes() {
        let name = |length: usize| Key::from("x".repeat(length)).of_kind(KeyKind::Name);
        for length in [0, 1, 53, 54, 64] {
            assert_eq!(cut(name(length)).whole(), Some(name(length)), "{length} bytes");
        }
        for length in [65, 127, 128, 20_000] {
            let long = cut(name(length));
            let shown = long.plain().unwrap();
            assert!(long.whole().is_none() && shown.ends_with('…'), "{length} bytes: {shown}");
            let kept = shown.matches('x').count();
            assert!((60..=64).contains(&kept), "{length} bytes: {kept} are kept");
        }
    }

    #[test]
    fn a_long_key_of_several_parts_shows_those_that_are_whole() {
        let parts = Key::from(("/login", "x".repeat(300), 7)).of_kind(KeyKind::Name);
        let shown = cut(&parts).plain().unwrap();
        assert!(shown.starts_with("\"/login\" \"xxx") && shown.ends_with('…'), "{shown}");
        let number = Key::from(("x".repeat(57), 7)).of_kind(KeyKind::Name);
        assert_eq!(cut(&number).plain().unwrap(), format!("{:?} …", "x".repeat(57)));
        let umlauts = Key::from("ä".repeat(100)).of_kind(KeyKind::Name);
        assert!(!cut(&umlauts).plain().unwrap().contains(char::REPLACEMENT_CHARACTER));
    }

    #[test]
    fn nothing_of_a_secret_is_shown() {
        assert_eq!((cut("sk_live_51H").plain(), cut("sk_live_51H".repeat(99)).plain()), (None, None));
    }
}
