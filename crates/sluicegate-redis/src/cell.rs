//! One bucket of one request, and what it is called in Redis.

use std::fmt::Write as _;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::{ConfigError, ConfigErrorKind, KeyRef, Mode, PolicyQuota};

/// One bucket of one request.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Its name in Redis; from `tag_at` on, that is the hash tag in its braces.
    name: String,
    tag_at: usize,
    pub(crate) rule: Rule,
    pub(crate) mode: Mode,
    pub(crate) cost: u64,
    /// When what is given back was spent, if that is known.
    pub(crate) spent_us: Option<u64>,
    /// The ask that it belongs to, and the quota of that ask's policy.
    pub(crate) at: (u8, u8),
}

impl Cell {
    pub(crate) fn new(bucket: &Bucket, tag: &str, mode: Mode, cost: u64, at: (u8, u8)) -> Self {
        let mut name = String::with_capacity(bucket.stem.len() + tag.len() + 2);
        name.push_str(&bucket.stem);
        name.push('{');
        name.push_str(tag);
        name.push('}');
        Self { name, tag_at: bucket.stem.len(), rule: bucket.rule, mode, cost, spent_us: None, at }
    }

    /// Whether it is carried out whatever the bucket holds, if nothing beside it is refused.
    pub(crate) fn must_happen(&self) -> bool {
        !self.mode.asks()
    }

    /// Nothing is given back, and nothing refused: it says where the bucket stands.
    pub(crate) fn untouched(&self) -> Self {
        Self { cost: 0, ..self.refund(None) }
    }

    /// The same cost, given back as far as it still counts of what was spent then.
    pub(crate) fn refund(&self, spent_us: Option<u64>) -> Self {
        Self { mode: Mode::Refund, spent_us, ..self.clone() }
    }

    /// The key of its state.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The key of the sum, beside the entries of a sliding log.
    pub(crate) fn sum_name(&self) -> Option<String> {
        matches!(self.rule, Rule::SlidingLog(_)).then(|| format!("{}:sum", self.name))
    }

    fn tag(&self) -> &str {
        &self.name[self.tag_at..]
    }

    /// The hash slot of a Cluster that it lives in.
    pub(crate) fn slot(&self) -> u16 {
        slot(self.tag().trim_matches(['{', '}']))
    }

    /// Whether both are certain to live on the same node of a Cluster: their names have the same hash tag.
    pub(crate) fn lives_with(&self, other: &Self) -> bool {
        self.tag() == other.tag()
    }
}

/// The hash slot of a tag.
pub(crate) fn slot(tag: &str) -> u16 {
    crc16(tag.as_bytes()) % 16_384
}

/// CRC-16/XMODEM, by which a Cluster assigns slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// One quota of an open policy: what all its cells have in common.
#[derive(Debug)]
pub(crate) struct Bucket {
    stem: String,
    rule: Rule,
    /// What tells the names from those before a reset; empty before the first one.
    pub(crate) generation: Box<str>,
}

impl Bucket {
    /// `<prefix>:1g60s:<label>:`: the format, the algorithm and the period are in the name, so that a state is never
    /// read by other rules than those that wrote it. The limit is not: a new limit finds the old states.
    pub(crate) fn new(prefix: &str, quota: &PolicyQuota, generation: &str) -> Result<Self, ConfigError> {
        let rule = quota.rule();
        let algorithm = match rule {
            Rule::Gcra(_) => 'g',
            Rule::FixedWindow(rule) if rule.is_aligned() => 'w',
            Rule::FixedWindow(_) => 'f',
            Rule::SlidingCounter(_) => 'c',
            Rule::SlidingLog(_) => 'l',
            other => {
                let problem = format!("the Redis store does not know the rule {other:?}");
                return Err(ConfigError::new(ConfigErrorKind::Store, problem));
            }
        };
        let period_us = quota.quota().period().as_micros();
        let mut stem = format!("{prefix}:1{algorithm}{period_us}:{}", quota.label());
        if !generation.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(stem, ":{generation}");
        }
        stem.push(':');
        Ok(Self { stem, rule: *rule, generation: generation.into() })
    }
}

/// Turns keys into the tags that stand for them in Redis.
///
/// A tag is 128 bits of BLAKE3, keyed with the fleet's secret, of the key's typed and length-prefixed parts: nothing
/// that a client writes is readable in Redis, collides with another key, or chooses a hash slot.
#[derive(Clone)]
pub(crate) struct Tags {
    secret: [u8; 32],
}

impl Tags {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self { secret: blake3::derive_key("sluicegate 2026-11-21 key tags", secret) }
    }

    /// 22 characters of base64url.
    pub(crate) fn tag(&self, key: KeyRef<'_>) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut hash = [0_u8; 16];
        hash.copy_from_slice(&blake3::keyed_hash(&self.secret, key.to_key().as_bytes()).as_bytes()[..16]);
        let mut bits = u128::from_be_bytes(hash);
        (0..22)
            .map(|_| {
                let digit = DIGITS[(bits & 63) as usize];
                bits >>= 6;
                char::from(digit)
            })
            .collect()
    }
}

impl std::fmt::Debug for Tags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tags(..)")
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_core::Key;

    use super::*;

    #[test]
    fn slots_are_those_that_a_cluster_assigns() {
        // The check value of CRC-16/XMODEM, and what `CLUSTER KEYSLOT foo` says.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b"foo") % 16_384, 12_182);
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
