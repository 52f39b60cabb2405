//! Keys as text for people.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::encoded::{Key, Tag};
use super::kind::KeyKind;

impl Key {
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
