//! The settings of a [`MemoryStore`].

use std::fmt;

use super::context::{MemorySettings, TimeSource};
use super::store::MemoryStore;
use crate::clock::{Clock, SystemClock};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::policy::MOST_KEYS;

/// Collects the settings of a [`MemoryStore`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct MemoryStoreBuilder {
    settings: MemorySettings,
    clock: Option<Box<dyn Clock>>,
}

impl MemoryStore {
    /// Starts building a store with another size or clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { settings: MemorySettings::default(), clock: None }
    }
}

impl MemoryStoreBuilder {
    /// Sets how many keys of each policy can be in debt at once, unless the policy says otherwise. Default: 100,000 (2.4 MB for each
    /// quota; 4.8 MB for a quota with states of two words). This bounds the memory of a policy; see [`MemoryStore`].
    ///
    /// A key counts while it is in debt, which for most keys is for one period after its last
    /// request. So set it to the number of clients per period, with a margin for floods.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::builder().table_size(50_000).build()?;
    /// let api = Policy::gcra("api", "100/min").on(&store)?;
    /// // A policy of few keys needs no large table.
    /// let global = Policy::gcra("global", "10000/s").table_size(1).on(&store)?;
    /// let slots = store.stats().slots;
    /// assert!((90_000..100_000).contains(&slots)); // 1.87 slots per key make full sets rare
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn table_size(mut self, keys: usize) -> Self {
        self.settings.keys = keys;
        self
    }

    /// Sets the total number of entries of the sliding logs of each quota. Default: 262,144 (4 MB). A sixteenth of them is the
    /// highest limit that a sliding log on this store can have.
    ///
    /// ```
    /// use sluicegate_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::new(); // 262,144 entries: logs of up to 16,384
    /// assert!(Policy::sliding_log("small", "16384/h").on(&store).is_ok());
    /// assert!(Policy::sliding_log("large", "16385/h").on(&store).is_err());
    /// # Ok::<(), sluicegate_core::ConfigError>(())
    /// ```
    pub fn log_entries(mut self, entries: usize) -> Self {
        self.settings.log_entries = entries;
        self
    }

    /// Sets the source of time. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Checks the settings and makes the store.
    ///
    /// # Errors
    /// [`ConfigErrorKind::Store`] for 0 keys or log entries, and for more than 2^31.
    pub fn build(self) -> Result<MemoryStore, ConfigError> {
        let MemorySettings { keys, log_entries } = self.settings;
        for (what, value) in [("keys", keys), ("log entries", log_entries)] {
            if value == 0 || value > MOST_KEYS {
                return Err(ConfigError::new(
                    ConfigErrorKind::Store,
                    format!("a memory store cannot have room for {value} {what}: use 1 to {MOST_KEYS}"),
                ));
            }
        }
        let clock = self.clock.map_or_else(|| TimeSource::System(SystemClock::new()), TimeSource::Other);
        Ok(MemoryStore::with(self.settings, clock))
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryStoreBuilder").field(&self.settings).finish()
    }
}
