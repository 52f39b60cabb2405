//! The policies that are in shards, and the names of the shards of a key: [`ShardedPolicies`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::key::KeyRef;
use sluicegate_core::policy::MAX_QUOTAS;
use sluicegate_core::{ConfigError, Key, Policy, Store};

use crate::divided::Divide;

/// Shards on one store.
pub(super) struct ShardedPolicies {
    pub(super) store: [Arc<dyn Store>; 1],
    /// The number of shards of each divided policy; the same on all instances.
    pub(super) shards: u64,
    /// The names of policies that are always divided.
    pub(super) policies: Vec<String>,
    /// Policies with all limits above this number are divided.
    pub(super) above: Option<u64>,
    /// The number of shard choices so far.
    pub(super) turns: AtomicU64,
}

impl ShardedPolicies {
    fn is_named(&self, policy: &Policy) -> bool {
        self.policies.iter().any(|name| name == policy.name())
    }

    /// Whether it is large enough to be kept in shards if possible.
    fn is_large(&self, policy: &Policy) -> bool {
        let is_above = |above| policy.quotas().iter().all(|quota| quota.quota().limit() > above);
        let fits = policy.quotas().len() * usize::try_from(self.shards).unwrap_or(MAX_QUOTAS) <= MAX_QUOTAS;
        self.above.is_some_and(is_above) && fits && self.split(policy).is_ok()
    }

    /// The shards of a policy: parts that differ by at most one unit.
    ///
    /// # Errors
    /// When a shard would have no unit, or its rate would not be exact.
    fn split(&self, policy: &Policy) -> Result<Vec<Policy>, ConfigError> {
        let shards = self.shards;
        policy.split((1..=shards).map(|shard| (format!("{}.{shard}of{shards}", policy.name()), 1)))
    }
}

impl Divide for ShardedPolicies {
    fn stores(&self) -> &[Arc<dyn Store>] {
        &self.store
    }

    fn parts(&self, policy: &Policy, replaces: Option<bool>) -> Result<Option<Vec<Policy>>, ConfigError> {
        // A suspension is one span for the whole key.
        let is_sharded = || !policy.is_of_suspension() && (self.is_named(policy) || self.is_large(policy));
        if replaces.unwrap_or_else(is_sharded) { self.split(policy).map(Some) } else { Ok(None) }
    }

    fn store_of(&self, _: usize) -> usize {
        0
    }

    fn key(&self, key: KeyRef<'_>, part: usize) -> Key {
        key.to_key().and(part as u64)
    }

    /// The choice is pseudorandom: in strict turns, alternating requests for two keys would each ask only half of the shards.
    fn first(&self, parts: usize) -> usize {
        // Relaxed: it only has to be a different number each time.
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        // SplitMix64, Steele, Lea and Flood (2014).
        let mixed = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (parts as u64)).unwrap_or(0)
    }

    fn is_in_order(&self) -> bool {
        false
    }

    fn shared(&self) -> &Arc<dyn Store> {
        &self.store[0]
    }
}
