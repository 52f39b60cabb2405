//! The names of keys in Redis, and their hash slots on a Cluster.
//!
//! ```text
//! rl : 3 : login : { q0ZxYn7cR4mVbT1sKfLw2A }
//! prefix   policy    22 characters: 128 bits of a keyed BLAKE3 of the key
//!      format
//! ```
//!
//! The braces make the hash the Cluster's hash tag, so all policies of one key live in one slot and
//! can be decided in one call. Policy names and prefixes have no `{`, so no other brace can come
//! before it.

use crc16::{State, XMODEM};
use sluicegate_core::key::KeyRef;

/// Whether this text may be part of a name: it has no braces, and all of its characters are readable.
pub(super) fn is_plain(text: &str) -> bool {
    let plain =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-' | b':');
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

/// `<prefix>:3:`: the beginning of all names.
pub(super) fn all(prefix: &str) -> String {
    format!("{prefix}:3:")
}

/// `<prefix>:3:<policy>:`: the format and the policy. The rules are not part of the name, because each value includes them.
pub(super) fn stem(prefix: &str, policy: &str) -> String {
    format!("{}{policy}:", all(prefix))
}

/// The policy in a name, or the name of a slot; `None` if it is not the name of a key, or belongs to a bucket that probes a
/// connection.
pub(super) fn policy_of<'a>(prefix: &str, name: &'a str) -> Option<&'a str> {
    let (policy, tag) = name.strip_prefix(&all(prefix))?.split_once(":{")?;
    (tag.strip_suffix('}') != Some(PROBE)).then_some(policy)
}

/// The name of a key.
pub(super) fn name(prefix: &str, policy: &str, tag: &str) -> String {
    format!("{}{{{tag}}}", stem(prefix, policy))
}

/// The tag of the bucket that connections are probed with.
pub(super) const PROBE: &str = "probe";

/// The hash slot of a tag.
pub(super) fn slot(tag: &str) -> u16 {
    State::<XMODEM>::calculate(tag.as_bytes()) % 16_384
}

/// Turns keys into the tags that represent them in Redis.
///
/// A tag is 128 bits of BLAKE3, keyed with the fleet's secret, of the key's typed and length-prefixed parts: nothing
/// that a client writes is readable in Redis, collides with another key, or selects a hash slot.
#[derive(Clone)]
pub(super) struct Tags {
    secret: [u8; 32],
}

impl Tags {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self { secret: blake3::derive_key("sluicegate 2026-11-21 key tags", secret) }
    }

    /// 22 characters of base64url.
    pub(super) fn tag(&self, key: KeyRef<'_>) -> String {
        let mut tag = String::new();
        self.push_tag(key, &mut tag);
        tag
    }

    /// Adds the tag of a key to a name.
    pub(super) fn push_tag(&self, key: KeyRef<'_>, name: &mut String) {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut hash = [0_u8; 16];
        hash.copy_from_slice(&blake3::keyed_hash(&self.secret, key.to_key().as_bytes()).as_bytes()[..16]);
        let mut bits = u128::from_be_bytes(hash);
        let tag: [u8; 22] = std::array::from_fn(|_| {
            let digit = DIGITS[(bits & 63) as usize];
            bits >>= 6;
            digit
        });
        name.push_str(str::from_utf8(&tag).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_core::Key;

    use super::*;

    #[test]
    fn slots_are_those_that_a_cluster_assigns() {
        // As `CLUSTER KEYSLOT foo` says.
        assert_eq!(slot("foo"), 12_182);
    }

    #[test]
    fn the_policy_of_a_name_is_read_from_keys_only() {
        assert_eq!(policy_of("rl", &name("rl", "log.in", "q0Zx")), Some("log.in"));
        let probe = name("rl", "probe-16cc", PROBE);
        for other in
            ["rl:3:{probe}:overrides", "rl:2:login:{q0Zx}", "shop:3:login:{q0Zx}", "rl:3:login", &probe]
        {
            assert_eq!(policy_of("rl", other), None, "{other}");
        }
    }

    #[test]
    fn a_tag_is_22_characters_that_depend_on_key_and_secret() {
        let tag = |secret: &str, key: Key| Tags::new(secret.as_bytes()).tag(key.as_ref());
        let ada = tag("", Key::from("ada"));
        assert_eq!(ada.len(), 22);
        assert_eq!(ada, tag("", Key::from("ada")), "a fleet agrees on it");
        assert_ne!(ada, tag("secret", Key::from("ada")));
        assert_ne!(tag("", Key::from(("a", "b:c"))), tag("", Key::from(("a:b", "c"))));
        assert_ne!(tag("", Key::from("1")), tag("", Key::from(1_u64)));
    }
}
