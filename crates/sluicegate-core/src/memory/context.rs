//! The data that all buckets of a store share: [`StoreContext`].

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::{fast, quality};

use super::logs::Logs;
use crate::algorithm::SlidingLog;
use crate::clock::{Clock, SystemClock};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::key::KeyRef;
use crate::policy::Policy;

/// The data that all buckets of a store share: sizes, time, the hash of keys, and unique numbers.
pub(super) struct StoreContext {
    pub(super) settings: MemorySettings,
    pub(super) clock: TimeSource,
    /// Hashes the texts of keys.
    texts: fast::RandomState,
    seed: quality::RandomState,
    salts: AtomicU64,
    buckets: AtomicU64,
    pub(super) evictions: Arc<AtomicU64>,
    pub(super) inherited: Arc<AtomicU64>,
}

/// The hash of a key's type and text, still without a policy and a quota.
#[derive(Clone, Copy)]
pub(super) struct HashedKey(u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct MemorySettings {
    pub(super) keys: usize,
    pub(super) log_entries: usize,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self { keys: 100_000, log_entries: 262_144 }
    }
}

/// The machine's clock, read without a call through a pointer, or another clock.
pub(super) enum TimeSource {
    System(SystemClock),
    Other(Box<dyn Clock>),
}

impl TimeSource {
    #[inline]
    pub(super) fn now_us(&self) -> u64 {
        match self {
            Self::System(clock) => clock.now_us(),
            Self::Other(clock) => clock.now_us(),
        }
    }

    /// As a clock for others.
    pub(super) fn clock(&self) -> &dyn Clock {
        match self {
            Self::System(clock) => clock,
            Self::Other(clock) => &**clock,
        }
    }
}

impl StoreContext {
    pub(super) fn new(settings: MemorySettings, clock: TimeSource) -> Self {
        Self {
            settings,
            clock,
            texts: fast::RandomState::default(),
            seed: quality::RandomState::default(),
            salts: AtomicU64::new(0),
            buckets: AtomicU64::new(1),
            evictions: Arc::default(),
            inherited: Arc::default(),
        }
    }

    /// The number of a new bucket, which sets the lock order of the buckets of one decision.
    pub(super) fn fresh_bucket(&self) -> u64 {
        // Relaxed, here and below: it only has to be a different number each time.
        self.buckets.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that no client can guess, different for every bucket ever opened.
    pub(super) fn fresh_salt(&self) -> u64 {
        self.seed.hash_one(self.salts.fetch_add(1, Ordering::Relaxed))
    }

    /// Hashes the text of a key, once for all buckets that are asked about it.
    #[inline]
    pub(super) fn hashed(&self, key: KeyRef<'_>) -> HashedKey {
        let (tag, bytes) = key.parts();
        let mut hasher = self.texts.build_hasher();
        hasher.write(bytes);
        HashedKey(hasher.finish() ^ (u64::from(tag) << 56 | bytes.len() as u64))
    }

    /// The hash of policy, quota and key: it is seeded at random, so that no client can aim at a set.
    ///
    /// Two keys whose 64 bits collide share a bucket: the low 32 bits choose the set and the high
    /// 32 are the tag in it.
    #[inline]
    pub(super) fn hash(&self, salt: u64, HashedKey(key): HashedKey) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write_u64(salt ^ key);
        hasher.finish()
    }

    /// The number of keys of a policy that can be in debt at once.
    pub(super) fn keys_of(&self, policy: &Policy) -> usize {
        policy.table_size().unwrap_or(self.settings.keys)
    }

    pub(super) fn check_log(&self, policy: &Policy, rule: &SlidingLog) -> Result<(), ConfigError> {
        let longest = Logs::longest(self.settings.log_entries);
        let entries = rule.most_entries();
        if usize::try_from(entries).is_ok_and(|entries| entries <= longest) {
            return Ok(());
        }
        let needed = entries.saturating_mul(16);
        Err(ConfigError::new(
            ConfigErrorKind::Unsupported,
            format!(
                "it needs a log of {entries} entries per key, and this store has room for {longest}: build it with log_entries({needed}), give it a resolution, or use a sliding counter"
            ),
        )
        .in_policy(policy.name()))
    }
}
