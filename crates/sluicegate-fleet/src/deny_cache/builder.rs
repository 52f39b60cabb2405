//! The settings of a [`DenyCache`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sluicegate_core::clock::{Clock, SystemClock};
use sluicegate_core::error::ConfigErrorKind;
use sluicegate_core::store::Place;
use sluicegate_core::wrap::Within;
use sluicegate_core::{ConfigError, Store};

use super::DenyCache;
use super::question::micros;
use super::refusal::Keep;
use super::store::{CacheState, CachedStore};
use super::table::RefusalTable;

/// Collects the settings of a [`DenyCache`].
///
/// | setting | default | too low | too high |
/// |---|---|---|---|
/// | [`longest`](Self::longest) | 2 s | refused keys cost more calls | a reset elsewhere is seen late |
/// | [`keys`](Self::keys) | 50,000 | a flood from more keys reaches the store | memory |
///
/// ```
/// use std::time::Duration;
/// use sluicegate_core::MemoryStore;
/// use sluicegate_fleet::DenyCache;
///
/// # let redis = MemoryStore::new();
/// let store = DenyCache::builder(redis).longest(Duration::from_secs(3)).keys(200_000).build()?;
/// assert_eq!(store.status().slots, 200_000);
///
/// let error = DenyCache::builder(MemoryStore::new()).longest(Duration::from_secs(60)).build().unwrap_err();
/// assert_eq!(error.to_string(), "refusals kept for up to 60s: use more than 0 and at most 5s");
/// # Ok::<(), sluicegate_core::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct DenyCacheBuilder {
    store: Arc<dyn Store>,
    longest: Duration,
    keys: usize,
    clock: Arc<dyn Clock>,
}

/// The longest time to keep a refusal: after that, a reset on another instance is seen.
const MOST: Duration = Duration::from_secs(5);
const MOST_KEYS: usize = 1 << 31;

impl DenyCacheBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, longest: Duration::from_secs(2), keys: 50_000, clock: Arc::new(SystemClock::new()) }
    }

    /// Sets the longest time that a refusal is kept, however late its retry is. Default: 2 s. At most 5 s.
    ///
    /// After this time, a refund, a reset or a replacement by another instance is seen here.
    pub fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Sets the most keys that are kept, each counted once per policy. Default: 50,000, in at most 14 MB: up to 280 bytes for a policy of
    /// one quota, and 80 more for each further quota. When it is full, the refusal that ends soonest makes room.
    pub fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the clock that refusals end by. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for a longest time of 0 or above 5 s, for 0 keys or more than 2^31, and around a store that is
    /// a `DenyCache` or observed already ([`Place`]).
    pub fn build(self) -> Result<DenyCache, ConfigError> {
        let problem = match (self.longest, self.keys) {
            (longest, _) if longest < Duration::from_micros(1) || longest > MOST => {
                format!("refusals kept for up to {longest:?}: use more than 0 and at most {MOST:?}")
            }
            (_, keys) if keys == 0 || keys > MOST_KEYS => {
                format!("a cache for {keys} keys: use at least 1 and at most {MOST_KEYS}")
            }
            _ => {
                Place::DenyCache.around(&*self.store)?;
                return Ok(self.build_anywhere());
            }
        };
        Err(ConfigError::new(ConfigErrorKind::Store, problem))
    }

    /// Builds a cache around any store; the order of stores is checked when a policy is opened.
    pub(super) fn build_anywhere(self) -> DenyCache {
        let Self { store, longest, keys, clock } = self;
        let longest_us = micros(longest);
        DenyCache(Arc::new(CachedStore(Arc::new(CacheState {
            keep: Keep { longest_us, in_lumps: store.place() == Some(Place::Leased) },
            within: Within::new(store),
            table: Arc::new(RefusalTable::new(keys, longest_us)),
            slots: keys,
            clock,
            refused: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        }))))
    }
}

impl fmt::Debug for DenyCacheBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCacheBuilder")
            .field("longest", &self.longest)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
