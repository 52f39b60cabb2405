//! One ask of one request, and what its key is called in Redis.

use std::sync::Arc;

use sluicegate_core::algorithm::Rule;
use sluicegate_core::error::StoreErrorKind;
use sluicegate_core::key::KeyRef;
use sluicegate_core::limiter::{Inherit, Receipt};
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::store::{Ask, Mode, Trace};
use sluicegate_core::{ConfigError, Policy, StoreError};
use smallvec::SmallVec;

use crate::text;

/// A policy as the store prepares it: what all its cells have in common.
#[derive(Debug)]
pub(crate) struct Bucket {
    stem: String,
    /// See [`text::of`].
    pub(crate) text: Vec<u8>,
    pub(crate) rules: Vec<Rule>,
    /// How its keys start that were under other rules before, as the script counts the ways.
    pub(crate) way: u8,
    /// What was spent before this moment, in microseconds, is forgotten; 0 if everybody was never reset.
    pub(crate) since_us: u64,
    pub(crate) gives_back: bool,
}

impl Bucket {
    pub(crate) fn new(
        prefix: &str,
        policy: &Policy,
        inherit: Inherit,
        since_us: u64,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            stem: stem(prefix, policy.name()),
            text: text::of(policy)?,
            rules: policy.quotas().iter().map(|quota| *quota.rule()).collect(),
            way: match inherit {
                Inherit::Reset => 0,
                Inherit::AsIs => 1,
                Inherit::Proportional => 2,
                Inherit::Additive => 3,
                _ => 4,
            },
            since_us,
            gives_back: policy.gives_back(),
        })
    }
}

/// `<prefix>:2:<policy>:`: the format and the policy. The rules are not part of it: a state says which ones it is of.
fn stem(prefix: &str, policy: &str) -> String {
    format!("{prefix}:2:{policy}:")
}

/// What a key is called.
pub(crate) fn name(prefix: &str, policy: &str, tag: &str) -> String {
    format!("{}{{{tag}}}", stem(prefix, policy))
}

/// One ask of one request.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Its name in Redis; from `tag_at` on, that is the hash tag in its braces.
    name: String,
    tag_at: usize,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) mode: Mode,
    /// One per quota.
    pub(crate) costs: SmallVec<[u64; 2]>,
    /// What it is about that was spent before, if that is known.
    pub(crate) spent: Option<Spent>,
    /// Its place among the asks.
    pub(crate) at: u8,
    /// Of a request that other slots decide, too: when its turn comes at the earliest, and for how long what it spends here is
    /// marked as not decided; in microseconds.
    pub(crate) apart: Option<(u64, u64)>,
}

/// What a receipt says.
#[derive(Clone, Debug)]
pub(crate) struct Spent {
    pub(crate) at_us: u64,
    pub(crate) is_held: bool,
    /// Per quota the units that took effect and were not given back since, and the trace; none where that is not kept.
    pub(crate) traces: SmallVec<[(u64, Trace); 1]>,
}

impl Spent {
    fn of(receipt: &Receipt, quotas: usize) -> Self {
        let traces =
            (0_u8..).take(quotas).map_while(|quota| Some((receipt.cost_of(quota), *receipt.trace(quota)?)));
        let is_held = receipt.is_held();
        Self { at_us: receipt.at_us(), is_held, traces: traces.collect() }
    }
}

impl Cell {
    /// One per ask.
    pub(crate) fn each(asks: &[Ask<'_>], tags: &Tags) -> Result<Vec<Self>, StoreError> {
        let mut buckets = 0;
        let cells = (0_u8..).zip(asks).map(|(at, ask)| {
            let bucket = ask.policy().prepared::<Arc<Bucket>>();
            let bucket = bucket.ok_or_else(|| StoreError::new(StoreErrorKind::ForeignPolicy))?;
            buckets += bucket.rules.len();
            if buckets > MAX_QUOTAS {
                return Err(StoreError::new(StoreErrorKind::TooManyQuotas));
            }
            let tag = tags.tag(ask.key());
            let mut name = String::with_capacity(bucket.stem.len() + tag.len() + 2);
            name.push_str(&bucket.stem);
            name.push('{');
            name.push_str(&tag);
            name.push('}');
            Ok(Self {
                name,
                tag_at: bucket.stem.len(),
                bucket: Arc::clone(bucket),
                mode: ask.mode(),
                costs: (0_u8..).take(bucket.rules.len()).map(|quota| cost_of(ask, quota)).collect(),
                spent: ask.receipt().map(|receipt| Spent::of(receipt, bucket.rules.len())),
                at,
                apart: None,
            })
        });
        let cells: Vec<_> = cells.collect::<Result<_, _>>()?;
        if cells.is_empty() { Err(StoreError::new(StoreErrorKind::NothingAsked)) } else { Ok(cells) }
    }

    /// A charge of one unit under this name.
    pub(crate) fn probe(name: String, bucket: Arc<Bucket>) -> Self {
        let (tag_at, costs) = (bucket.stem.len(), std::iter::once(1).collect());
        Self { name, tag_at, bucket, mode: Mode::Charge, costs, spent: None, at: 0, apart: None }
    }

    /// The same, asked otherwise.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// The same, about what this receipt says.
    pub(crate) fn of(&self, mode: Mode, receipt: &Receipt) -> Self {
        let spent = Some(Spent::of(receipt, self.bucket.rules.len()));
        Self { mode, spent, ..self.clone() }
    }

    /// The key of its value.
    pub(crate) fn name(&self) -> &str {
        &self.name
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

/// What is given back is at most what took effect.
fn cost_of(ask: &Ask<'_>, quota: u8) -> u64 {
    match ask.receipt() {
        Some(receipt) => ask.cost_of(quota).min(receipt.cost_of(quota)),
        None => ask.cost_of(quota),
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
